//! Two ends of a stream in memory, without a lower layer, and segments made by hand.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::sync::Arc;

use weft_rdmap::{LlpKind, RdmapStream, Role, RxPort, StreamConfig, StreamFault, TxPort};
use weft_verbs::limits::IWARP;
use weft_verbs::mr::{Backing, RegionSpec, WindowKind};
use weft_verbs::{
    Access, AsyncKind, AsyncQueue, Cq, Pd, Qp, QpCap, QpInit, QpState, QpType, RecvWr, RegionTable,
    SendFlags, SendOp, SendWr, Sge, Srq, Wake, Wc, WcOpcode, WcStatus,
};
use weft_wire::ddp::{TaggedHeader, UntaggedHeader};
use weft_wire::ids::{Msn, STag};
use weft_wire::llp::{Gather, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource};
use weft_wire::rdmap::Opcode;

/// Bytes of each region.
pub const REGION_BYTES: usize = 1024;
/// The largest ULPDU unless a test says otherwise.
pub const MULPDU: u16 = 128;

/// A region that the peer may do anything with.
pub const OPEN: u32 = 1;
/// One for this side alone.
pub const LOCAL: u32 = 2;
/// One that the peer may read and nobody may write.
pub const READABLE: u32 = 3;
/// One of another protection domain.
pub const FOREIGN: u32 = 4;

const REGIONS: [(u32, Access); 4] = [
    (OPEN, Access::LOCAL_WRITE.union(Access::REMOTE).union(Access::MW_BIND)),
    (LOCAL, Access::LOCAL_WRITE),
    (READABLE, Access::REMOTE_READ),
    (FOREIGN, Access::LOCAL_WRITE.union(Access::REMOTE)),
];

/// The key of a region.
pub const fn key(region: u32) -> u32 {
    0x4b45_5900 + (region << 8)
}

/// The address of a region's byte.
pub const fn at(region: u32, offset: u64) -> u64 {
    region as u64 * 0x10000 + offset
}

pub const fn sge(region: u32, offset: u64, length: u32) -> Sge {
    Sge { addr: at(region, offset), length, lkey: key(region) }
}

struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

/// A plain configuration of this end.
pub fn config(lower: LlpKind, role: Role) -> StreamConfig {
    StreamConfig { lower, role, rtr: None, ird: 4, ord: 4, confirm: false, seed: 1 }
}

/// One end: its memory, its queue pair and its stream.
pub struct End {
    memory: Vec<Vec<u64>>,
    pub pd: Arc<Pd>,
    pub qp: Arc<Qp>,
    pub cq: Arc<Cq>,
    pub events: Arc<AsyncQueue>,
    pub stream: RdmapStream,
    pub frontier: u64,
    /// Segments that went out and are not acknowledged, and whether that waits for the test.
    pub unacked: Vec<SegmentId>,
    pub holds_acks: bool,
    /// Messages wait for their receives.
    pub holds_unmatched: bool,
    posted: u64,
}

impl End {
    pub fn new(config: StreamConfig) -> Self {
        Self::of_kind(config, QpType::Rc)
    }

    pub fn of_kind(config: StreamConfig, kind: QpType) -> Self {
        Self::with(config, kind, |_, _| None)
    }

    /// Whose receives are those of a shared queue.
    pub fn sharing_receives(config: StreamConfig) -> (Self, Arc<Srq>) {
        let mut shared = None;
        let end = Self::with(config, QpType::Rc, |pd, events| {
            shared = Some(Arc::new(Srq::new(pd, 64, 3, 0, Arc::clone(events), 3)));
            shared.clone()
        });
        (end, shared.unwrap())
    }

