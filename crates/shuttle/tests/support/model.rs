//! What lies above the seam in these tests: messages to send, and a checker of what arrives.
//!
//! The checker knows what must hold: each byte of a message is placed once and is right, the
//! frontier covers nothing that is not placed, the tail of a Write comes after everything before
//! it, and nothing is completed that the peer has not delivered.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weft_shuttle::Placement;
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{DdpHeader, TAGGED_LEN, TaggedHeader, UNTAGGED_LEN, UntaggedHeader};
use weft_wire::ids::{Msn, QN_SEND, STag};
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::StreamId;

/// Memory in which every byte follows from its address.
pub struct Memory;

fn octet(addr: u64) -> u8 {
    (addr.wrapping_mul(0x9e37_79b9) >> 7) as u8
}

impl RegisteredMemory for Memory {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        let mut octets = Vec::new();
        self.copy_to(piece, &mut octets);
        crc.update(&octets)
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        out.extend((piece.addr..piece.addr + u64::from(piece.len)).map(octet));
    }
}

/// The bytes that the network would be given.
pub fn flatten(gather: &Gather) -> Vec<u8> {
    let mut octets = Vec::new();
    for piece in gather.pieces() {
        match *piece {
            Piece::Slab { start, len } => octets.extend_from_slice(gather.staged(start, len)),
            Piece::Memory(piece) => Memory.copy_to(piece, &mut octets),
        }
    }
    octets
}

/// A message to send.
#[derive(Clone, Copy, Debug)]
pub struct Message {
    pub write: bool,
    pub octets: u32,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    message: Message,
    /// Where its payload lies, at both ends.
    addr: u64,
    msn: Msn,
}

/// One end of a stream: what it sends and what it has received.
pub struct End {
    pub source: Source,
    pub sink: Sink,
}

/// Hands out segments of the posted messages.
pub struct Source {
    messages: Vec<Posted>,
    next: usize,
    offset: u32,
    handed: Vec<SegmentId>,
    pub acked: usize,
    /// How often it was asked for a segment.
    pub asked: u64,
    next_addr: u64,
    next_msn: Msn,
    /// The last message that has a receive, while the peer says that one is short of it.
    pub credit: Option<Msn>,
    /// How far the peer has delivered, told out of band.
    peer_delivered: Arc<AtomicU64>,
}

/// Checks what arrives.
pub struct Sink {
    placed: BTreeSet<u64>,
    /// Segments before this are placed.
    prefix: u64,
    pub delivered: Arc<AtomicU64>,
    pub payload_octets: u64,
    pub segments: u64,
    pub tails: u64,
    pub early: u64,
    pub placement: Placement,
    /// Sends without a receive are held; receives posted so far.
    pub receives: Option<u32>,
    /// The message that waits for its receive.
    pub held: Option<Msn>,
    written: BTreeSet<u64>,
    /// Whether losses were agreed on, and segments that did not come.
    pub lossy: bool,
    pub missed: u64,
}

impl End {
    /// Both ends of a stream.
    pub fn pair() -> (Self, Self) {
        let (a, b) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        (Self::new(&a, &b), Self::new(&b, &a))
    }

    fn new(own: &Arc<AtomicU64>, peer: &Arc<AtomicU64>) -> Self {
        let source = Source {
            messages: Vec::new(),
            next: 0,
            offset: 0,
            handed: Vec::new(),
            acked: 0,
            asked: 0,
            next_addr: 0,
            next_msn: Msn::FIRST,
            credit: None,
            peer_delivered: Arc::clone(peer),
        };
        let sink = Sink {
            placed: BTreeSet::new(),
            prefix: 0,
            delivered: Arc::clone(own),
            payload_octets: 0,
            segments: 0,
            tails: 0,
            early: 0,
            placement: Placement::Tail,
            receives: None,
            held: None,
            written: BTreeSet::new(),
            lossy: false,
            missed: 0,
        };
        Self { source, sink }
    }

    /// Whether every posted message has been completed.
    pub fn is_complete(&self) -> bool {
        let source = &self.source;
        source.next == source.messages.len() && source.acked == source.handed.len()
    }
}

impl Source {
    pub fn post(&mut self, message: Message) {
        self.messages.push(Posted { message, addr: self.next_addr, msn: self.next_msn });
        self.next_addr += u64::from(message.octets);
        if !message.write {
            self.next_msn = self.next_msn.next();
        }
    }

    /// Segments handed out so far.
    pub fn handed(&self) -> u64 {
        self.handed.len() as u64
    }

    /// Payload posted so far.
    pub fn posted_octets(&self) -> u64 {
        self.next_addr
    }
}

