//! Endpoints without sockets: one side as an application sees it, and frames made by hand.
#![allow(dead_code)]

pub mod player;
pub mod shuttle;
pub mod ud;

use std::ops::Deref;
use std::sync::Arc;

use weft_rnic::mpa::{Agreed, MpaRole, Rtr};
use weft_rnic::wire::crc::Crc32c;
use weft_rnic::wire::llp::{Piece, RegisteredMemory};
use weft_rnic::wire::terminate::{Terminate, TerminatePhase};
use weft_rnic::{Batch, MpaLink, MpaQp, RdmaDevice, Sending, WhenClosed, Written};
use weft_verbs::limits::IWARP;
use weft_verbs::mr::{Backing, RegionReader, RegionSpec};
use weft_verbs::{
    Access, AsyncEvent, AsyncQueue, Cq, Pd, Qp, QpCap, QpInit, QpState, QpType, RecvWr, SendFlags,
    SendOp, SendWr, Sge, Srq, Wake, Wc, Xrcd,
};

pub struct Silent;
impl Wake for Silent {
    fn wake(&self) {}
}

pub const ALL: Access = Access::all().difference(Access::ON_DEMAND.union(Access::ZERO_BASED));

/// Keys from a fixed start: a test is the same each time it runs.
pub fn entropy(seed: u32) -> Box<dyn Fn() -> u32 + Send + Sync> {
    let state = std::sync::atomic::AtomicU32::new(seed | 1);
    Box::new(move || {
        let next = |s: u32| Some(s.wrapping_mul(747_796_405).wrapping_add(2_891_336_453));
        let order = std::sync::atomic::Ordering::Relaxed;
        let old = state.fetch_update(order, order, next).unwrap();
        (old ^ old >> 15).wrapping_mul(0x2c1b_3c6d)
    })
}

/// Memory with a key.
pub struct Memory {
    pub bytes: Vec<u64>,
    pub key: u32,
}

impl Memory {
    pub fn addr(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }

    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.addr() + offset, length, lkey: self.key }
    }

    pub fn octets(&self) -> Vec<u8> {
        self.bytes.iter().flat_map(|w| w.to_ne_bytes()).collect()
    }
}

/// A device with one queue pair.
pub struct Host {
    pub device: RdmaDevice,
    pub pd: Arc<Pd>,
    pub cq: Arc<Cq>,
    pub events: Arc<AsyncQueue>,
    pub qp: Arc<Qp>,
    pub srq: Option<Arc<Srq>>,
    pub xrcd: Option<Arc<Xrcd>>,
}

/// A host whose queue pair is bound to a TCP connection.
pub struct Side {
    pub host: Host,
    pub mpa: MpaQp,
    pub now_ns: u64,
    pub inbox: Vec<u8>,
}

impl Deref for Side {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

pub fn agreed() -> Agreed {
    Agreed { crc: true, ird: 4, ord: 4, rtr: Some(Rtr::Write), ..Agreed::default() }
}

impl Host {
    pub fn new(seed: u32) -> Self {
        Self::of_kind(seed, QpType::Rc, false)
    }

    /// A host with a queue pair of another kind, or one that shares its receives.
    pub fn of_kind(seed: u32, kind: QpType, shares: bool) -> Self {
        let device = RdmaDevice::new(&IWARP, entropy(seed));
        let pd = device.alloc_pd();
        let events = AsyncQueue::new(Box::new(Silent));
        let cq = Arc::new(Cq::new(4096, None, Arc::clone(&events), 1));
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 4,
            max_recv_sge: 4,
            max_inline_data: 64,
        };
        let xrcd = (kind == QpType::XrcRecv).then(|| Arc::new(Xrcd::new(device.alloc_pd())));
        let init = QpInit {
            kind,
            start: QpState::Init,
            pd: Arc::clone(xrcd.as_ref().map_or(&pd, |domain| domain.pd())),
            send_cq: Arc::clone(&cq),
            recv_cq: Arc::clone(&cq),
            srq: shares.then(|| Arc::new(Srq::new(&pd, 64, 4, 0, Arc::clone(&events), 3))),
            xrcd: xrcd.clone(),
            cap,
            sq_sig_all: false,
            cookie: 2,
        };
        let srq = init.srq.clone();
        let qp = Arc::new(device.create_qp(init, &events).unwrap());
        Self { device, pd, cq, events, qp, srq, xrcd }
    }

    pub fn memory(&self, octets: u64, access: Access) -> Memory {
        self.memory_in(&self.pd, octets, access)
    }

    pub fn memory_in(&self, pd: &Arc<Pd>, octets: u64, access: Access) -> Memory {
        let bytes = vec![0u64; octets.div_ceil(8) as usize];
        let addr = bytes.as_ptr() as u64;
        let spec = RegionSpec {
            pd: Arc::clone(pd),
            addr,
            len: octets,
            iova: addr,
            access,
            backing: Backing::Mapped,
        };
        let key = self.device.register(&spec).unwrap();
        Memory { bytes, key }
    }