    fn with(
        config: StreamConfig,
        kind: QpType,
        srq: impl FnOnce(&Arc<Pd>, &Arc<AsyncQueue>) -> Option<Arc<Srq>>,
    ) -> Self {
        let (pd, other) = (Arc::new(Pd::new(1)), Arc::new(Pd::new(2)));
        let regions = Arc::new(RegionTable::new());
        let memory: Vec<_> = REGIONS.iter().map(|_| vec![0_u64; REGION_BYTES / 8]).collect();
        for ((region, access), memory) in REGIONS.into_iter().zip(&memory) {
            let spec = RegionSpec {
                pd: Arc::clone(if region == FOREIGN { &other } else { &pd }),
                addr: memory.as_ptr() as u64,
                len: REGION_BYTES as u64,
                iova: at(region, 0),
                access,
                backing: Backing::Mapped,
            };
            assert_eq!(regions.register(&spec, || key(region)), Ok(key(region)));
        }
        let events = AsyncQueue::new(Box::new(Silent));
        let cq = Arc::new(Cq::new(256, None, Arc::clone(&events), 1));
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 3,
            max_recv_sge: 3,
            max_inline_data: 64,
        };
        let init = QpInit {
            kind,
            start: QpState::Init,
            pd: Arc::clone(&pd),
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: srq(&pd, &events),
            xrcd: None,
            cap,
            sq_sig_all: true,
            cookie: 2,
        };
        let qp = Qp::new(7, init, &IWARP, regions, Arc::clone(&events)).unwrap();
        qp.enter(QpState::Rts);
        Self {
            memory,
            pd,
            qp: Arc::new(qp),
            cq,
            events,
            stream: RdmapStream::new(config),
            frontier: 0,
            unacked: Vec::new(),
            holds_acks: false,
            holds_unmatched: false,
            posted: 0,
        }
    }

    /// A memory window that is not bound.
    pub fn window(&self) -> u32 {
        self.qp.regions().allocate_window(&self.pd, WindowKind::Type2, || 0x7700_0000)
    }

    /// Where a region's bytes are for this process, as inline requests name them.
    pub fn inline(&self, region: u32, offset: u64, length: u32) -> Sge {
        let addr = self.memory[region as usize - 1].as_ptr() as u64 + offset;
        Sge { addr, length, lkey: 0 }
    }

    /// Fills `bytes` into a region.
    pub fn fill(&mut self, region: u32, offset: u64, bytes: &[u8]) {
        let mut all = self.bytes(region);
        all[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        let words = all.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap()));
        let memory = &mut self.memory[region as usize - 1];
        memory.iter_mut().zip(words).for_each(|(to, from)| *to = from);
    }

    /// What a region holds.
    pub fn bytes(&self, region: u32) -> Vec<u8> {
        let words = std::hint::black_box(&self.memory[region as usize - 1]);
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    pub fn bytes_at(&self, region: u32, offset: u64, len: usize) -> Vec<u8> {
        self.bytes(region)[offset as usize..][..len].to_vec()
    }

    /// Posts a request, named by how many there were before.
    pub fn post_with(&mut self, op: SendOp, flags: SendFlags, sges: &[Sge]) -> u64 {
        let wr_id = self.posted;
        self.qp.post_send(&SendWr { wr_id, op, flags, sges }).unwrap();
        self.posted += 1;
        wr_id
    }

    pub fn post(&mut self, op: SendOp, sges: &[Sge]) -> u64 {
        self.post_with(op, SendFlags::SIGNALED, sges)
    }

    /// Posts a receive named `wr_id`.
    pub fn recv(&mut self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    /// The segments that go out now.
    pub fn transmit(&mut self) -> Vec<Vec<u8>> {
        self.transmit_in(MULPDU)
    }

    pub fn transmit_in(&mut self, mulpdu: u16) -> Vec<Vec<u8>> {
        let regions = Arc::clone(self.qp.regions());
        let mut sent = Vec::new();
        loop {
            let reader = regions.reader();
            let mut port = TxPort::new(&mut self.stream, &self.qp, self.qp.sq(), Some(&reader));
            while let Some(id) = port.next(mulpdu) {
                let mut gather = Gather::new();
                port.gather(&id, &mut gather);
                let mut ulpdu = Vec::new();
                for piece in gather.pieces() {
                    match *piece {
                        Piece::Slab { start, len } => ulpdu.extend(gather.staged(start, len)),
                        Piece::Memory(piece) => reader.copy_to(piece, &mut ulpdu),
                    }
                }
                assert!(ulpdu.len() <= usize::from(mulpdu));
                sent.push(ulpdu);
                self.unacked.push(id);
            }
            if !self.holds_acks {
                self.unacked.drain(..).for_each(|id| port.acked(id));
            }
            let fault = port.into_fault();
            drop(reader);
            if let Some(fault) = fault {
                self.stream.fail(&self.qp, fault);
            } else if !self.stream.settle(&self.qp) {
                return sent;
            }
        }
    }

    /// The peer has everything that went out.
    pub fn ack(&mut self) {
        let mut port = TxPort::new(&mut self.stream, &self.qp, self.qp.sq(), None);
        self.unacked.drain(..).for_each(|id| port.acked(id));
    }

    /// A segment arrives in order.
    pub fn receive(&mut self, ulpdu: &[u8]) -> Result<Placed, StreamFault> {
        let placed = self.receive_at(self.frontier, ulpdu)?;
        if !matches!(placed, Placed::Held | Placed::Refused) {
            self.deliver(self.frontier + 1);
        }
        Ok(placed)
    }

    /// Segments arrive in order, none of which is refused.
    pub fn receive_all(&mut self, sent: &[Vec<u8>]) {
        for ulpdu in sent {
            self.receive(ulpdu).unwrap();
        }
    }

    /// Segment `seq` arrives; what is wrong with it fails the stream.
    pub fn receive_at(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, StreamFault> {
        let mut port = RxPort::new(&mut self.stream, &self.qp, self.holds_unmatched);
        let placed = port.place(seq, ulpdu);
        if let Err(fault) = &placed {
            self.stream.fail(&self.qp, *fault);
        }
        placed
    }

    /// Every segment before `frontier` is placed.
    pub fn deliver(&mut self, frontier: u64) {
        self.frontier = frontier;
        let mut port = RxPort::new(&mut self.stream, &self.qp, self.holds_unmatched);
        assert_eq!(port.deliver(frontier), Ok(()));
    }

    pub fn done(&self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 256];
        let count = self.cq.poll(&mut out).unwrap();
        out.truncate(count);
        out
    }

    /// Name, status and opcode of each completion.
    pub fn outcomes(&self) -> Vec<(u64, WcStatus)> {
        let name = |status| ALL_STATUSES.into_iter().find(|s| *s as u32 == status).unwrap();
        self.done().iter().map(|wc| (wc.wr_id, name(wc.status))).collect()
    }

    pub fn raised(&self) -> Vec<AsyncKind> {
        std::iter::from_fn(|| self.events.pop()).map(|event| event.kind).collect()
    }
}

const ALL_STATUSES: [WcStatus; 11] = [
    WcStatus::Success,
    WcStatus::LocLenErr,
    WcStatus::LocQpOpErr,
    WcStatus::LocProtErr,
    WcStatus::WrFlushErr,
    WcStatus::MwBindErr,
    WcStatus::RemInvReqErr,
    WcStatus::RemAccessErr,
    WcStatus::RemOpErr,
    WcStatus::RetryExcErr,
    WcStatus::RnrRetryExcErr,
];

/// Carries segments in order until nobody has any; nothing may be refused.
pub fn exchange(ends: &mut [End; 2]) {
    loop {
        let mut moved = false;
        for from in 0..2 {
            for ulpdu in ends[from].transmit() {
                moved = true;
                ends[1 - from].receive(&ulpdu).unwrap();
            }
        }
        if !moved {
            return;
        }
    }
}

/// Two ends over `lower` that know each other.
pub fn pair(lower: LlpKind) -> [End; 2] {
    pair_of(|role| config(lower, role))
}

pub fn pair_of(config: impl Fn(Role) -> StreamConfig) -> [End; 2] {
    let mut ends = [Role::Initiator, Role::Responder].map(|role| End::new(config(role)));
    ends[0].stream.nudge();
    exchange(&mut ends);
    ends
}

/// A tagged segment.
pub fn tagged(opcode: Opcode, last: bool, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = TaggedHeader { last, control: opcode.control(), stag: STag(stag), to };
    [&header.to_bytes()[..], payload].concat()
}

/// An untagged segment; `(msn, mo, last)` is its place.
pub fn untagged(opcode: Opcode, (msn, mo, last): (u32, u32, bool), payload: &[u8]) -> Vec<u8> {
    queued(opcode, opcode.queue().unwrap(), 0, (msn, mo, last), payload)
}

/// The same with a queue and a ULP field of its own.
pub fn queued(
    opcode: Opcode,
    qn: u32,
    ulp: u32,
    (msn, mo, last): (u32, u32, bool),
    payload: &[u8],
) -> Vec<u8> {
    let header = UntaggedHeader { last, control: opcode.control(), ulp, qn, msn: Msn(msn), mo };
    [&header.to_bytes()[..], payload].concat()
}

/// A completion in the fields that a message has.
pub fn of_message(wc: &Wc) -> (u64, u32, u32, u32, u32) {
    assert_eq!(wc.status, WcStatus::Success as u32);
    (wc.wr_id, wc.opcode, wc.byte_len, wc.imm_data, wc.wc_flags)
}

pub const RECV: u32 = WcOpcode::Recv as u32;
