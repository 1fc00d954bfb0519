//! An open device.
//!
//! [`memory`] has what is registered with it.

pub(crate) mod memory;

use std::sync::{Arc, OnceLock};

use weft_fault::Verb;
use weft_net::refused;
use weft_os::{clock, random};
use weft_rnic::Device;
use weft_verbs::{AsyncEvent, AsyncQueue, CompChannel, Limits, Misuse, Pd, Wake};

use crate::cq::Cq;
use crate::device_kind::Personality;
use crate::engine::Engine;
use crate::faults::refuse;
use crate::qp::{Qp, QpInit};
use crate::srq::{Srq, SrqInit};
use crate::tally::Tally;
use crate::xrcd::{Xrcd, XrcdFile};

/// The one device of this process that looks like this.
fn device(personality: Personality) -> &'static Arc<Device> {
    static DEVICES: [OnceLock<Arc<Device>>; 2] = [OnceLock::new(), OnceLock::new()];
    DEVICES[personality as usize]
        .get_or_init(|| Arc::new(Device::new(personality.limits(), Box::new(random::random))))
}

/// A device as one opener sees it: the objects are the device's, the events its own.
pub struct Context {
    personality: Personality,
    device: Arc<Device>,
    events: Arc<AsyncQueue>,
}

impl Context {
    /// Opens a device. `wake` is called once for each asynchronous event.
    ///
    /// # Errors
    /// If the system has no descriptor or thread left for the engine.
    pub fn open(personality: Personality, wake: Box<dyn Wake>) -> Result<Arc<Self>, Misuse> {
        Engine::start().map_err(refused)?;
        Tally::note_context(personality);
        let device = Arc::clone(device(personality));
        Ok(Arc::new(Self { personality, device, events: AsyncQueue::new(wake) }))
    }

    /// What the device looks like.
    pub fn personality(&self) -> Personality {
        self.personality
    }

    /// What the device can hold.
    pub fn limits(&self) -> &'static Limits {
        self.device.limits()
    }

    /// Takes the oldest asynchronous event.
    pub fn poll_async(&self) -> Option<AsyncEvent> {
        self.events.pop()
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
    ) -> Result<Arc<Cq>, Misuse> {
        self.create_stamped_cq(cqe, channel, cookie, false)
    }

    /// The same; if it is `stamped`, it notes when each completion was added.
    pub fn create_stamped_cq(
        &self,
        cqe: u32,
        channel: Option<Arc<CompChannel>>,
        cookie: u64,
        stamped: bool,
    ) -> Result<Arc<Cq>, Misuse> {
        refuse(Verb::CreateCq)?;
        let max = self.limits().max_cqe;
        if cqe == 0 || cqe > max {
            return Err(Misuse::Invalid("the completion queue exceeds the limits of the device"));
        }
        let cq = weft_verbs::Cq::new(cqe, channel, Arc::clone(&self.events), cookie);
        let clock = stamped.then_some(clock::ticks_ns as fn() -> u64);
        Ok(Cq::new(cq.with_clock(clock), max))
    }

    /// Makes a shared receive queue.
    pub fn create_srq(&self, init: SrqInit) -> Result<Arc<Srq>, Misuse> {
        refuse(Verb::CreateSrq)?;
        Ok(Arc::new(Srq::new(init, &self.device, &self.events)?))
    }

    /// Ends a shared receive queue that nothing uses; gives how many of its events were announced
    /// and not taken.
    pub fn destroy_srq(&self, srq: &Srq, cookie: u64) -> Result<usize, Misuse> {
        srq.destroy()?;
        Ok(self.events.forget(cookie))
    }

    /// Opens a domain of extended reliable connections, of its own or the one of a file.
    ///
    /// # Errors
    /// [`Misuse::Unsupported`] where a device has none, or another process has that of the file.
    pub fn open_xrcd(&self, file: Option<XrcdFile>) -> Result<Arc<Xrcd>, Misuse> {
        if self.personality == Personality::Iwarp {
            return Err(Misuse::Unsupported("extended reliable connections"));
        }
        Xrcd::open(&self.device, self.create_cq(1, None, 0)?, file)
    }

    /// Makes a queue pair.
    pub fn create_qp(&self, init: QpInit) -> Result<Arc<Qp>, Misuse> {
        refuse(Verb::CreateQp)?;
        // Of the child of a fork it may be the first call.
        Engine::start().map_err(refused)?;
        Ok(Arc::new(Qp::new(self.personality, &self.device, init, &self.events)?))
    }
}
