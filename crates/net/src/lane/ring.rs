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
//! A short segment that is written to an empty ring is beside the tail instead ([`TailRecord`]),
//! where the reader that looks for it has it at once: each further cache line comes from the other
//! processor in about 100 ns, a third of what a message of a few bytes takes in all. Its place in
//! the ring, of one line, stays unused. What this side has taken of the other direction is there
//! too, for the same reason.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weft_rnic::wire::ddp::{self, TAGGED_LEN, UNTAGGED_LEN};
use weft_rnic::wire::llp::{Gather, MemoryPiece, Piece};
use weft_rnic::{LENT_MAX_BYTES, LENT_MIN_BYTES, LaneSegment, Pushed};
use weft_verbs::mr::SegmentPayload;

use super::loan::{Lender, LentRecord, LoanLoss};
use super::memory::{Mapping, RING_BYTES};

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

/// The pieces of a segment that can be lent: of a header in the slab and enough registered memory.
fn lendable(segment: &Gather) -> Option<impl Iterator<Item = MemoryPiece> + '_> {
    let (header, payload) = segment.pieces().split_first()?;
    let is_header = matches!(header, Piece::Slab { .. });
    let is_long = segment.len() >= LENT_MIN_BYTES + segment.slab().len();
    let is_memory = payload.iter().all(|piece| matches!(piece, Piece::Memory(_)));
    let is_short_list = payload.len() as u64 <= PIECES_MAX;
    let pieces = payload.iter().filter_map(|piece| match piece {
        Piece::Memory(memory) => Some(*memory),
        Piece::Slab { .. } => None,
    });
    (is_header && is_long && is_memory && is_short_list).then_some(pieces)
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

/// A piece of the peer's memory, by two words that it wrote.
fn piece(addr: u64, len: u64) -> Result<MemoryPiece, Corrupt> {
    let is_range = len > 0 && addr.checked_add(len).is_some();
    let len = u32::try_from(len).ok().filter(|_| is_range).ok_or(Corrupt)?;
    Ok(MemoryPiece { addr, len })
}

/// A segment that is to be written beside the tail.
struct TailRecord {
    position: u64,
    /// 0 if there is none.
    len: usize,
    bytes: [u8; BESIDE_MAX_BYTES],
}

/// The end that writes.
pub struct RingWriter {
    ring: LaneRing,
    tail: u64,
    published: u64,
    /// What the peer has taken, as far as it is known.
    head: u64,
    /// The counters of the peer when they were read last: bytes and segments given back.
    freed_to: u64,
    freed: u64,
    /// Segments that the peer has taken, as far as it is known.
    placed: u64,
    /// Segments written.
    written: u64,
    beside: TailRecord,
}

