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
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_rnic::wire::ddp::{self, TAGGED_LEN, UNTAGGED_LEN};
use weft_rnic::wire::llp::{Gather, Piece};
use weft_rnic::{LaneSegment, Pushed};

use super::memory::{Mapping, RING_BYTES};

const SIZE: u64 = RING_BYTES as u64;
/// An empty ring goes on at its start from here.
const JUMP_AT_BYTES: u64 = 4 << 10;
/// Records begin at multiples of this, the size of a cache line.
const RECORD_ALIGN: u64 = 64;
/// The two words before a segment.
const HEADER_BYTES: u64 = 8;
/// In place of a length: the next record is at the start of the ring.
const GO_TO_START: u32 = u32::MAX;
/// Segments of up to so many bytes are copied before anything looks at them. Of longer ones only
/// the DDP header is: their payload goes to its place at once.
const WHOLE_MAX_BYTES: usize = 256;

/// The peer has broken the rules of the ring: it is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// What the writer of a flow publishes.
#[repr(C, align(64))]
struct WriterLine {
    tail: AtomicU64,
}

/// What its reader does.
#[repr(C, align(64))]
struct ReaderLine {
    head: AtomicU64,
    /// Segments taken.
    placed: AtomicU64,
    /// The same, for who finds a segment of the reader: it is told of no sooner.
    announced: AtomicU64,
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

// SAFETY: the mapping lives as long as this does; the counters are atomics, and the bytes are
// written by one side and read by the other at disjoint places.
unsafe impl Send for LaneRing {}

impl LaneRing {
    fn counters(&self) -> &FlowCounters {
        // SAFETY: mapped, aligned, and of atomics only.
        unsafe { &*self.counters }
    }

