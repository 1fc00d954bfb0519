//! Receive queues that several queue pairs take from.

use std::fmt;
use std::sync::Arc;

use weft_host::{HostSrq, SrqInit};
use weft_verbs::RecvWr;

use crate::device::{Device, ProtectionDomain};
use crate::events::ObjectId;
use crate::posted::{Kept, PostedReceives};
use crate::work::{Entries, Slices};
use crate::{Error, Result};

struct SrqInner {
    object: ObjectId,
    srq: Arc<HostSrq>,
    posted: Arc<PostedReceives>,
    domain: ProtectionDomain,
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        // Queue pairs that use it hold it, so none does any more.
        let _unused = self.domain.context().destroy_srq(&self.srq, self.object.0);
    }
}

/// A shared receive queue.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    inner: Arc<SrqInner>,
}

impl SharedReceiveQueue {
    fn new(domain: &ProtectionDomain, depth: u32, slices: u32) -> Result<Self> {
        let object = ObjectId::new();
        let init = SrqInit {
            pd: Arc::clone(domain.pd()),
            max_wr: depth,
            max_sge: slices,
            limit: 0,
            cookie: object.0,
            home: None,
        };
        let srq = domain.context().create_srq(init);
        let srq = srq.map_err(Error::of("making a shared receive queue"))?;
        // What a queue pair has taken when it is dropped is to let go of its regions.
        srq.keep_record();
        let posted = Arc::new(PostedReceives::shared(Arc::clone(&srq), depth));
        let domain = domain.clone();
        Ok(Self { inner: Arc::new(SrqInner { object, srq, posted, domain }) })
    }

    /// Posts a receive: a message of any peer comes into `slices`, and `id` names its completion.
    ///
    /// # Errors
    /// [`Error::QueueFull`]; [`Error::Invalid`] for slices of another protection domain, or too
    /// many.
    pub fn recv<'a>(&self, id: u64, slices: impl Into<Slices<'a>>) -> Result<()> {
        let during = "posting a receive";
        let slices = slices.into().0;
        let entries = Entries::new(during, &self.inner.domain, slices)?;
        self.inner.posted.post(during, id, Kept::all(slices), |wr_id| {
            let wr = RecvWr { wr_id, sges: entries.as_slice() };
            self.inner.srq.post_recv(&wr).map_err(Error::of(during))
        })
    }

    /// What events of the device name it by.
    pub fn object_id(&self) -> ObjectId {
        self.inner.object
    }

    pub(crate) fn engine(&self) -> &Arc<HostSrq> {
        &self.inner.srq
    }

    /// The device that it is one of.
    pub(crate) fn device(&self) -> &Device {
        self.inner.domain.device()
    }

    pub(crate) fn posted(&self) -> &Arc<PostedReceives> {
        &self.inner.posted
    }
}

impl ProtectionDomain {
    /// Makes a receive queue for several queue pairs, of `depth` requests of up to `slices` slices.
    /// A request keeps its place until its completion was taken, whichever queue it is in.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it exceeds the limits of the device.
    pub fn shared_receive_queue(&self, depth: u32, slices: u32) -> Result<SharedReceiveQueue> {
        SharedReceiveQueue::new(self, depth, slices)
    }
}

impl fmt::Debug for SharedReceiveQueue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("SharedReceiveQueue").finish_non_exhaustive()
    }
}