    pub fn send(&self, wr_id: u64, op: SendOp, sges: &[Sge]) {
        self.qp.post_send(&SendWr { wr_id, op, flags: SendFlags::SIGNALED, sges }).unwrap();
    }

    pub fn recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr { wr_id, sges }).unwrap();
    }

    pub fn completions(&self) -> Vec<Wc> {
        let mut out = vec![Wc::default(); 4096];
        let n = self.cq.poll(&mut out).unwrap();
        out.truncate(n);
        out
    }

    /// `(wr_id, status)` of each completion.
    pub fn statuses(&self) -> Vec<(u64, u32)> {
        self.completions().iter().map(|w| (w.wr_id, w.status)).collect()
    }

    pub fn events(&self) -> Vec<AsyncEvent> {
        std::iter::from_fn(|| self.events.pop()).collect()
    }
}

impl Side {
    pub fn new(role: MpaRole, agreed: &Agreed, emss: u32) -> Self {
        Self::with(role, agreed, emss, false)
    }

    /// The same, whose requests the peer confirms if `confirm` says so.
    pub fn with(role: MpaRole, agreed: &Agreed, emss: u32, confirm: bool) -> Self {
        let host = Host::new(if role == MpaRole::Initiator { 7 } else { 11 });
        let (now_ns, stall_ns) = (1_000_000_000, 60_000_000_000);
        let when_closed = WhenClosed::Fail;
        let batch_bytes = 512 << 10;
        let link = MpaLink { role, agreed, emss, batch_bytes, stall_ns, confirm, when_closed };
        let mpa = MpaQp::new(Arc::clone(&host.qp), &link, now_ns);
        Self { host, mpa, now_ns, inbox: Vec::new() }
    }

    /// Everything it sends, at most `room` bytes.
    pub fn output(&mut self, room: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let table = Arc::clone(self.device.regions());
        loop {
            let outcome = self.mpa.poll_transmit(|batch| {
                let rest = flatten(batch, &table.reader());
                let take = rest.len().min(room - out.len());
                if take == 0 {
                    return Written::Blocked;
                }
                out.extend_from_slice(&rest[..take]);
                Written::Octets(take)
            });
            if outcome != Sending::More || out.len() >= room {
                return out;
            }
        }
    }

    /// Takes bytes off the wire.
    pub fn input(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
        let consumed = self.mpa.receive(&self.inbox, self.now_ns);
        self.inbox.drain(..consumed);
    }
}

/// What a batch holds, as the kernel would read it.
pub fn flatten(batch: &Batch<'_>, regions: &RegionReader<'_>) -> Vec<u8> {
    let gather = batch.gather;
    let mut all = Vec::new();
    for piece in gather.pieces() {
        match piece {
            Piece::Slab { start, len } => all.extend_from_slice(gather.staged(*start, *len)),
            Piece::Memory(memory) => regions.copy_to(*memory, &mut all),
        }
    }
    all.split_off(batch.written)
}

/// A frame around `ulpdu`.
pub fn fpdu(ulpdu: &[u8]) -> Vec<u8> {
    let mut frame = (ulpdu.len() as u16).to_be_bytes().to_vec();
    frame.extend_from_slice(ulpdu);
    frame.resize(frame.len().next_multiple_of(4), 0);
    let crc = Crc32c::of(&frame);
    frame.extend_from_slice(&crc);
    frame
}

/// The ULPDUs of whole frames without markers.
pub fn ulpdus(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while bytes.len() >= 2 {
        let len = usize::from(u16::from_be_bytes([bytes[0], bytes[1]]));
        all.push(bytes[2..2 + len].to_vec());
        bytes = &bytes[(2 + len).next_multiple_of(4) + 4..];
    }
    all
}

/// The Terminate among `bytes`, which must be the last frame.
pub fn terminate_in(bytes: &[u8]) -> Option<Terminate> {
    let last = ulpdus(bytes).pop()?;
    (last[1] & 0x0f == 7).then(|| Terminate::parse(&last[18..], TerminatePhase::Operation).unwrap())
}

/// Carries bytes both ways until nothing moves.
pub fn settle(a: &mut Side, b: &mut Side) {
    loop {
        let (to_b, to_a) = (a.output(usize::MAX), b.output(usize::MAX));
        if to_a.is_empty() && to_b.is_empty() {
            return;
        }
        b.input(&to_b);
        a.input(&to_a);
    }
}

pub fn pair(emss: u32) -> (Side, Side) {
    let agreed = agreed();
    (Side::new(MpaRole::Initiator, &agreed, emss), Side::new(MpaRole::Responder, &agreed, emss))
}
