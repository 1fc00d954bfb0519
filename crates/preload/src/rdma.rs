//! The host of this process, as RDMA sees it.

use std::sync::Arc;

use weft_host::{Host, HostHome, HostPlace};
use weft_os::{last_thread, stderr};

static HOST: HostPlace = HostPlace::new();

struct PreloadHome;

impl HostHome for PreloadHome {
    fn place() -> &'static HostPlace {
        &HOST
    }
}

/// The host, made by what the environment says when it is first needed.
pub fn host() -> &'static Arc<Host> {
    PreloadHome::host()
}

/// The same, if it was needed before.
pub fn host_so_far() -> Option<&'static Arc<Host>> {
    HOST.get()
}

/// The process ends at once: see [`Host::say_last_words`].
#[cfg(not(test))]
pub fn say_last_words() {
    if let Some(host) = HOST.get() {
        host.say_last_words();
    }
}

weft_os::at_load!(follow_process);

/// The library was loaded, by the first thread of the process.
extern "C" fn follow_process() {
    PreloadHome::follow_forks();
    stderr::permit();
    last_thread::end_with_application();
}
