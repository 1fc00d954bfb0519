//! A source, a sink and some memory around a stream.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

use std::collections::VecDeque;
use std::env;
use std::hash::{BuildHasher, RandomState};

use weft_mpa::{Agreed, MpaRole, MpaStream};
use weft_wire::crc::Crc32c;
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};

/// The seed of a test: `WEFT_SEED`, or a fresh one. It is printed, so a failure can be repeated.
pub fn seed() -> u64 {
    let given = env::var("WEFT_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("WEFT_SEED={seed}");
    seed
}

/// A segment to send: header bytes, and the lengths of the pieces of payload after them.
#[derive(Clone, Debug)]
pub struct Segment {
    pub header: Vec<u8>,
    pub pieces: Vec<u32>,
}

impl Segment {
    /// A segment without pieces.
    pub fn of(ulpdu: &[u8]) -> Self {
        Self { header: ulpdu.to_vec(), pieces: Vec::new() }
    }

    /// What the peer gets to see.
    pub fn ulpdu(&self) -> Vec<u8> {
        let mut ulpdu = self.header.clone();
        for &len in &self.pieces {
            Memory.copy_to(MemoryPiece { addr: BASE, len }, &mut ulpdu);
        }
        ulpdu
    }
}

/// Where memory begins.
pub const BASE: u64 = 0x7f00_0000_0000;

/// Memory in which every byte follows from its address.
pub struct Memory;

impl RegisteredMemory for Memory {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        let mut octets = Vec::new();
        self.copy_to(piece, &mut octets);
        crc.update(&octets)
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        let range = piece.addr..piece.addr + u64::from(piece.len);
        out.extend(range.map(|addr| (addr.wrapping_mul(0x9e37_79b9) >> 7) as u8));
    }
}

/// The bytes that TCP would be given.
pub fn flatten(gather: &Gather) -> Vec<u8> {
    let mut octets = Vec::new();
    for piece in gather.pieces() {
        match *piece {
            Piece::Slab { start, len } => octets.extend_from_slice(gather.staged(start, len)),
            Piece::Memory(piece) => Memory.copy_to(piece, &mut octets),
        }
    }
    assert_eq!(octets.len(), gather.len());
    octets
}

/// Hands out segments in order and notes which were acknowledged.
#[derive(Default)]
pub struct Source {
    queue: VecDeque<(u32, Segment)>,
    sent: Vec<Segment>,
    pub acked: Vec<u32>,
}

impl Source {
    pub fn new(segments: &[Segment]) -> Self {
        Self { queue: (0..).zip(segments.iter().cloned()).collect(), ..Self::default() }
    }
}

impl UlpduSource for Source {
    fn next(&mut self, _mulpdu: u16) -> Option<SegmentId> {
        let (wqe, segment) = self.queue.pop_front()?;
        let len = segment.pieces.iter().sum::<u32>() as u16;
        self.sent.push(segment);
        Some(SegmentId { wqe, offset: 0, len: len.into() })
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        let segment = &self.sent[id.wqe as usize];
        out.push_bytes(&segment.header);
        for &len in &segment.pieces {
            out.push_memory(MemoryPiece { addr: BASE, len });
        }
    }

    fn acked(&mut self, id: SegmentId) {
        self.acked.push(id.wqe);
    }
}

/// Notes what arrives; refuses segment `refuse`.
#[derive(Default, Debug)]
pub struct Sink {
    pub placed: Vec<Vec<u8>>,
    pub frontier: u64,
    pub refuse: Option<u64>,
}

impl UlpduSink for Sink {
    type Fault = &'static str;

    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault> {
        assert_eq!(seq, self.placed.len() as u64);
        if self.refuse == Some(seq) {
            return Err("refused");
        }
        self.placed.push(ulpdu.to_vec());
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), Self::Fault> {
        assert!(frontier > self.frontier && frontier <= self.placed.len() as u64);
        self.frontier = frontier;
        Ok(())
    }
}

/// An agreement with the same rule for markers in both directions.
pub fn agreed(crc: bool, markers: bool) -> Agreed {
    Agreed { crc, markers_in: markers, markers_out: markers, ..Agreed::default() }
}

/// An initiator's stream, which may send at once.
pub fn stream(crc: bool, markers: bool) -> MpaStream {
    MpaStream::new(MpaRole::Initiator, &agreed(crc, markers))
}

/// All of `segments` as one stretch of stream.
pub fn framed(crc: bool, markers: bool, segments: &[Segment]) -> Vec<u8> {
    let mut out = Gather::new();
    let mut source = Source::new(segments);
    let frames = stream(crc, markers).poll_transmit(&mut source, &Memory, &mut out, usize::MAX);
    assert_eq!(frames, segments.len());
    flatten(&out)
}
