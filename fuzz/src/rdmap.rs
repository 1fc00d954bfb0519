//! Any segments to RDMAP's receiver, over MPA in order, over Shuttle in any order: nothing is
//! written where the peer may not write and nothing is told that it may not read, each request
//! completes once, and a stream that has failed does nothing more.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weft_rdmap::{
    LlpKind, RdmapStream, Role, RtrMessage, RxPort, StreamConfig, StreamFault, TxPort,
};
use weft_verbs::limits::IWARP;
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{
    Access, AsyncQueue, Cq, Pd, Qp, QpCap, QpInit, QpState, QpType, RecvWr, RegionTable, SendFlags,
    SendOp, SendWr, Sge, Wake, Wc, WcOpcode, WcStatus,
};
use weft_wire::ddp::DdpHeader;
use weft_wire::llp::{Gather, Piece, Placed, UlpduSink, UlpduSource};

/// Bytes of each region, and of what lies between two.
const REGION_BYTES: usize = 256;
/// Room of each receive.
const RECEIVE_BYTES: u32 = 40;
/// What stands where the peer must not write.
const SECRET: u8 = 0xa5;
/// Segments of a message that may be ahead of those that have arrived.
const AHEAD_MAX: u64 = 15;
/// The key of the first region; the others follow.
const KEY: u32 = 0x4b45_5900;

/// The regions, by what a peer may do. Each begins, for the peer, at its number times 0x1000.
pub const OPEN: u32 = 1;
/// Read results and messages may be placed there.
pub const LOCAL: u32 = 2;
/// A peer may read it and no more.
pub const READABLE: u32 = 3;
/// Of another protection domain.
pub const FOREIGN: u32 = 4;

/// The key of a region.
pub const fn key_of(region: u32) -> u32 {
    KEY + (region << 8)
}

/// The address of a region's first byte.
pub const fn address_of(region: u32) -> u64 {
    region as u64 * 0x1000
}

/// What the first byte of the input chooses.
pub const SHUTTLE: u8 = 1;
/// This side asked for the connection.
pub const INITIATOR: u8 = 2;
/// The queue pair is of type UC, where the lower layer is Shuttle.
pub const UNRELIABLE: u8 = 4;
/// Sends complete when the peer has placed them.
pub const CONFIRM: u8 = 8;

/// A step of the input: its kind, the length of what follows in two bytes, and that.
pub const SEGMENT: u8 = 0;
/// Posts what the upper bits of the kind say.
pub const POST: u8 = 2;
/// Sends what is to be sent, and has it acknowledged.
pub const TRANSMIT: u8 = 3;

/// `data` as a choice of stream and the steps of its life.
pub fn receiver(data: &[u8]) {
    let Some((&mode, mut steps)) = data.split_first() else { return };
    let mut victim = Victim::new(mode);
    while let [kind, high, low, rest @ ..] = steps {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
        let (body, later) = rest.split_at(len);
        steps = later;
        match kind & 3 {
            POST => victim.post(kind >> 2),
            TRANSMIT => victim.transmit(),
            _ => victim.arrive(u64::from(kind >> 2) & AHEAD_MAX, body),
        }
    }
    victim.end();
}

struct Silent;

impl Wake for Silent {
    fn wake(&self) {}
}

struct Victim {
    memory: Vec<u64>,
    qp: Arc<Qp>,
    cq: Arc<Cq>,
    stream: RdmapStream,
    lower: LlpKind,
    /// Segments that have arrived and wait, by number.
    held: BTreeMap<u64, Vec<u8>>,
    /// Those from the frontier on that are placed.
    placed: BTreeSet<u64>,
    frontier: u64,
    /// Requests posted so far; the sends have even names, the receives odd ones.
    posted: [u64; 2],
    completed: [u64; 2],
}

