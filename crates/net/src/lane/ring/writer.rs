//! The end of a ring that writes.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_rnic::wire::llp::{Gather, MemoryPiece, Piece};
use weft_rnic::{LENT_MIN_BYTES, Pushed};

use super::super::memory::Mapping;
use super::{
    BESIDE_MAX_BYTES, Corrupt, FlowCounters, GO_TO_START, HEADER_BYTES, IS_LENT, JUMP_AT_BYTES,
    JUMP_AT_RECORDS, LaneRing, PIECE_BYTES, PIECES_MAX, PREFETCH_BYTES, RECORD_ALIGN, SIZE,
    head_bytes, lent_record_bytes, record_bytes, segment_offset, to_end,
};

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
    pub fn new(mapping: &Arc<Mapping>, counters: *const FlowCounters, bytes: *mut u8) -> Self {
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
