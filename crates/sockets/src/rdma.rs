//! The host of this process, as RDMA sees it.

use std::sync::Arc;

use weft_host::{Host, HostHome, HostPlace, HostSetup};
use weft_os::{last_thread, stderr};

use crate::{guard, sys};

static HOST: HostPlace = HostPlace::new();

struct SocketsHome;

impl HostHome for SocketsHome {
    fn place() -> &'static HostPlace {
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

weft_os::at_load!(follow_process);

/// The library was loaded, by the first thread of the process.
extern "C" fn follow_process() {
    SocketsHome::follow_forks();
    if sys::ends(libc::STDERR_FILENO).is_none() {
        stderr::permit();
    }
    last_thread::end_with_application();
}
