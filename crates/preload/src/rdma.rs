//! The host of this process, as RDMA sees it.

use std::sync::{Arc, OnceLock};

use weft_host::{Host, HostHome};

static HOST: OnceLock<Arc<Host>> = OnceLock::new();

struct PreloadHome;

impl HostHome for PreloadHome {
    fn place() -> &'static OnceLock<Arc<Host>> {
        &HOST
    }
}

/// The host, made by what the environment says when it is first needed.
pub fn host() -> &'static Arc<Host> {
    PreloadHome::host()
}

/// The process ends at once: see [`Host::say_last_words`].
#[cfg(not(test))]
pub fn say_last_words() {
    if let Some(host) = HOST.get() {
        host.say_last_words();
    }
}