impl Victim {
    fn new(mode: u8) -> Self {
        let lower = if mode & SHUTTLE != 0 { LlpKind::Shuttle } else { LlpKind::Mpa };
        let unreliable = mode & UNRELIABLE != 0 && lower == LlpKind::Shuttle;
        let role = if mode & INITIATOR != 0 { Role::Initiator } else { Role::Responder };
        let (pd, other) = (Arc::new(Pd::new(1)), Arc::new(Pd::new(2)));
        let regions = Arc::new(RegionTable::new());
        let words = REGION_BYTES / 8;
        let memory = vec![u64::from_ne_bytes([SECRET; 8]); words * 9];
        let rights = [
            (OPEN, Access::LOCAL_WRITE | Access::REMOTE),
            (LOCAL, Access::LOCAL_WRITE),
            (READABLE, Access::REMOTE_READ),
            (FOREIGN, Access::LOCAL_WRITE | Access::REMOTE),
        ];
        for (region, access) in rights {
            let spec = RegionSpec {
                pd: Arc::clone(if region == FOREIGN { &other } else { &pd }),
                addr: memory[words * (2 * region as usize - 1)..].as_ptr() as u64,
                len: REGION_BYTES as u64,
                iova: address_of(region),
                access,
                backing: Backing::Mapped,
            };
            assert_eq!(regions.register(&spec, || key_of(region)), Ok(key_of(region)));
        }
        let (qp, cq) = queue_pair(if unreliable { QpType::Uc } else { QpType::Rc }, &pd, regions);
        let rtr = (lower == LlpKind::Mpa).then_some(RtrMessage::Write);
        let confirm = mode & CONFIRM != 0 && !unreliable;
        let config = StreamConfig { lower, role, rtr, ird: 4, ord: 4, confirm, seed: 1 };
        let mut victim = Self {
            memory,
            qp,
            cq,
            stream: RdmapStream::new(config),
            lower,
            held: BTreeMap::new(),
            placed: BTreeSet::new(),
            frontier: 0,
            posted: [0; 2],
            completed: [0; 2],
        };
        // What the peer may read is not a secret.
        victim.region(OPEN).fill(1);
        victim.region(READABLE).fill(2);
        victim
    }

    fn region(&mut self, region: u32) -> &mut [u64] {
        let words = REGION_BYTES / 8;
        &mut self.memory[words * (2 * region as usize - 1)..][..words]
    }

    fn post(&mut self, which: u8) {
        let (to, stag) = (u64::from(which) * 8, key_of(OPEN));
        let sge =
            |region, length| Sge { addr: address_of(region) + to, length, lkey: key_of(region) };
        let op = match which % 8 {
            0..=2 => {
                let wr = RecvWr {
                    wr_id: self.posted[1] * 2 + 1,
                    sges: &[sge(LOCAL, 0), sge(LOCAL, RECEIVE_BYTES)],
                };
                self.posted[1] += u64::from(self.qp.post_recv(&wr).is_ok());
                return;
            }
            3 => SendOp::Read { to, stag },
            4 => SendOp::FetchAdd { to, stag, add: 1 },
            5 => SendOp::Write { to, stag },
            6 => SendOp::SendImm { imm: 1 },
            _ => SendOp::Send,
        };
        let sges: &[Sge] = match op {
            SendOp::FetchAdd { .. } => &[sge(LOCAL, 8)],
            SendOp::Read { .. } => &[sge(LOCAL, 16), sge(LOCAL, 8)],
            _ => &[sge(OPEN, 100)],
        };
        let wr = SendWr { wr_id: self.posted[0] * 2, op, flags: SendFlags::SIGNALED, sges };
        self.posted[0] += u64::from(self.qp.post_send(&wr).is_ok());
    }

    /// A segment arrives `ahead` of the first that is missing.
    fn arrive(&mut self, ahead: u64, ulpdu: &[u8]) {
        let ahead = if self.lower == LlpKind::Mpa { 0 } else { ahead };
        let seq = self.frontier + ahead;
        // Over MPA nothing arrives while a message waits for its receive.
        if self.placed.contains(&seq) || self.held.contains_key(&seq) {
            return self.proceed();
        }
        let tail = DdpHeader::parse(ulpdu).map_or(true, |(header, _)| header.last());
        if ahead > 0 && tail {
            self.held.insert(seq, ulpdu.to_vec());
            return;
        }
        self.place(seq, ulpdu.to_vec());
        self.proceed();
    }

    /// Offers one segment to RDMAP; it is kept if it has to wait.
    fn place(&mut self, seq: u64, ulpdu: Vec<u8>) {
        let before = self.stream.is_dead().then(|| self.memory.clone());
        let placed = RxPort::new(&mut self.stream, &self.qp, true).place(seq, &ulpdu);
        if let Some(before) = before {
            assert_eq!(placed, Ok(Placed::Dropped));
            assert!(self.memory == before, "written after the end");
        }
        match placed {
            Ok(Placed::Held | Placed::Refused) => drop(self.held.insert(seq, ulpdu)),
            Ok(_) => drop(self.placed.insert(seq)),
            Err(fault) => {
                assert!(seq == self.frontier, "what is early is not judged");
                self.fail(fault);
            }
        }
    }

