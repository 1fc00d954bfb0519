//! The host, and the only place where this crate opens anything of the engine below it.

use std::fmt;
use std::sync::{Arc, OnceLock};

pub use weft_host::Personality as DeviceKind;
use weft_host::{Context, Host, HostHome, Transport};
use weft_rdmacm::{CmId, EventChannel, PortSpace};
use weft_verbs::Wake;

use crate::{Error, Result};

/// Asynchronous events are told by completions, so nobody sleeps for them.
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

static HOST: OnceLock<Arc<Host>> = OnceLock::new();

/// Follows the forks and the exit of the process.
struct ProcessHome;

impl HostHome for ProcessHome {
    fn place() -> &'static OnceLock<Arc<Host>> {
        &HOST
    }
}

/// One machine as RDMA sees it: settings, keys, and the threads that work for its devices.
#[derive(Clone)]
pub struct LocalHost {
    inner: Arc<Host>,
}

impl LocalHost {
    /// The host of this process, as its environment says: `WEFT_KEY`, `WEFT_INSECURE`,
    /// `WEFT_THREADS` and the other variables of Weft, which are read once.
    pub fn from_environment() -> Self {
        Self { inner: Arc::clone(ProcessHome::host()) }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Opens a device.
    pub(crate) fn open(&self, kind: DeviceKind) -> Result<Arc<Context>> {
        let context = Context::open(&self.inner, kind, Box::new(Silent));
        context.map_err(Error::of("opening a device"))
    }

    /// A queue of events of rdma-cm.
    pub(crate) fn event_channel(&self, during: &'static str) -> Result<Arc<EventChannel>> {
        EventChannel::new(&self.inner).map_err(|source| Error::System { during, source })
    }
}

impl fmt::Debug for LocalHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LocalHost").finish_non_exhaustive()
    }
}

/// An id of rdma-cm for connections by a device.
pub(crate) fn cm_id(channel: &Arc<EventChannel>, kind: DeviceKind) -> Arc<CmId> {
    let transport = match kind {
        DeviceKind::Iwarp => Transport::Iwarp,
        DeviceKind::Roce => Transport::Shuttle,
    };
    CmId::new(Arc::clone(channel), PortSpace::Tcp, transport)
}
