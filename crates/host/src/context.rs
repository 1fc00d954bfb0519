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
use crate::faults::{DeviceWatch, Tamper};
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
    /// What is to become of the device.
    watch: Option<Arc<DeviceWatch>>,
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
        host.refuse(Verb::OpenDevice, id)?;
        host.publish();
        if let Some(tally) = host.tally() {
            tally.note_context(id);
        }
        let (host, device) = (Arc::clone(host), Arc::clone(host.adapter(id)));
        let events = AsyncQueue::new(wake);
        let watch = watch(&host, id, &events)?;
        if let Some(tamper) = host.faults().and_then(|faults| Tamper::of(faults, id)) {
            device.regions().set_tamper(Box::new(move |bytes| tamper.bit(bytes)));
        }
        Ok(Arc::new(Self { host, id, device, events, watch }))
    }

    /// Whether its device can still be used: after a reset only a context that is opened then can.
    ///
    /// # Errors
    /// `EIO`, which every command of the context fails with from then on.
    pub fn check_device(&self) -> Result<(), Misuse> {
        match &self.watch {
            Some(watch) if watch.is_gone() => Err(Misuse::System(libc::EIO)),
            _ => Ok(()),
        }
    }

    /// Fails a call that is to fail, or any once the device is gone.
    ///
    /// # Errors
    /// That of the plan, or `EIO`.
    pub fn refuse(&self, verb: Verb) -> Result<(), Misuse> {
        self.check_device()?;
        self.host.refuse(verb, self.id)
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
        self.refuse(Verb::CreateCq)?;
        let max = self.limits().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(Misuse::Invalid("the completion queue exceeds the limits of the device"));
        }
        let cq = weft_verbs::Cq::new(cqe, channel, Arc::clone(&self.events), cookie);
        let clock = stamped.then_some(clock::ticks_ns as fn() -> u64);
        Ok(HostCq::new(&self.host, self.id, cq.with_clock(clock), max))
    }

    /// Makes a shared receive queue.
    pub fn create_srq(&self, init: SrqInit) -> Result<Arc<HostSrq>, Misuse> {
        self.refuse(Verb::CreateSrq)?;
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
        self.refuse(Verb::CreateQp)?;
        // Of the child of a fork it may be the first call.
        self.host.start().map_err(refused)?;
        self.host.publish();
        let qp = HostQp::new(&self.host, self.id, &self.device, init, &self.events)?;
        Ok(Arc::new(qp.watched(self.watch.as_ref())))
    }
}

/// What tells a context that is opened now what its device does, if anything is planned.
fn watch(
    host: &Arc<Host>,
    id: DeviceId,
    events: &Arc<AsyncQueue>,
) -> Result<Option<Arc<DeviceWatch>>, Misuse> {
    let Some(faults) = host.faults() else { return Ok(None) };
    let counter = Arc::downgrade(host);
    let rows = move || counter.upgrade().map_or(0, |host| host.gid_rows(id));
    DeviceWatch::begin(faults, id, host.reactor(), Box::new(rows), events)
}