    fn at(&self, position: u64) -> *mut u8 {
        // SAFETY: below the size.
        unsafe { self.bytes.add((position & (SIZE - 1)) as usize) }
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

/// The end that writes.
pub struct RingWriter {
    ring: LaneRing,
    tail: u64,
    published: u64,
    /// `head` when it was read last: it may have grown since.
    head: u64,
    /// Segments whose room is given back.
    freed: u64,
    /// Segments that the peer has taken, as far as it is known.
    placed: u64,
    /// Segments written.
    written: u64,
}

impl RingWriter {
    /// The writing end of a ring of `mapping` whose counters are at `counters`.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        counters: *const FlowCounters,
        bytes: *mut u8,
    ) -> Self {
        let ring = LaneRing { counters, bytes, _mapping: Arc::clone(mapping) };
        Self { ring, tail: 0, published: 0, head: 0, freed: 0, placed: 0, written: 0 }
    }

    /// Reads what the peer has taken.
    ///
    /// # Errors
    /// If it has written nonsense.
    pub fn refresh(&mut self) -> Result<(), Corrupt> {
        let line = &self.ring.counters().reader;
        // In this order: what is counted was given back.
        let placed = line.placed.load(Ordering::Acquire);
        if placed == self.freed {
            return Ok(());
        }
        let head = line.head.load(Ordering::Acquire);
        let grown = head.wrapping_sub(self.head) <= self.published - self.head;
        let counted = placed.wrapping_sub(self.freed) <= self.written - self.freed;
        if !grown || !counted {
            return Err(Corrupt);
        }
        (self.head, self.freed, self.placed) = (head, placed, placed.max(self.placed));
        Ok(())
    }

    /// Reads what the peer had taken when it wrote the segment that was just found.
    pub fn heed_announced(&mut self) {
        let announced = self.ring.counters().reader.announced.load(Ordering::Acquire);
        // It may be older than what is known.
        if announced <= self.written {
            self.placed = announced.max(self.placed);
        }
    }

    /// Segments that the peer had taken when it was last asked.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Bytes that the next segment may have, by the last [`RingWriter::refresh`].
    pub fn room_bytes(&self) -> usize {
        let free = SIZE - (self.tail - self.head);
        let end = to_end(self.tail);
        let here = free.min(end);
        let room = here.max(free.saturating_sub(end));
        room.saturating_sub(RECORD_ALIGN) as usize
    }

    /// Copies a segment, all of it or nothing. The reader sees it once [`RingWriter::publish`] is
    /// called.
    pub fn push(&mut self, segment: &Gather) -> Pushed {
        let need = record_bytes(segment.len() as u64);
        let at = self.place_of(need);
        if at + need - self.head > SIZE || need > to_end(at) {
            return Pushed::Full;
        }
        let first = segment.slab().first().copied().unwrap_or_default();
        let head_bytes = head_bytes(segment.len(), first);
        if !self.copy(segment, at + segment_offset(segment.len(), head_bytes)) {
            return Pushed::Gone;
        }
        if at != self.tail {
            self.ring.word(self.tail, 0).store(GO_TO_START, Ordering::Relaxed);
        }
        self.ring.word(at, 0).store(segment.len() as u32, Ordering::Relaxed);
        self.ring.word(at, 1).store(head_bytes as u32, Ordering::Relaxed);
        self.tail = at + need;
        self.written += 1;
        Pushed::Whole
    }

    /// Where a record of `need` bytes goes.
    fn place_of(&self, need: u64) -> u64 {
        let end = to_end(self.tail);
        let offset = SIZE - end;
        // What is skipped counts as taken until the reader has passed it.
        let jumps = self.tail == self.head && offset >= JUMP_AT_BYTES && need <= offset;
        if need > end || jumps { self.tail + end } else { self.tail }
    }

    fn copy(&self, segment: &Gather, position: u64) -> bool {
        let mut to = self.ring.at(position);
        for piece in segment.pieces() {
            let len = match *piece {
                Piece::Slab { start, len } => {
                    let from = segment.staged(start, len);
                    // SAFETY: `push` has seen that there is room, up to the end of the ring.
                    unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
                    from.len()
                }
                Piece::Memory(memory) => {
                    let len = memory.len as usize;
                    // SAFETY: the application registered it, and `to` is as above.
                    if !unsafe { weft_guard::read(memory.addr, to, len) } {
                        return false;
                    }
                    len
                }
            };
            // SAFETY: still within that room.
            to = unsafe { to.add(len) };
        }
        true
    }

    /// Lets the reader see what was written; whether there was anything.
    pub fn publish(&mut self) -> bool {
        let any = self.published != self.tail;
        if any {
            self.published = self.tail;
            self.ring.counters().writer.tail.store(self.tail, Ordering::Release);
        }
        any
    }
}

/// The record that the reader is at.
#[derive(Clone, Copy)]
struct FrontRecord {
    /// Where its segment begins.
    position: u64,
    len: usize,
    /// Bytes of it that are copied before anything looks at them.
    head_len: usize,
}

/// The end that reads.
pub struct RingReader {
    ring: LaneRing,
    head: u64,
    tail: u64,
    placed: u64,
    published: u64,
    front: Option<FrontRecord>,
    /// The peer has written nonsense: nothing is there any more.
    is_broken: bool,
    /// A copy of what is looked at of the record: all of a short one, the header of others.
    head_copy: [u8; WHOLE_MAX_BYTES],
}

impl RingReader {
    /// The reading end of a ring of `mapping` whose counters are at `counters`.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        counters: *const FlowCounters,
        bytes: *mut u8,
    ) -> Self {
        let ring = LaneRing { counters, bytes, _mapping: Arc::clone(mapping) };
        let head_copy = [0; WHOLE_MAX_BYTES];
        Self {
            ring,
            head: 0,
            tail: 0,
            placed: 0,
            published: 0,
            front: None,
            is_broken: false,
            head_copy,
        }
    }

    /// Whether there is a record that nobody has looked at. One that was and is still there waits
    /// for something else.
    pub fn has_arrivals(&self) -> bool {
        !self.is_broken
            && self.front.is_none()
            && self.ring.counters().writer.tail.load(Ordering::Acquire) != self.head
    }

    /// Whether everything that was written was taken.
    pub fn is_empty(&self) -> bool {
        self.is_broken || self.front.is_none() && !self.has_arrivals()
    }