impl RingWriter {
    /// The writing end of a ring of `mapping` whose counters are at `counters`.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        counters: *const FlowCounters,
        bytes: *mut u8,
    ) -> Self {
        let ring = LaneRing { counters, bytes, _mapping: Arc::clone(mapping) };
        let beside = TailRecord { position: 0, len: 0, bytes: [0; BESIDE_MAX_BYTES] };
        Self {
            ring,
            tail: 0,
            published: 0,
            head: 0,
            freed_to: 0,
            freed: 0,
            placed: 0,
            written: 0,
            beside,
        }
    }

    /// Reads what the peer has taken, unless that is known to be all.
    ///
    /// # Errors
    /// If it has written nonsense.
    pub fn refresh(&mut self) -> Result<(), Corrupt> {
        if self.placed == self.written {
            return Ok(());
        }
        let line = &self.ring.counters().reader;
        // In this order: what is counted was given back.
        let placed = line.placed.load(Ordering::Acquire);
        if placed == self.freed {
            return Ok(());
        }
        let head = line.head.load(Ordering::Acquire);
        let grown = head.wrapping_sub(self.freed_to) <= self.published - self.freed_to;
        let counted = placed.wrapping_sub(self.freed) <= self.written - self.freed;
        if !grown || !counted {
            return Err(Corrupt);
        }
        (self.freed_to, self.freed) = (head, placed);
        (self.head, self.placed) = (head.max(self.head), placed.max(self.placed));
        Ok(())
    }

    /// The peer had taken so many segments, modulo 2^32, when it wrote a segment that was just
    /// found.
    pub fn heed_taken(&mut self, taken: u32) {
        let more = u64::from(taken.wrapping_sub(self.placed as u32));
        // It may be older than what is known.
        if more > self.written - self.placed {
            return;
        }
        self.placed += more;
        if self.placed == self.written && self.published == self.tail {
            self.head = self.tail;
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

    /// Writes a segment whose payload the reader is to fetch, if it is one that is worth that, and
    /// any other as [`RingWriter::push`] does.
    pub fn push_lent(&mut self, segment: &Gather) -> Pushed {
        let Some(pieces) = lendable(segment) else { return self.push(segment) };
        let list_bytes = (segment.pieces().len() as u64 - 1) * PIECE_BYTES;
        let Some(at) = self.make_room(lent_record_bytes(list_bytes)) else { return Pushed::Full };
        let header = segment.slab();
        // SAFETY: `make_room` has seen that there is room, of which the first line holds it.
        let to = unsafe { self.ring.at(at).add(HEADER_BYTES as usize) };
        // SAFETY: as above; a DDP header is shorter than a line.
        unsafe { ptr::copy_nonoverlapping(header.as_ptr(), to, header.len()) };
        for (index, piece) in (0u64..).zip(pieces) {
            if !weft_guard::is_readable(piece.addr, 1) {
                return Pushed::Gone;
            }
            self.ring.list_word(at, 2 * index).store(piece.addr, Ordering::Relaxed);
            self.ring.list_word(at, 2 * index + 1).store(piece.len.into(), Ordering::Relaxed);
        }
        let words = (list_bytes as u32, header.len() as u32 | IS_LENT);
        self.add(at, lent_record_bytes(list_bytes), words);
        Pushed::Lent
    }

    /// Where a record of `need` bytes goes, if there is room for it.
    fn make_room(&self, need: u64) -> Option<u64> {
        let at = self.place_of(need);
        (at + need - self.head <= SIZE && need <= to_end(at)).then_some(at)
    }

    /// Adds a record of `need` bytes at `at`, which is written but for its two words.
    fn add(&mut self, at: u64, need: u64, words: (u32, u32)) {
        if at != self.tail {
            self.ring.word(self.tail, 0).store(GO_TO_START, Ordering::Relaxed);
        }
        self.ring.word(at, 0).store(words.0, Ordering::Relaxed);
        self.ring.word(at, 1).store(words.1, Ordering::Relaxed);
        self.tail = at + need;
        self.written += 1;
        for line in 0..2 {
            self.ring.prefetch(self.tail + PREFETCH_BYTES + line * RECORD_ALIGN);
        }
    }

    /// Copies a segment, all of it or nothing. The reader sees it once [`RingWriter::publish`] is
    /// called.
    pub fn push(&mut self, segment: &Gather) -> Pushed {
        if self.tail == self.head && segment.len() <= BESIDE_MAX_BYTES {
            return self.push_beside(segment);
        }
        let need = record_bytes(segment.len() as u64);
        let Some(at) = self.make_room(need) else { return Pushed::Full };
        let first = segment.slab().first().copied().unwrap_or_default();
        let head_bytes = head_bytes(segment.len(), first);
        let to = self.ring.at(at + segment_offset(segment.len(), head_bytes));
        // SAFETY: `make_room` has seen that there is room, up to the end of the ring.
        if !unsafe { copy(segment, to) } {
            return Pushed::Gone;
        }
        self.add(at, need, (segment.len() as u32, head_bytes as u32));
        Pushed::Whole
    }

    /// Where a record of `need` bytes goes.
    fn place_of(&self, need: u64) -> u64 {
        let end = to_end(self.tail);
        let offset = SIZE - end;
        // What is skipped counts as taken until the reader has passed it.
        let is_far = offset >= JUMP_AT_BYTES.max(JUMP_AT_RECORDS * need);
        let jumps = self.tail == self.head && is_far;
        if need > end || jumps { self.tail + end } else { self.tail }
    }

    /// The same for a short segment while the ring is empty: nothing reads what is beside the tail.
    fn push_beside(&mut self, segment: &Gather) -> Pushed {
        let beside = &mut self.beside;
        // SAFETY: it has room for so much.
        if !unsafe { copy(segment, beside.bytes.as_mut_ptr()) } {
            return Pushed::Gone;
        }
        (beside.position, beside.len) = (self.tail, segment.len());
        self.tail += RECORD_ALIGN;
        self.written += 1;
        Pushed::Whole
    }

    /// Lets the reader see what was written, and that this side has `taken` so many segments of
    /// each flow of the other direction; whether anything was written.
    pub fn publish(&mut self, taken: [u32; 2]) -> bool {
        if self.published == self.tail {
            return false;
        }
        self.published = self.tail;
        let line = &self.ring.counters().writer;
        let TailRecord { position, len, bytes } = &mut self.beside;
        let len = std::mem::take(len);
        if len > 0 {
            // SAFETY: as long as `bytes`, of which all is copied: a fixed number takes less time.
            // The reader has taken what was there, unless it does wrong, or had nothing yet.
            unsafe { line.bytes.get().copy_from_nonoverlapping(bytes, 1) };
            line.beside.store(*position << 1 | len as u64, Ordering::Relaxed);
        }
        for (told, taken) in line.taken.iter().zip(taken) {
            // Its room may be written again by who finds this, whatever tail that has found.
            told.store(taken, Ordering::Release);
        }
        line.tail.store(self.tail, Ordering::Release);
        true
    }
}

/// Copies the bytes of a segment; whether all of its memory is there.
///
/// # Safety
/// `to` has room for them.
unsafe fn copy(segment: &Gather, mut to: *mut u8) -> bool {
    for piece in segment.pieces() {
        let len = match *piece {
            Piece::Slab { start, len } => {
                let from = segment.staged(start, len);
                // SAFETY: there is room by contract.
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

/// The record that the reader is at.
#[derive(Clone, Copy)]
struct FrontRecord {
    /// Where its segment begins.
    position: u64,
    len: usize,
    /// Bytes of it that are copied before anything looks at them.
    head_len: usize,
    /// Bytes of the record.
    record_bytes: u64,
    /// Its payload is in the peer's process.
    is_lent: bool,
}

/// The end that reads.
pub struct RingReader {
    ring: LaneRing,
    head: u64,
    tail: u64,
    placed: u64,
    announced: u32,
    published: u64,
    /// What the writer said beside the tail, and has yet to be heeded.
    beside: u64,
    taken: Option<[u32; 2]>,
    front: Option<FrontRecord>,
    /// The peer has written nonsense: nothing is there any more.
    is_broken: bool,
    /// The payload of the record, if it is lent; none before this side has said that it reads such.
    loan: Option<LentRecord>,
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
            announced: 0,
            published: 0,
            beside: 0,
            taken: None,
            front: None,
            is_broken: false,
            loan: None,
            head_copy,
        }
    }

    /// From now on payloads may be lent by this process.
    pub fn read_from(&mut self, lender: Lender) {
        self.loan = Some(LentRecord::new(lender));
    }

    /// Bytes of the segment that was found last and not taken.
    pub fn front_bytes(&self) -> usize {
        self.front.map_or(0, |front| front.len)
    }

    /// Whether the record that was found last needs its sender to be there.
    pub fn awaits_lender(&self) -> bool {
        self.front.is_some_and(|front| front.is_lent)
    }

    /// Why the payload of that record cannot be had, if so.
    pub fn loss(&self) -> Option<LoanLoss> {
        self.loan.as_ref().filter(|_| self.awaits_lender())?.loss()
    }

    /// Whether there is a record that nobody has looked at. One that was and is still there waits
    /// for something else.
    pub fn has_arrivals(&self) -> bool {
        let tail = || self.ring.counters().writer.tail.load(Ordering::Acquire);
        // What is known needs no look at the line that the writer changes.
        let has_more = self.head != self.tail || tail() != self.head;
        !self.is_broken && self.front.is_none() && has_more
    }

    /// Whether everything that was written was taken.
    pub fn is_empty(&self) -> bool {
        self.is_broken || self.front.is_none() && !self.has_arrivals()
    }

    /// Looks for the first record that was not taken; whether there is one.
    ///
    /// # Errors
    /// If the peer has written nonsense.
    pub fn find(&mut self) -> Result<bool, Corrupt> {
        if self.is_broken || self.front.is_some() {
            return Ok(!self.is_broken);
        }
        let found = self.find_next();
        self.is_broken = found.is_err();
        found
    }

    /// What [`RingReader::find`] has found.
    pub fn front(&self) -> Option<LaneSegment<'_>> {
        let FrontRecord { position, len, head_len, is_lent, .. } = self.front?;
        let head = &self.head_copy[..head_len];
        if let (true, Some(record)) = (is_lent, &self.loan) {
            let payload = Some(SegmentPayload::lent(record, len - head_len));
            return Some(LaneSegment { head, payload });
        }
        let payload = (head_len < len).then(|| {
            // SAFETY: within the record, which `find_next` has seen to be within the ring.
            let from = unsafe { self.ring.at(position).add(head_len) };
            #[allow(clippy::disallowed_methods)]
            // SAFETY: below the tail, where the writer does not write again before this was taken,
            // unless the peer does wrong: then the bytes are any, and nobody looks at them but who
            // copies them to their place.
            unsafe {
                std::slice::from_raw_parts(from, len - head_len)
            }
        });
        Some(LaneSegment { head, payload: payload.map(SegmentPayload::Here) })
    }

    /// Looks at what the writer has published, if all that is known was taken; whether there is
    /// anything.
    ///
    /// # Errors
    /// If it has written nonsense.
    pub fn look(&mut self) -> Result<bool, Corrupt> {
        if self.head != self.tail || self.is_broken {
            return Ok(!self.is_broken);
        }
        let line = &self.ring.counters().writer;
        let tail = line.tail.load(Ordering::Acquire);
        let unread = tail.wrapping_sub(self.head);
        if unread == 0 {
            return Ok(false);
        }
        if unread > SIZE || !unread.is_multiple_of(RECORD_ALIGN) {
            return Err(Corrupt);
        }
        self.tail = tail;
        self.beside = line.beside.load(Ordering::Relaxed);
        self.taken = Some(line.taken.each_ref().map(|taken| taken.load(Ordering::Acquire)));
        Ok(true)
    }

    /// Segments that the writer had taken of the other direction, by the last look; once.
    pub fn take_taken(&mut self) -> Option<[u32; 2]> {
        self.taken.take()
    }

    fn find_next(&mut self) -> Result<bool, Corrupt> {
        loop {
            if !self.look()? {
                return Ok(false);
            }
            if self.beside >> 1 & !(RECORD_ALIGN - 1) == self.head && self.beside != 0 {
                return self.look_beside();
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
            let head_len = self.ring.word(self.head, 1).load(Ordering::Relaxed);
            let record_bytes = match head_len & IS_LENT == 0 {
                true => record_bytes(len.into()),
                false => lent_record_bytes(len.into()),
            };
            if len == 0 || record_bytes > unread.min(to_end(self.head)) {
                return Err(Corrupt);
            }
            let is_lent = head_len & IS_LENT != 0;
            let head_len = (head_len & !IS_LENT) as usize;
            let (position, len) = match is_lent {
                false => (self.look_at(len as usize, head_len)?, len as usize),
                true => self.look_at_lent(len.into(), head_len)?,
            };
            self.front = Some(FrontRecord { position, len, head_len, record_bytes, is_lent });
            return Ok(true);
        }
    }

    /// Copies the record beside the tail, which is the next.
    fn look_beside(&mut self) -> Result<bool, Corrupt> {
        let len = (std::mem::take(&mut self.beside) & BESIDE_LEN_BITS) as usize;
        if len == 0 || len > BESIDE_MAX_BYTES {
            return Err(Corrupt);
        }
        let from = self.ring.counters().writer.bytes.get().cast::<u8>();
        // SAFETY: both have room for so much; all of it is copied: a fixed number takes less time.
        // The writer changes it only when this was taken, unless it does wrong: then the bytes are
        // any, and this is the only look at them.
        unsafe {
            ptr::copy_nonoverlapping(from, self.head_copy.as_mut_ptr(), BESIDE_MAX_BYTES);
        }
        let (position, record_bytes) = (self.head, RECORD_ALIGN);
        self.front =
            Some(FrontRecord { position, len, head_len: len, record_bytes, is_lent: false });
        Ok(true)
    }

    /// Copies what is looked at of the record at the head, whose segment has `len` bytes; where the
    /// segment begins.
    fn look_at(&mut self, len: usize, head_len: usize) -> Result<u64, Corrupt> {
        let is_header = [TAGGED_LEN, UNTAGGED_LEN].contains(&head_len);
        if if len > WHOLE_MAX_BYTES { !is_header } else { head_len != len } {
            return Err(Corrupt);
        }
        let position = self.head + segment_offset(len, head_len);
        self.copy_head(position, head_len);
        Ok(position)
    }

    /// The same for one whose payload is lent, with a list of `list_bytes`; also the bytes of the
    /// segment.
    fn look_at_lent(&mut self, list_bytes: u64, head_len: usize) -> Result<(u64, usize), Corrupt> {
        let count = list_bytes / PIECE_BYTES;
        let is_list = list_bytes.is_multiple_of(PIECE_BYTES) && count <= PIECES_MAX;
        if !is_list || ![TAGGED_LEN, UNTAGGED_LEN].contains(&head_len) {
            return Err(Corrupt);
        }
        let position = self.head + HEADER_BYTES;
        self.copy_head(position, head_len);
        let (ring, at) = (&self.ring, self.head);
        let load = |index| ring.list_word(at, index).load(Ordering::Relaxed);
        let pieces = (0..count).map(|index| (load(2 * index), load(2 * index + 1)));
        let pieces: Vec<_> =
            pieces.map(|(addr, len)| piece(addr, len)).collect::<Result<_, _>>()?;
        let payload_bytes: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        // More than that no segment has, and no offset within a message overflows.
        if payload_bytes > LENT_MAX_BYTES as u64 {
            return Err(Corrupt);
        }
        self.loan.as_mut().ok_or(Corrupt)?.set(pieces.into_iter());
        Ok((position, head_len + payload_bytes as usize))
    }

    fn copy_head(&mut self, position: u64, head_len: usize) {
        let from = self.ring.at(position);
        // SAFETY: within the record, and the copy has room for it.
        unsafe { ptr::copy_nonoverlapping(from, self.head_copy.as_mut_ptr(), head_len) };
    }

    /// Takes the first record.
    pub fn pop(&mut self) {
        if let Some(FrontRecord { record_bytes, .. }) = self.front.take() {
            self.head += record_bytes;
            self.placed += 1;
        }
    }

    /// Segments taken, modulo 2^32, as far as the peer may be told with what is written next.
    pub fn announced(&self) -> u32 {
        self.announced
    }

    /// Has the peer told of what was taken so far, with what is written next.
    pub fn announce(&mut self) {
        self.announced = self.placed as u32;
    }

    /// Gives back the room of what was taken, and counts it; whether there was anything.
    pub fn release(&mut self) -> bool {
        let any = self.published != self.placed;
        if any {
            self.published = self.placed;
            self.announce();
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

    /// Writes this over the words of the record that was written last, of 2018 bytes, and over its
    /// list.
    pub fn forge_last(&self, words: (u32, u32), list: [u64; 2]) {
        let at = self.tail - record_bytes(2018);
        self.ring.word(at, 0).store(words.0, Ordering::Relaxed);
        self.ring.word(at, 1).store(words.1, Ordering::Relaxed);
        self.ring.list_word(at, 0).store(list[0], Ordering::Relaxed);
        self.ring.list_word(at, 1).store(list[1], Ordering::Relaxed);
    }

    /// Writes this into the counter that the reader trusts.
    pub fn corrupt_tail(&self, tail: u64) {
        self.ring.counters().writer.tail.store(tail, Ordering::Release);
    }

    /// Writes this as the length of the record at `position`.
    pub fn corrupt_length(&self, position: u64, length: u32) {
        self.ring.word(position, 0).store(length, Ordering::Release);
    }

    /// Whether nothing was ever written at the start of the ring.
    pub fn is_untouched(&self) -> bool {
        (0..64).all(|line| self.ring.word(line * RECORD_ALIGN, 0).load(Ordering::Relaxed) == 0)
    }

    /// Writes this over the word that says where the record beside the tail is, and how long.
    pub fn corrupt_beside(&self, word: u64) {
        self.ring.counters().writer.beside.store(word, Ordering::Release);
    }

    /// Writes this over what the writer says that it has taken.
    pub fn corrupt_taken(&self, taken: u32) {
        let line = &self.ring.counters().writer;
        line.taken.iter().for_each(|told| told.store(taken, Ordering::Release));
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
}
