//! Weft's devices without its libraries: the same names as in `verbs`, over [`weft_host`] and
//! [`weft_rdmacm`] in this process.
//!
//! It is for the static program, which can open no library. Order and invariant are those of
//! `verbs`; a queue pair also keeps its id, and all of them the host of the process, which the
//! environment describes as it does under `libweft.so`.

mod cm;
mod domain;
mod queue_pair;
mod region;
mod stderr;
#[cfg(test)]
mod tests;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use weft_host::{Host, HostHome, HostPlace};
use weft_os::semaphore;
use weft_verbs::Wake;

pub use cm::{HostCm as Cm, HostCmId as OwnedCmId};
pub use domain::HostDomain as VerbsDomain;
pub use queue_pair::HostQueuePair as PerfQueuePair;
pub use region::HostRegion as PerfRegion;

/// The process's host; the only static of this module.
static HOST: HostPlace = HostPlace::new();

struct PerfHome;

impl HostHome for PerfHome {
    fn place() -> &'static HostPlace {
        &HOST
    }
}

/// The host as the environment says. What goes wrong in it is said on stderr from here on.
fn host() -> &'static Arc<Host> {
    stderr::write_log();
    PerfHome::host()
}

/// Checks that there is a device of this name.
///
/// # Errors
/// There is none; the message names those that there are.
pub fn check_device(name: &str) -> Result<()> {
    let devices = host().devices();
    let names: Vec<&str> = devices.visible().iter().map(|id| devices.name(*id)).collect();
    if names.contains(&name) {
        return Ok(());
    }
    bail!("there is no device {name} here; there are {}", names.join(", "))
}

/// Counts events in a descriptor that is readable while there are any.
struct EventBell(Arc<OwnedFd>);

impl EventBell {
    fn new() -> Result<Self> {
        let fd = semaphore::open().context("opening a descriptor for events")?;
        Ok(Self(Arc::new(fd)))
    }

    /// What rings it.
    fn wake(&self) -> Box<dyn Wake> {
        Box::new(Self(Arc::clone(&self.0)))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Takes one event; sleeps until there is one.
    fn take(&self) -> Result<()> {
        semaphore::take(self.0.as_raw_fd()).context("waiting for an event")
    }
}

impl Wake for EventBell {
    fn wake(&self) {
        semaphore::put(self.fd());
    }
}