    /// The first record that was not taken.
    ///
    /// # Errors
    /// If the peer has written nonsense.
    pub fn front(&mut self) -> Result<Option<LaneSegment<'_>>, Corrupt> {
        if self.is_broken {
            return Ok(None);
        }
        if self.front.is_none() {
            match self.find() {
                Ok(true) => {}
                Ok(false) => return Ok(None),
                Err(Corrupt) => {
                    self.is_broken = true;
                    return Err(Corrupt);
                }
            }
        }
        let Some(FrontRecord { position, len, head_len }) = self.front else { return Ok(None) };
        let payload = (head_len < len).then(|| {
            // SAFETY: within the record, which `find` has seen to be within the ring.
            let from = unsafe { self.ring.at(position).add(head_len) };
            #[allow(clippy::disallowed_methods)]
            // SAFETY: below the tail, where the writer does not write again before this was taken,
            // unless the peer does wrong: then the bytes are any, and nobody looks at them but who
            // copies them to their place.
            unsafe {
                std::slice::from_raw_parts(from, len - head_len)
            }
        });
        Ok(Some(LaneSegment { head: &self.head_copy[..head_len], payload }))
    }

    /// Looks for the next record; whether there is one.
    fn find(&mut self) -> Result<bool, Corrupt> {
        loop {
            if self.head == self.tail {
                let tail = self.ring.counters().writer.tail.load(Ordering::Acquire);
                let unread = tail.wrapping_sub(self.head);
                if unread > SIZE || !unread.is_multiple_of(RECORD_ALIGN) {
                    return Err(Corrupt);
                }
                self.tail = tail;
                if unread == 0 {
                    return Ok(false);
                }
            }
            let len = self.ring.word(self.head, 0).load(Ordering::Relaxed);
            let unread = self.tail - self.head;
            if len == GO_TO_START {
                let skipped = to_end(self.head);
                if skipped >= unread {
                    return Err(Corrupt);
                }
                self.head += skipped;
                continue;
            }
            if len == 0 || record_bytes(len.into()) > unread.min(to_end(self.head)) {
                return Err(Corrupt);
            }
            return self.look_at(len as usize).map(|()| true);
        }
    }

    /// Copies what is looked at of the record at the head, whose segment has `len` bytes.
    fn look_at(&mut self, len: usize) -> Result<(), Corrupt> {
        let head_len = self.ring.word(self.head, 1).load(Ordering::Relaxed) as usize;
        let is_header = [TAGGED_LEN, UNTAGGED_LEN].contains(&head_len);
        if if len > WHOLE_MAX_BYTES { !is_header } else { head_len != len } {
            return Err(Corrupt);
        }
        let position = self.head + segment_offset(len, head_len);
        let from = self.ring.at(position);
        // SAFETY: within the record, and the copy has room for it.
        unsafe { ptr::copy_nonoverlapping(from, self.head_copy.as_mut_ptr(), head_len) };
        self.front = Some(FrontRecord { position, len, head_len });
        Ok(())
    }

    /// Takes the first record.
    pub fn pop(&mut self) {
        if let Some(FrontRecord { len, .. }) = self.front.take() {
            self.head += record_bytes(len as u64);
            self.placed += 1;
        }
    }

    /// Has who finds the next segment of this side know what was taken.
    pub fn announce(&self) {
        if self.published != self.placed {
            self.ring.counters().reader.announced.store(self.placed, Ordering::Relaxed);
        }
    }

    /// Gives back the room of what was taken, and counts it; whether there was anything.
    pub fn release(&mut self) -> bool {
        let any = self.published != self.placed;
        if any {
            self.published = self.placed;
            let line = &self.ring.counters().reader;
            line.head.store(self.head, Ordering::Release);
            line.placed.store(self.placed, Ordering::Release);
        }
        any
    }
}

#[cfg(test)]
impl RingWriter {
    /// Where in the ring the next record goes.
    pub fn offset(&self) -> u64 {
        self.tail & (SIZE - 1)
    }

    /// Writes this into the counter that the reader trusts.
    pub fn corrupt_tail(&self, tail: u64) {
        self.ring.counters().writer.tail.store(tail, Ordering::Release);
    }

    /// Writes this as the length of the record at `position`.
    pub fn corrupt_length(&self, position: u64, length: u32) {
        self.ring.word(position, 0).store(length, Ordering::Release);
    }
}

#[cfg(test)]
impl RingReader {
    /// Writes these into the counters that the writer trusts.
    pub fn corrupt(&self, head: u64, placed: u64) {
        let line = &self.ring.counters().reader;
        line.head.store(head, Ordering::Release);
        line.placed.store(placed, Ordering::Release);
    }
    /// Writes this into the counter that the writer finds with a segment.
    pub fn corrupt_announced(&self, announced: u64) {
        self.ring.counters().reader.announced.store(announced, Ordering::Release);
    }
}