impl UlpduSource for Source {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        self.asked += 1;
        let posted = *self.messages.get(self.next)?;
        let short = self.credit.is_some_and(|credit| posted.msn.since(credit.next()) < 1 << 31);
        if short && !posted.message.write && self.offset == 0 {
            return None;
        }
        let head = if posted.message.write { TAGGED_LEN } else { UNTAGGED_LEN } as u16;
        let left = posted.message.octets - self.offset;
        let len = left.min(u32::from(mulpdu - head)) as u16;
        let id = SegmentId { wqe: self.next as u32, offset: self.offset, len: len.into() };
        self.offset += u32::from(len);
        if self.offset == posted.message.octets {
            (self.next, self.offset) = (self.next + 1, 0);
        }
        self.handed.push(id);
        Some(id)
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        let posted = self.messages[id.wqe as usize];
        let last = id.offset + id.len == posted.message.octets;
        if posted.message.write {
            let control = Opcode::Write.control();
            let to = posted.addr + u64::from(id.offset);
            out.push_bytes(&TaggedHeader { last, control, stag: STag(9), to }.to_bytes());
        } else {
            let header = UntaggedHeader {
                last,
                control: Opcode::Send.control(),
                ulp: 0,
                qn: QN_SEND,
                msn: posted.msn,
                mo: id.offset,
            };
            out.push_bytes(&header.to_bytes());
        }
        let addr = posted.addr + u64::from(id.offset);
        out.push_memory(MemoryPiece { addr, len: id.len });
    }

    fn acked(&mut self, id: SegmentId) {
        assert_eq!(self.handed[self.acked], id, "completed out of order, or twice");
        let delivered = self.peer_delivered.load(Ordering::Relaxed);
        assert!((self.acked as u64) < delivered, "completed before it is delivered");
        self.acked += 1;
        let Posted { message, msn, .. } = self.messages[id.wqe as usize];
        let last = !message.write && id.offset + id.len == message.octets;
        if last && self.credit.is_some_and(|credit| credit.next() == msn) {
            self.credit = None;
        }
    }

    fn receiver_not_ready(&mut self, credit: Msn, _: u32) {
        let waits = |posted: &&Posted| !posted.message.write && posted.msn == credit.next();
        let waits = self.messages.iter().position(|posted| waits(&posted));
        let ends =
            |id: &SegmentId| id.offset + id.len == self.messages[id.wqe as usize].message.octets;
        let whole = |id: &SegmentId| id.wqe as usize + usize::from(ends(id));
        let done = self.handed[..self.acked].last().map_or(0, whole);
        self.credit = waits.filter(|at| *at >= done).map(|_| credit);
    }
}

impl Sink {
    fn advance(&mut self) {
        while self.placed.remove(&self.prefix) {
            self.prefix += 1;
        }
    }
}

impl UlpduSink for Sink {
    type Fault = &'static str;

    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault> {
        let (header, payload) = DdpHeader::parse(ulpdu).map_err(|_| "no DDP header")?;
        match header {
            DdpHeader::Tagged(header) => {
                let right = (header.to..).zip(payload).all(|(addr, value)| octet(addr) == *value);
                assert!(right, "segment {seq} is corrupt");
                assert!(payload.is_empty() || self.written.insert(header.to), "written twice");
            }
            DdpHeader::Untagged(header) => {
                let number = header.msn.since(Msn::FIRST);
                if self.receives.is_some_and(|receives| number >= receives) {
                    if seq == self.prefix {
                        self.held = Some(header.msn);
                    }
                    return Ok(Placed::Held);
                }
                self.held = self.held.filter(|held| *held != header.msn);
            }
        }
        assert!(self.placed.insert(seq) && seq >= self.prefix, "segment {seq} placed twice");
        self.early += u64::from(seq > self.prefix);
        let tail = matches!(header, DdpHeader::Tagged(header) if header.last);
        match self.placement {
            Placement::Strict => assert_eq!(seq, self.prefix),
            Placement::Tail if tail => assert_eq!(seq, self.prefix, "a tail came early"),
            Placement::Tail | Placement::Loose => {}
        }
        self.tails += u64::from(tail);
        self.payload_octets += payload.len() as u64;
        self.segments += 1;
        self.advance();
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), Self::Fault> {
        let before = self.delivered.swap(frontier, Ordering::Relaxed);
        assert!(frontier > before && frontier <= self.prefix, "delivered what is not placed");
        Ok(())
    }

    fn missed(&mut self, first: u64, last: u64) -> Result<(), Self::Fault> {
        assert!(self.lossy && first == self.prefix && first <= last, "missed {first}..={last}");
        let placed = self.placed.first().is_some_and(|placed| *placed <= last);
        assert!(!placed, "missed what is placed");
        self.missed += last + 1 - first;
        self.prefix = last + 1;
        self.advance();
        Ok(())
    }
}

/// The ends of a host's streams.
pub struct Ports {
    pub ends: Vec<End>,
}

impl Ports {
    pub fn new(ends: Vec<End>) -> Self {
        Self { ends: ends.into_iter().collect::<VecDeque<_>>().into() }
    }

    /// Posts a message on stream 0.
    pub fn post(&mut self, write: bool, octets: u32) {
        self.ends[0].source.post(Message { write, octets });
    }
}

impl weft_shuttle::Ports for Ports {
    type Fault = &'static str;
    type Source<'a> = &'a mut Source;
    type Sink<'a> = &'a mut Sink;

    fn source(&mut self, stream: StreamId) -> Option<&mut Source> {
        Some(&mut self.ends.get_mut(usize::from(stream.0))?.source)
    }

    fn sink(&mut self, stream: StreamId) -> Option<&mut Sink> {
        Some(&mut self.ends.get_mut(usize::from(stream.0))?.sink)
    }
}
