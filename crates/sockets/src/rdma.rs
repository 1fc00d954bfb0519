//! The host of this process, as RDMA sees it.

use std::sync::{Arc, OnceLock};

use weft_host::{Host, HostHome, HostSetup};

use crate::guard;

static HOST: OnceLock<Arc<Host>> = OnceLock::new();

struct SocketsHome;

impl HostHome for SocketsHome {
    fn place() -> &'static OnceLock<Arc<Host>> {
        &HOST
    }

    fn setup() -> HostSetup {
        // Calls of the host's threads are not the application's.
        HostSetup { at_thread_start: Some(guard::stay), ..HostSetup::from_environment() }
    }
}

/// The host, made by what the environment says when it is first needed.
pub fn host() -> &'static Arc<Host> {
    SocketsHome::host()
}
