//! A queue pair of `weft-verbs` as SDP uses it.

use std::sync::Arc;

use weft_verbs::{Access, Misuse, Qp, RecvWr, SendFlags, SendOp, SendWr, Sge};

use crate::verbs::{Verbs, Work};

/// A queue pair, and the region that is SDP's private memory.
pub struct QueuePair {
    qp: Arc<Qp>,
    private: Sge,
}

impl QueuePair {
    /// `private` is a region with [`Access::LOCAL_WRITE`] in the protection domain of `qp`.
    pub fn new(qp: Arc<Qp>, private: Sge) -> Self {
        Self { qp, private }
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    fn sge(&self, at: u64, len: u32) -> Result<Sge, Misuse> {
        let end = at.checked_add(u64::from(len)).ok_or(Misuse::Fault)?;
        if end > u64::from(self.private.length) {
            return Err(Misuse::Fault);
        }
        Ok(Sge { addr: self.private.addr + at, length: len, lkey: self.private.lkey })
    }
}

impl Verbs for QueuePair {
    fn fill(&mut self, at: u64, octets: &[u8]) -> Result<(), Misuse> {
        let sge = self.sge(at, u32::try_from(octets.len()).map_err(|_| Misuse::Fault)?)?;
        let (regions, pd) = (self.qp.regions(), self.qp.pd());
        regions
            .write(sge.lkey, pd, sge.addr, octets, Access::LOCAL_WRITE)
            .map_err(|_| Misuse::Fault)
    }

    fn fetch(&self, at: u64, into: &mut [u8]) -> Result<(), Misuse> {
        let sge = self.sge(at, u32::try_from(into.len()).map_err(|_| Misuse::Fault)?)?;
        let (regions, pd) = (self.qp.regions(), self.qp.pd());
        regions.read(sge.lkey, pd, sge.addr, into).map_err(|_| Misuse::Fault)
    }

    fn post_recv(&mut self, work: Work, at: u64, len: u32) -> Result<(), Misuse> {
        let sges = [self.sge(at, len)?];
        self.qp.post_recv(&RecvWr { wr_id: work.to_id(), sges: &sges })
    }

    fn post_send(&mut self, work: Work, at: u64, len: u32, solicited: bool) -> Result<(), Misuse> {
        let sges = [self.sge(at, len)?];
        let event = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
        let flags = SendFlags::SIGNALED | event;
        self.qp.post_send(&SendWr { wr_id: work.to_id(), op: SendOp::Send, flags, sges: &sges })
    }
}
