//! Adapter of a `weft-verbs` queue pair for SDP.

use std::sync::Arc;

use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{Access, Misuse, Pd, Qp, RecvWr, SendFlags, SendOp, SendWr, Sge};
use weft_wire::sdp::Advert;

use crate::verbs::{AppMemory, SdpWork, Verbs};

/// Source of unpredictable bits for keys.
pub type KeyEntropy = Box<dyn FnMut() -> u32 + Send>;

/// A queue pair, and the region that is SDP's private memory.
pub struct SdpQueuePair {
    qp: Arc<Qp>,
    pd: Arc<Pd>,
    private: Sge,
    entropy: KeyEntropy,
}

impl SdpQueuePair {
    /// `private` is a region with [`Access::LOCAL_WRITE`] in `pd`, the protection domain of `qp`.
    pub fn new(qp: Arc<Qp>, pd: Arc<Pd>, private: Sge, entropy: KeyEntropy) -> Self {
        Self { qp, pd, private, entropy }
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

impl Verbs for SdpQueuePair {
    fn fill(&mut self, at: u64, octets: &[u8]) -> Result<(), Misuse> {
        let sge = self.sge(at, u32::try_from(octets.len()).map_err(|_| Misuse::Fault)?)?;
        let (regions, pd) = (self.qp.regions(), self.qp.pd());
        regions
            .write(sge.lkey, pd, sge.addr, octets, Access::LOCAL_WRITE)
            .map(drop)
            .map_err(|_| Misuse::Fault)
    }

    fn fetch(&self, at: u64, into: &mut [u8]) -> Result<(), Misuse> {
        let sge = self.sge(at, u32::try_from(into.len()).map_err(|_| Misuse::Fault)?)?;
        let (regions, pd) = (self.qp.regions(), self.qp.pd());
        regions.read(sge.lkey, pd, sge.addr, into).map_err(|_| Misuse::Fault)
    }

    fn post_recv(&mut self, work: SdpWork, at: u64, len: u32) -> Result<(), Misuse> {
        let sges = [self.sge(at, len)?];
        self.qp.post_recv(&RecvWr { wr_id: work.to_id(), sges: &sges })
    }

    fn post_send(
        &mut self,
        work: SdpWork,
        at: u64,
        len: u32,
        tail: Option<AppMemory>,
        solicited: bool,
    ) -> Result<(), Misuse> {
        let sges = [self.sge(at, len)?, tail.map_or_else(Sge::default, sge)];
        let sges = if tail.is_some() { &sges[..] } else { &sges[..1] };
        let event = if solicited { SendFlags::SOLICITED } else { SendFlags::empty() };
        let flags = SendFlags::SIGNALED | event;
        self.qp.post_send(&SendWr { wr_id: work.to_id(), op: SendOp::Send, flags, sges })
    }

    fn post_read(&mut self, work: SdpWork, into: AppMemory, from: Advert) -> Result<(), Misuse> {
        let op = SendOp::Read { to: from.addr, stag: from.rkey };
        let sges = [sge(AppMemory { len: from.size, ..into })];
        let flags = SendFlags::SIGNALED;
        self.qp.post_send(&SendWr { wr_id: work.to_id(), op, flags, sges: &sges })
    }

    fn post_write(&mut self, work: SdpWork, from: AppMemory, to: Advert) -> Result<(), Misuse> {
        let op = SendOp::Write { to: to.addr, stag: to.rkey };
        let sges = [sge(AppMemory { len: to.size, ..from })];
        let flags = SendFlags::SIGNALED;
        self.qp.post_send(&SendWr { wr_id: work.to_id(), op, flags, sges: &sges })
    }

    fn register(&mut self, addr: u64, len: u32, written: bool) -> Result<u32, Misuse> {
        // An RNIC takes what it reads as a write of the peer's (RFC 5040, section 5.2.1).
        let into = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let spec = RegionSpec {
            pd: Arc::clone(&self.pd),
            addr,
            len: u64::from(len),
            iova: addr,
            access: if written { into } else { Access::REMOTE_READ },
            backing: Backing::Mapped,
        };
        self.qp.regions().register(&spec, &mut self.entropy)
    }

    fn deregister(&mut self, key: u32) {
        // A key that is unknown is as good as ended.
        let _ = self.qp.regions().deregister(key);
    }
}

fn sge(memory: AppMemory) -> Sge {
    Sge { addr: memory.addr, length: memory.len, lkey: memory.key }
}
