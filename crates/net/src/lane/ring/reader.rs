//! The end of a ring that reads.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use weft_rnic::wire::ddp::{TAGGED_LEN, UNTAGGED_LEN};
use weft_rnic::wire::llp::MemoryPiece;
use weft_rnic::{LENT_MAX_BYTES, LaneSegment};
use weft_verbs::mr::SegmentPayload;

use super::super::loan::{Lender, LentRecord, LoanLoss};
use super::super::memory::Mapping;
use super::{
    BESIDE_LEN_BITS, BESIDE_MAX_BYTES, Corrupt, FlowCounters, GO_TO_START, HEADER_BYTES, IS_LENT,
    LaneRing, PIECE_BYTES, PIECES_MAX, RECORD_ALIGN, SIZE, WHOLE_MAX_BYTES, lent_record_bytes,
    record_bytes, segment_offset, to_end,
};

/// A piece of the peer's memory, by two words that it wrote.
fn piece(addr: u64, len: u64) -> Result<MemoryPiece, Corrupt> {
    let is_range = len > 0 && addr.checked_add(len).is_some();
    let len = u32::try_from(len).ok().filter(|_| is_range).ok_or(Corrupt)?;
    Ok(MemoryPiece { addr, len })
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
    pub fn new(mapping: &Arc<Mapping>, counters: *const FlowCounters, bytes: *mut u8) -> Self {
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

    /// Segments taken, modulo 2^32.
    pub fn taken(&self) -> u32 {
        self.placed as u32
    }

    /// The same as far as the peer may be told with what is written next.
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
impl RingReader {
    /// Writes these into the counters that the writer trusts.
    pub fn corrupt(&self, head: u64, placed: u64) {
        let line = &self.ring.counters().reader;
        line.head.store(head, Ordering::Release);
        line.placed.store(placed, Ordering::Release);
    }
}
