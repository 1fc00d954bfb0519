//! An open device.
//!
//! [`memory`] has what is registered with it.

pub(crate) mod memory;

use std::sync::Arc;

use weft_fault::Verb;
use weft_net::refused;
use weft_os::clock;
use weft_rnic::RdmaDevice;
use weft_verbs::{AsyncEvent, AsyncQueue, CompChannel, Limits, Misuse, Pd, Wake};

use crate::cq::HostCq;
use crate::device_kind::{DeviceId, DeviceKind};
use crate::faults::PortWatch;
use crate::host::Host;
use crate::qp::{HostQp, HostQpInit};
use crate::srq::{HostSrq, SrqInit};
use crate::xrcd::{HostXrcd, XrcdFile};

/// A device as one opener sees it: the objects are the device's, the events its own.
pub struct Context {
    host: Arc<Host>,
    id: DeviceId,
    device: Arc<RdmaDevice>,
    events: Arc<AsyncQueue>,
    /// Its timers, if the port is to go down.
    _port_watch: Option<Arc<PortWatch>>,
}

impl Context {
    /// Opens a device of `host`, of a kind the first one. `wake` is called once for each
    /// asynchronous event.
    ///
    /// # Errors
    /// If the system has no descriptor or thread left for the engine.
    pub fn open(
        host: &Arc<Host>,
        id: impl Into<DeviceId>,
        wake: Box<dyn Wake>,
    ) -> Result<Arc<Self>, Misuse> {
        let id = id.into();
        host.start().map_err(refused)?;
        host.publish();
        if let Some(tally) = host.tally() {
            tally.note_context(id);
        }
        let (host, device) = (Arc::clone(host), Arc::clone(host.adapter(id)));
        let events = AsyncQueue::new(wake);
        let port_watch = host
            .faults()
            .and_then(|faults| PortWatch::begin(faults.outages(), host.reactor(), &events));
        Ok(Arc::new(Self { host, id, device, events, _port_watch: port_watch }))
    }

    /// Which device it is.
    pub fn id(&self) -> DeviceId {
        self.id
    }

    /// What the device looks like.
    pub fn personality(&self) -> DeviceKind {
        self.id.kind
    }

    /// What the device can hold.
    pub fn limits(&self) -> &'static Limits {
        self.device.limits()
    }

    /// Takes the oldest asynchronous event.
    pub fn poll_async(&self) -> Option<AsyncEvent> {
        let event = self.events.pop()?;
        self.host.events().note_async(&event);
        Some(event)
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Arc<Pd> {
        self.device.alloc_pd()
    }

    /// Ends a protection domain that nothing uses.
    pub fn dealloc_pd(&self, pd: &Pd) -> Result<(), Misuse> {
        self.device.dealloc_pd(pd)
    }

    /// Makes a completion queue for `cqe` entries; `cookie` names it in events.
    pub fn create_cq(
        &self,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
        cookie: u64,
    ) -> Result<Arc<HostCq>, Misuse> {
        self.create_stamped_cq(cqe, channel, cookie, false)
    }

    /// The same; if it is `stamped`, it notes when each completion was added.
    pub fn create_stamped_cq(
        &self,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
        cookie: u64,
        stamped: bool,
    ) -> Result<Arc<HostCq>, Misuse> {
        self.host.refuse(Verb::CreateCq)?;
        let max = self.limits().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(Misuse::Invalid("the completion queue exceeds the limits of the device"));
        }
        let cq = weft_verbs::Cq::new(cqe, channel, Arc::clone(&self.events), cookie);
        let clock = stamped.then_some(clock::ticks_ns as fn() -> u64);
        Ok(HostCq::new(&self.host, cq.with_clock(clock), max))
    }

    /// Makes a shared receive queue.
    pub fn create_srq(&self, init: SrqInit) -> Result<Arc<HostSrq>, Misuse> {
        self.host.refuse(Verb::CreateSrq)?;
        Ok(Arc::new(HostSrq::new(&self.host, init, &self.device, &self.events)?))
    }

    /// Ends a shared receive queue that nothing uses; gives how many of its events were announced
    /// and not taken.
    pub fn destroy_srq(&self, srq: &HostSrq, cookie: u64) -> Result<usize, Misuse> {
        srq.destroy()?;
        Ok(self.events.forget(cookie))
    }

    /// Opens a domain of extended reliable connections, of its own or the one of a file.
    ///
    /// # Errors
    /// [`Misuse::Unsupported`] where a device has none, or another process has that of the file.
    pub fn open_xrcd(&self, file: Option<XrcdFile>) -> Result<Arc<HostXrcd>, Misuse> {
        if self.id.kind == DeviceKind::Iwarp {
            return Err(Misuse::Unsupported("extended reliable connections"));
        }
        HostXrcd::open(&self.host, (self.id, &self.device), self.create_cq(1, None, 0)?, file)
    }

    /// Makes a queue pair.
    pub fn create_qp(&self, init: HostQpInit) -> Result<Arc<HostQp>, Misuse> {
        self.host.refuse(Verb::CreateQp)?;
        // Of the child of a fork it may be the first call.
        self.host.start().map_err(refused)?;
        self.host.publish();
        Ok(Arc::new(HostQp::new(&self.host, self.id, &self.device, init, &self.events)?))
    }
}
