//! A device's objects without a device: domains, regions, queues and queue pairs.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_verbs::limits::IWARP;
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{
    Access, AsyncKind, AsyncQueue, CompChannel, Cq, Misuse, Pd, Qp, QpCap, QpInit, QpState, QpType,
    RecvWr, RegionTable, SendFlags, SendOp, SendWr, Sge, Srq, Wake, Wc, Xrcd,
};

/// Counts how often it is woken.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicUsize>);

impl Wake for Count {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bytes of each region.
pub const BYTES: u64 = 256;
/// Everything that a region may grant.
pub const ALL: Access = Access::LOCAL_WRITE.union(Access::REMOTE).union(Access::MW_BIND);

/// Memory, domains and queues of one device.
pub struct Parts {
    pub memory: Vec<u64>,
    pub pd: Arc<Pd>,
    pub other: Arc<Pd>,
    pub regions: Arc<RegionTable>,
    pub events: Arc<AsyncQueue>,
    pub channel: Arc<CompChannel>,
    pub cq: Arc<Cq>,
    pub wakes: Count,
}

pub fn parts() -> Parts {
    let wakes = Count::default();
    let events = AsyncQueue::new(Box::new(wakes.clone()));
    let channel = CompChannel::new(Box::new(wakes.clone()));
    Parts {
        memory: vec![0; BYTES as usize / 8],
        pd: Arc::new(Pd::new(1)),
        other: Arc::new(Pd::new(2)),
        regions: Arc::new(RegionTable::new()),
        cq: Arc::new(Cq::new(64, Some(Arc::clone(&channel)), Arc::clone(&events), 11)),
        channel,
        events,
        wakes,
    }
}

impl Parts {
    pub fn spec(&self, access: Access) -> RegionSpec {
        RegionSpec {
            pd: Arc::clone(&self.pd),
            addr: self.memory.as_ptr() as u64,
            len: BYTES,
            iova: 0x1000,
            access,
            backing: Backing::Mapped,
        }
    }

    /// Registers all of the memory at 0x1000 under `key`.
    pub fn region(&self, key: u32, access: Access) -> u32 {
        self.regions.register(&self.spec(access), || key).unwrap()
    }

    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let words = std::hint::black_box(&self.memory);
        words.iter().flat_map(|word| word.to_ne_bytes()).skip(at).take(len).collect()
    }

    pub fn init(&self, kind: QpType, start: QpState) -> QpInit {
        let cap = QpCap {
            max_send_wr: 4,
            max_recv_wr: 4,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 64,
        };
        QpInit {
            kind,
            start,
            pd: Arc::clone(&self.pd),
            send_cq: Arc::clone(&self.cq),
            recv_cq: Arc::clone(&self.cq),
            srq: None,
            xrcd: None,
            cap,
            sq_sig_all: true,
            cookie: 12,
        }
    }

    pub fn make(&self, init: QpInit) -> Result<Qp, Misuse> {
        Qp::new(7, init, &IWARP, Arc::clone(&self.regions), Arc::clone(&self.events))
    }

    /// A queue pair of `kind` in `state`.
    pub fn qp(&self, kind: QpType, state: QpState) -> Qp {
        self.make(self.init(kind, state)).unwrap()
    }

    pub fn srq(&self, limit: u32) -> Srq {
        Srq::new(&self.pd, 4, 2, limit, Arc::clone(&self.events), 13)
    }

    pub fn domain(&self) -> Arc<Xrcd> {
        Arc::new(Xrcd::new(Arc::new(Pd::new(9))))
    }

    pub fn poll(&self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 64];
        let count = self.cq.poll(&mut out).unwrap();
        out.truncate(count);
        out
    }

    /// Name and status of each completion.
    pub fn done(&self) -> Vec<(u64, u32)> {
        self.poll().iter().map(|wc| (wc.wr_id, wc.status)).collect()
    }

    /// Kind and cookie of each event.
    pub fn raised(&self) -> Vec<(AsyncKind, u64)> {
        std::iter::from_fn(|| self.events.pop()).map(|e| (e.kind, e.cookie)).collect()
    }
}

pub fn sge(lkey: u32, addr: u64, length: u32) -> Sge {
    Sge { addr, length, lkey }
}

pub fn send(wr_id: u64, op: SendOp, sges: &[Sge]) -> SendWr<'_> {
    SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges }
}

pub fn recv(wr_id: u64) -> RecvWr<'static> {
    RecvWr { wr_id, sges: &[] }
}
