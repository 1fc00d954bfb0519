//! The only place where this crate opens anything of the engine below it.

use std::sync::Arc;

pub use weft_host::Personality as DeviceKind;
use weft_host::{Context, Host, Transport};
use weft_rdmacm::{CmId, EventChannel, PortSpace};
use weft_verbs::Wake;

use crate::{Error, Result};

/// Asynchronous events are told by completions, so nobody sleeps for them.
struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

/// Opens a device.
pub(crate) fn open(kind: DeviceKind) -> Result<Arc<Context>> {
    Context::open(Host::get(), kind, Box::new(Silent)).map_err(Error::of("opening a device"))
}

/// A queue of events of rdma-cm.
pub(crate) fn event_channel(during: &'static str) -> Result<Arc<EventChannel>> {
    EventChannel::new(Host::get()).map_err(|source| Error::System { during, source })
}

/// An id of rdma-cm for connections by a device.
pub(crate) fn cm_id(channel: &Arc<EventChannel>, kind: DeviceKind) -> Arc<CmId> {
    let transport = match kind {
        DeviceKind::Iwarp => Transport::Iwarp,
        DeviceKind::Roce => Transport::Shuttle,
    };
    CmId::new(Arc::clone(channel), PortSpace::Tcp, transport)
}
