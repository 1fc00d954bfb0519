//! Shared receive queues as the verbs ABI sees them.

use std::ops::Deref;
use std::sync::Arc;

use weft_rnic::RdmaDevice;
use weft_verbs::usage::Counted;
use weft_verbs::{AsyncQueue, Misuse, Pd, RecvWr};

use crate::cq::HostCq;
use crate::host::Host;
use crate::xrcd::HostXrcd;

/// What a shared receive queue is made of.
pub struct SrqInit {
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// Work requests that it holds.
    pub max_wr: u32,
    /// Scatter entries of each.
    pub max_sge: u32,
    /// Fewer receives than this raise an event; 0 for none.
    pub limit: u32,
    /// Names it in events.
    pub cookie: u64,
    /// The domain of extended reliable connections that it is a queue of, and where it completes.
    pub home: Option<(Arc<HostXrcd>, Arc<HostCq>)>,
}

/// A receive queue that several queue pairs take from.
pub struct HostSrq {
    inner: Arc<weft_verbs::Srq>,
    home: Option<Arc<HostXrcd>>,
    host: Arc<Host>,
    /// Which process made it, of a line of forks.
    generation: usize,
    /// Receives that the device has room for.
    max_wr: u32,
}

impl Deref for HostSrq {
    type Target = weft_verbs::Srq;

    fn deref(&self) -> &weft_verbs::Srq {
        &self.inner
    }
}

impl HostSrq {
    pub(crate) fn new(
        host: &Arc<Host>,
        init: SrqInit,
        device: &RdmaDevice,
        events: &Arc<AsyncQueue>,
    ) -> Result<Self, Misuse> {
        let limits = device.limits();
        let most = limits.max_srq_wr;
        let SrqInit { pd, max_wr, max_sge, limit, cookie, home } = init;
        if max_wr == 0 || max_wr > limits.max_srq_wr || max_sge > limits.max_srq_sge {
            return Err(Misuse::Invalid("the queue exceeds the limits of the device"));
        }
        let events = Arc::clone(events);
        let srq = weft_verbs::Srq::new(&pd, max_wr, max_sge.max(1), limit, events, cookie);
        let (host, generation) = (Arc::clone(host), host.generation());
        let Some((domain, cq)) = home else {
            return Ok(Self { inner: Arc::new(srq), home: None, host, generation, max_wr: most });
        };
        let inner = domain.take_in(srq, &cq)?;
        Ok(Self { inner, home: Some(domain), host, generation, max_wr: most })
    }

    /// Changes its capacity, or how few receives it has when the application is told.
    ///
    /// # Errors
    /// More than the device has, fewer than there are receives, or a limit above the capacity.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Misuse> {
        if max_wr.is_some_and(|max_wr| max_wr == 0 || max_wr > self.max_wr) {
            return Err(Misuse::Invalid("the queue exceeds the limits of the device"));
        }
        self.inner.modify(max_wr, limit)
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// The queue is full, the request is malformed, or the queue is the parent process's.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Misuse> {
        if self.generation != self.host.generation() {
            return Err(Misuse::Invalid("the receive queue is the parent process's"));
        }
        self.inner.post_recv(wr)
    }

    pub(crate) fn inner(&self) -> &Arc<weft_verbs::Srq> {
        &self.inner
    }

    /// Ends it, if no queue pair uses it.
    pub(crate) fn destroy(&self) -> Result<(), Misuse> {
        if self.inner.users().any() {
            return Err(Misuse::Busy);
        }
        self.inner.retire();
        if let (Some(domain), Some(number)) = (&self.home, self.inner.number()) {
            domain.let_out(number);
        }
        Ok(())
    }
}