    /// Delivers what is complete and offers what waits at the frontier.
    fn proceed(&mut self) {
        loop {
            while self.placed.remove(&self.frontier) {
                self.frontier += 1;
                let mut port = RxPort::new(&mut self.stream, &self.qp, true);
                assert_eq!(port.deliver(self.frontier), Ok(()));
            }
            let Some(ulpdu) = self.held.remove(&self.frontier) else { return };
            self.place(self.frontier, ulpdu);
            if !self.placed.contains(&self.frontier) {
                return;
            }
        }
    }

    fn transmit(&mut self) {
        let regions = Arc::clone(self.qp.regions());
        let public = [OPEN, READABLE].map(|region| self.region(region).as_ptr_range());
        let public = public.map(|range| range.start as u64..range.end as u64);
        loop {
            let reader = regions.reader();
            let mut out = Vec::new();
            let mut port = TxPort::new(&mut self.stream, &self.qp, self.qp.sq(), Some(&reader));
            while let Some(id) = port.next(128) {
                let mut gather = Gather::new();
                port.gather(&id, &mut gather);
                assert!(gather.len() <= 128, "longer than the lower layer takes");
                assert!(gather.pieces().iter().all(|piece| may_be_told(piece, &public)));
                out.push(id);
            }
            out.into_iter().for_each(|id| port.acked(id));
            let fault = port.into_fault();
            drop(reader);
            if let Some(fault) = fault {
                self.fail(fault);
            }
            if !self.stream.settle(&self.qp) {
                return;
            }
        }
    }

    fn fail(&mut self, fault: StreamFault) {
        self.stream.fail(&self.qp, fault);
        assert_eq!(self.qp.state(), QpState::Err);
    }

    /// What holds however it went.
    fn end(mut self) {
        self.transmit();
        self.count();
        self.fail(StreamFault::Closed);
        self.count();
        assert_eq!(self.posted, self.completed, "each request completes");
        let words = REGION_BYTES / 8;
        let between = self.memory.chunks(words).step_by(2).flatten();
        let secret = |word: &u64| *word == u64::from_ne_bytes([SECRET; 8]);
        assert!(between.into_iter().all(secret), "written outside the regions");
        assert!(self.region(FOREIGN).iter().all(secret), "another domain's memory");
        assert!(self.region(READABLE).iter().all(|word| *word == 2), "memory for reading");
    }

    fn count(&mut self) {
        let mut found = vec![Wc::default(); 256];
        let len = self.cq.poll(&mut found).expect("there is room for all");
        for wc in &found[..len] {
            let side = (wc.wr_id % 2) as usize;
            assert_eq!(wc.wr_id / 2, self.completed[side], "in order and once: {wc:?}");
            assert!(wc.status == WcStatus::Success as u32 || self.stream.is_dead());
            let message = wc.opcode == WcOpcode::Recv as u32;
            assert!(!message || wc.byte_len <= RECEIVE_BYTES, "longer than its receive");
            self.completed[side] += 1;
        }
    }
}

fn queue_pair(kind: QpType, pd: &Arc<Pd>, regions: Arc<RegionTable>) -> (Arc<Qp>, Arc<Cq>) {
    let events = AsyncQueue::new(Box::new(Silent));
    let cq = Arc::new(Cq::new(256, None, Arc::clone(&events), 1));
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 2,
        max_recv_sge: 2,
        max_inline_data: 0,
    };
    let init = QpInit {
        kind,
        start: QpState::Init,
        pd: Arc::clone(pd),
        send_cq: Arc::clone(&cq),
        recv_cq: Arc::clone(&cq),
        srq: None,
        xrcd: None,
        cap,
        sq_sig_all: true,
        cookie: 1,
    };
    let qp = Arc::new(Qp::new(7, init, &IWARP, regions, events).expect("within the limits"));
    qp.enter(QpState::Rts);
    (qp, cq)
}

/// Whether a piece of what goes out is of the regions that the peer may read, from which this
/// side's own messages are too.
fn may_be_told(piece: &Piece, public: &[Range<u64>]) -> bool {
    match piece {
        Piece::Slab { .. } => true,
        Piece::Memory(memory) => {
            let end = memory.addr + u64::from(memory.len);
            public.iter().any(|range| range.start <= memory.addr && end <= range.end)
        }
    }
}
