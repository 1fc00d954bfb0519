//! One flow of a lane: a ring of records, each a segment, in memory that two processes map.
//!
//! Invariant: `tail` (bytes ever written) and `head` (bytes ever taken) only grow, and
//! `0 <= tail - head <= size`. Each side keeps its own counters private and takes only the other's
//! from the shared page, where it checks that invariant, and a record's length, which it reads
//! once: whatever a peer writes, no access leaves the ring, and what breaks a rule ends the lane.
//!
//! A record does not wrap: what does not fit before the end of the ring begins at its start, behind
//! a record that says so. So does what is written to an empty ring ([`JUMP_AT_BYTES`]): a
//! connection with few bytes in flight touches few pages.
//!
//! The record of a segment whose payload is lent has the DDP header in its first cache line and the
//! pieces of memory after it.
//!
//! A short segment that is written to an empty ring is beside the tail instead (`TailRecord`),
//! where the reader that looks for it has it at once: each further cache line comes from the other
//! processor in about 100 ns, a third of what a message of a few bytes takes in all. Its place in
//! the ring, of one line, stays unused. What this side has taken of the other direction is there
//! too, for the same reason.
#![allow(unsafe_code)]

mod reader;
mod writer;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use weft_rnic::wire::ddp;

use super::memory::{Mapping, RING_BYTES};

pub use reader::RingReader;
pub use writer::RingWriter;

const SIZE: u64 = RING_BYTES as u64;
/// An empty ring goes on at its start from here on, and no sooner than so many records as long as
/// the next one fit before it: what is skipped is no room until the reader has passed it.
const JUMP_AT_BYTES: u64 = 32 << 10;
const JUMP_AT_RECORDS: u64 = 16;
/// Records begin at multiples of this, the size of a cache line.
const RECORD_ALIGN: u64 = 64;
/// The two words before a segment.
const HEADER_BYTES: u64 = 8;
/// In place of a length: the next record is at the start of the ring.
const GO_TO_START: u32 = u32::MAX;
/// Beside the length of a DDP header: the payload is lent, and the length of the segment is that of
/// its list of pieces.
const IS_LENT: u32 = 1 << 31;
/// So far ahead of what is written the writer fetches the lines that the reader had last: two of
/// them for each record, as many as one of a short message has. Each takes as long as writing
/// several records does.
const PREFETCH_BYTES: u64 = 256;
/// Bytes of a piece in that list: an address and a length.
const PIECE_BYTES: u64 = 16;
/// Pieces of a list: more than a segment has with 32 entries, of which one may be a null region.
const PIECES_MAX: u64 = 64;
/// Bytes of a segment at most that is written beside the tail: what two cache lines leave room for,
/// a Write or a Send of 64 bytes among it.
const BESIDE_MAX_BYTES: usize = 104;
/// Bits of a word that says where in the ring the record beside the tail is, for its length: twice
/// a multiple of [`RECORD_ALIGN`] has them to spare.
const BESIDE_LEN_BITS: u64 = (1 << 7) - 1;
/// Segments of up to so many bytes are copied before anything looks at them. Of longer ones only
/// the DDP header is: their payload goes to its place at once.
const WHOLE_MAX_BYTES: usize = 256;

/// The peer has broken the rules of the ring: it is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// What the writer of a flow publishes. It changes only in [`RingWriter::publish`], all at once: a
/// reader that polls takes the lines away after the first change.
#[repr(C, align(128))]
struct WriterLine {
    tail: AtomicU64,
    /// Twice the position of the record beside the tail, and its length; 0 if there was none yet.
    beside: AtomicU64,
    /// Segments that the writer has taken of each flow of the other direction.
    taken: [AtomicU32; 2],
    /// The segment of that record.
    bytes: UnsafeCell<[u8; BESIDE_MAX_BYTES]>,
}

/// What its reader does.
#[repr(C, align(64))]
struct ReaderLine {
    head: AtomicU64,
    /// Segments taken.
    placed: AtomicU64,
}

/// The counters of a flow. All zero is an empty ring.
#[repr(C)]
pub struct FlowCounters {
    writer: WriterLine,
    reader: ReaderLine,
}

/// A ring and its counters.
struct LaneRing {
    counters: *const FlowCounters,
    bytes: *mut u8,
    /// Keeps both mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the mapping lives as long as this does; the counters are atomics, and the bytes, also
// those beside the tail, are written by one side and read by the other at disjoint times or places.
unsafe impl Send for LaneRing {}

impl LaneRing {
    fn counters(&self) -> &FlowCounters {
        // SAFETY: mapped, aligned, and of atomics and a cell only.
        unsafe { &*self.counters }
    }

    fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: below the size.
        unsafe { self.bytes.add((position & (SIZE - 1)) as usize) }
    }

    /// Begins to fetch the cache line at `position` for writing.
    #[cfg(target_arch = "x86_64")]
    fn prefetch(&self, position: u64) {
        let line = self.at(position);
        // SAFETY: a hint, which touches nothing; processors without it take it for none.
        unsafe {
            std::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags));
        }
    }

    /// There is no such hint here.
    #[cfg(not(target_arch = "x86_64"))]
    fn prefetch(&self, _: u64) {}

    /// A word of the list of pieces behind the record at `position`.
    fn list_word(&self, position: u64, index: u64) -> &AtomicU64 {
        let word: *const AtomicU64 = self.at(position + RECORD_ALIGN + index * 8).cast();
        // SAFETY: aligned and within the ring, and accessed as an atomic only.
        unsafe { &*word }
    }

    /// One of the two words at the start of the record at `position`, a multiple of
    /// [`RECORD_ALIGN`]: the bytes of its segment, and of the part that is looked at.
    fn word(&self, position: u64, index: usize) -> &AtomicU32 {
        let words: *const [AtomicU32; 2] = self.at(position).cast();
        // SAFETY: aligned and within the ring, and accessed as atomics only.
        let words = unsafe { &*words };
        &words[index & 1]
    }
}

fn to_end(position: u64) -> u64 {
    SIZE - (position & (SIZE - 1))
}

/// Bytes that a segment of `len` bytes takes in the ring.
fn record_bytes(len: u64) -> u64 {
    let before = if len > WHOLE_MAX_BYTES as u64 { RECORD_ALIGN } else { HEADER_BYTES };
    (before + len).next_multiple_of(RECORD_ALIGN)
}

/// Bytes that a segment takes whose list of pieces has `len` bytes.
fn lent_record_bytes(len: u64) -> u64 {
    (RECORD_ALIGN + len).next_multiple_of(RECORD_ALIGN)
}

/// Bytes of the header of a segment that begins with this byte, and of all of a short one.
fn head_bytes(len: usize, first: u8) -> usize {
    if len > WHOLE_MAX_BYTES { ddp::header_len(first) } else { len }
}

/// Where in its record a segment begins. The payload of a longer one is aligned: copies are
/// several times slower where it is not.
fn segment_offset(len: usize, head_bytes: usize) -> u64 {
    match len > WHOLE_MAX_BYTES {
        true => RECORD_ALIGN - head_bytes as u64,
        false => HEADER_BYTES,
    }
}
