//! The host of this process, for what is not handed one.

use std::sync::{Arc, OnceLock};

use weft_reactor::Reactor;

use crate::host::{Host, HostSetup};
use crate::process;

static HOST: OnceLock<Arc<Host>> = OnceLock::new();
static AT_THREAD_START: OnceLock<fn()> = OnceLock::new();

/// Has each of the engine's threads call this before anything else; the first call counts, and it
/// is to come before anything else of the engine is used.
pub fn at_thread_start(call: fn()) {
    let _first = AT_THREAD_START.set(call);
}

impl Host {
    /// The host of this process.
    pub fn get() -> &'static Arc<Self> {
        HOST.get_or_init(|| {
            process::prepare();
            let at_thread_start = AT_THREAD_START.get().copied();
            Self::new(HostSetup { at_thread_start, ..HostSetup::from_environment() })
        })
    }

    pub(crate) fn existing() -> Option<&'static Arc<Self>> {
        HOST.get()
    }
}

/// The reactor of this process.
pub struct Engine;

impl Engine {
    /// The reactor of this process.
    pub fn get() -> &'static Reactor {
        Host::get().reactor()
    }
}
