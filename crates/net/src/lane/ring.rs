//! One direction of a lane: a ring of bytes in memory that two processes map.
//!
//! Invariant: `tail` (bytes ever written) and `head` (bytes ever read) only grow, and
//! `0 <= tail - head <= size`. Each side keeps its own counter private and takes only the other's
//! from the shared page, where it checks that invariant: whatever a peer writes there, no access
//! leaves the ring, and a counter that breaks it ends the lane.
//!
//! A ring that ran empty may go on at its start ([`Shared::jump`]), so that a connection with few
//! bytes in flight touches few pages.
//!
//! Who is about to sleep says so in the ring (`reader_sleeps`, `writer_sleeps`), then looks once
//! more; who publishes a counter looks there afterwards. With a full fence between each pair, one
//! of the two sees the other, so no bell is missed and none is rung for a side that is awake.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_rnic::wire::llp::Piece;
use weft_rnic::{Batch, Written};

use super::memory::Mapping;

/// An empty ring goes on at its start from here: less than a page each way stays warm.
const JUMP_AT_BYTES: u64 = 16 << 10;

/// The two counters of a ring are broken: the peer is not to be trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// A counter with a cache line of its own.
#[repr(C, align(64))]
struct Line {
    value: AtomicU64,
    /// In the writer's line, [`Shared::jump`].
    second: AtomicU64,
}

/// The page before the bytes of a ring. All zero is an empty ring.
#[repr(C)]
pub(super) struct Shared {
    writer: Line,
    reader: Line,
    reader_sleeps: Line,
    writer_sleeps: Line,
    finished: Line,
}

impl Shared {
    fn tail(&self) -> &AtomicU64 {
        &self.writer.value
    }

    /// From this position to the next multiple of the size there is nothing; 0 is nowhere.
    fn jump(&self) -> &AtomicU64 {
        &self.writer.second
    }

    fn head(&self) -> &AtomicU64 {
        &self.reader.value
    }
}

/// What both ends of a ring have: the page and the bytes, which are mapped twice in a row so that
/// each piece of up to `size` bytes is one slice.
struct LaneRing {
    shared: *const Shared,
    bytes: *mut u8,
    size: u64,
    /// Keeps both mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: the mapping lives as long as this does; it is accessed through atomics, and the bytes by
// one writer and one reader at disjoint places.
unsafe impl Send for LaneRing {}

impl LaneRing {
    fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        let (shared, bytes) = mapping.ring(index);
        let size = mapping.ring_bytes() as u64;
        Self { shared: shared.cast(), bytes, size, _mapping: Arc::clone(mapping) }
    }

    fn shared(&self) -> &Shared {
        // SAFETY: mapped, aligned to a page, and of atomics only.
        unsafe { &*self.shared }
    }

    fn at(&self, position: u64) -> *mut u8 {
        let offset = position & (self.size - 1);
        // SAFETY: below the size.
        unsafe { self.bytes.add(offset as usize) }
    }
}

/// The end that writes.
pub struct RingWriter {
    ring: LaneRing,
    tail: u64,
    /// `head` when it was read last: it may have grown since.
    head: u64,
    /// The last jump: a reader that has read up to its start is at its end.
    jumped: (u64, u64),
    /// Bytes of what there was no room for.
    refused: u64,
}

impl RingWriter {
    /// The writing end of a ring of `mapping`.
    pub(super) fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        Self { ring: LaneRing::new(mapping, index), tail: 0, head: 0, jumped: (0, 0), refused: 1 }
    }

    /// Bytes that the peer has not read.
    ///
    /// # Errors
    /// If the peer has written nonsense.
    pub fn unread(&self) -> Result<u64, Corrupt> {
        let read = self.ring.shared().head().load(Ordering::Acquire);
        let (from, to) = self.jumped;
        let head = if read == from { to } else { read };
        // It only grows, and not beyond the tail.
        let grown = head.wrapping_sub(self.head) <= self.tail - self.head;
        if grown { Ok(self.tail - head) } else { Err(Corrupt) }
    }

    /// Whether there is room for what was refused last.
    ///
    /// # Errors
    /// As of [`RingWriter::unread`].
    pub fn has_room(&self) -> Result<bool, Corrupt> {
        Ok(self.ring.size - self.unread()? >= self.refused)
    }

    /// Copies what is left of `out`, all of it or nothing: memory that turns out to be gone must
    /// not leave the peer with half a frame. The reader sees it once [`RingWriter::publish`] is
    /// called.
    pub fn write(&mut self, out: &Batch<'_>) -> Written {
        let Ok(unread) = self.unread() else { return Written::Failed };
        self.head = self.tail - unread;
        if unread == 0 {
            self.jump_to_start();
        }
        let left = (out.gather.len() - out.written) as u64;
        if left > self.ring.size - unread {
            self.refused = left.min(self.ring.size);
            return Written::Blocked;
        }
        let (mut skip, mut done) = (out.written as u64, 0);
        for piece in out.gather.pieces() {
            let len = match piece {
                Piece::Slab { len, .. } => u64::from(*len),
                Piece::Memory(memory) => u64::from(memory.len),
            };
            if skip >= len {
                skip -= len;
                continue;
            }
            let take = len - skip;
            if !self.copy(out, piece, skip, take, done) {
                return Written::Gone;
            }
            (skip, done) = (0, done + take);
        }
        self.tail += done;
        Written::Octets(done as usize)
    }

    /// Copies `take` bytes of a piece behind the `done` bytes before it; whether they were there.
    fn copy(&self, out: &Batch<'_>, piece: &Piece, skip: u64, take: u64, done: u64) -> bool {
        let to = self.ring.at(self.tail + done);
        match piece {
            Piece::Slab { start, len } => {
                let from = out.gather.staged(*start, *len);
                let from = &from[skip as usize..(skip + take) as usize];
                // SAFETY: `to` has room for what the ring has room for, being mapped twice.
                unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
                true
            }
            // SAFETY: the application registered it, and `to` is as above.
            Piece::Memory(memory) => unsafe {
                weft_guard::read(memory.addr + skip, to, take as usize)
            },
        }
    }

    /// Goes on at the start of an empty ring.
    fn jump_to_start(&mut self) {
        let offset = self.tail & (self.ring.size - 1);
        if offset < JUMP_AT_BYTES {
            return;
        }
        // The reader is at the tail, and comes to the jump before it comes to anything else.
        self.ring.shared().jump().store(self.tail, Ordering::Relaxed);
        let from = self.tail;
        self.tail += self.ring.size - offset;
        self.jumped = (from, self.tail);
        self.head = self.tail;
    }

    /// Lets the reader see what was written; whether it sleeps and is to be woken.
    pub fn publish(&mut self) -> bool {
        let shared = self.ring.shared();
        shared.tail().store(self.tail, Ordering::Release);
        fence(Ordering::SeqCst);
        shared.reader_sleeps.value.load(Ordering::Relaxed) != 0
            && shared.reader_sleeps.value.swap(0, Ordering::AcqRel) != 0
    }

    /// Says that the writer sleeps until there is room for what was refused; whether there is
    /// already.
    ///
    /// # Errors
    /// As of [`RingWriter::unread`].
    pub fn sleep(&mut self) -> Result<bool, Corrupt> {
        self.ring.shared().writer_sleeps.value.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.has_room()
    }

    /// Says that nothing follows.
    pub fn finish(&mut self) {
        self.ring.shared().finished.value.store(1, Ordering::Release);
    }
}

/// The end that reads.
pub struct RingReader {
    ring: LaneRing,
    head: u64,
    /// What the writer knows of it.
    published: u64,
    sleeps: bool,
}

impl RingReader {
    /// The reading end of a ring of `mapping`.
    pub(super) fn new(mapping: &Arc<Mapping>, index: usize) -> Self {
        Self { ring: LaneRing::new(mapping, index), head: 0, published: 0, sleeps: false }
    }

    /// Bytes that are there.
    ///
    /// # Errors
    /// If the peer has written nonsense.
    pub fn available(&self) -> Result<u64, Corrupt> {
        self.next().map(|(_, available)| available)
    }

    /// Where the bytes that are there begin, and how many they are.
    fn next(&self) -> Result<(u64, u64), Corrupt> {
        let shared = self.ring.shared();
        let tail = shared.tail().load(Ordering::Acquire);
        if tail == self.head {
            return Ok((self.head, 0));
        }
        let jumped = self.head != 0 && shared.jump().load(Ordering::Relaxed) == self.head;
        let head = match jumped {
            true => (self.head + self.ring.size) & !(self.ring.size - 1),
            false => self.head,
        };
        let available = tail.wrapping_sub(head);
        if available > self.ring.size { Err(Corrupt) } else { Ok((head, available)) }
    }

    /// Moves what is there to `room`; how much that was.
    ///
    /// # Errors
    /// As of [`RingReader::available`].
    pub fn read(&mut self, room: &mut [u8]) -> Result<usize, Corrupt> {
        let (head, available) = self.next()?;
        let len = (available as usize).min(room.len());
        // SAFETY: `len` bytes of the ring were written before the tail said so, and are not
        // written again before the head says so, unless the peer does wrong: then they are any.
        unsafe { ptr::copy_nonoverlapping(self.ring.at(head), room.as_mut_ptr(), len) };
        self.head = head + len as u64;
        Ok(len)
    }

    /// Gives the room of what was read back; whether the writer sleeps and is to be woken. The
    /// writer learns of it in steps of a quarter of the ring, and once the ring is empty.
    pub fn publish(&mut self) -> bool {
        let shared = self.ring.shared();
        let read = self.head - self.published;
        let empty = shared.tail().load(Ordering::Relaxed) == self.head;
        if read == 0 || !empty && read < self.ring.size / 4 {
            return false;
        }
        self.published = self.head;
        shared.head().store(self.head, Ordering::Release);
        fence(Ordering::SeqCst);
        shared.writer_sleeps.value.load(Ordering::Relaxed) != 0
            && shared.writer_sleeps.value.swap(0, Ordering::AcqRel) != 0
    }

    /// Says that the reader sleeps until there is something.
    pub fn sleep(&mut self) {
        self.sleeps = true;
        self.ring.shared().reader_sleeps.value.store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Says that it is awake.
    pub fn wake(&mut self) {
        if std::mem::take(&mut self.sleeps) {
            self.ring.shared().reader_sleeps.value.store(0, Ordering::Relaxed);
        }
    }

    /// Whether it said that it sleeps, and has not said otherwise since.
    pub fn sleeps(&self) -> bool {
        self.sleeps
    }

    /// Whether the writer said that nothing follows what is there.
    pub fn is_finished(&self) -> bool {
        self.ring.shared().finished.value.load(Ordering::Acquire) != 0
    }
}

#[cfg(test)]
impl RingWriter {
    /// Where in the ring the next byte goes.
    pub fn offset(&self) -> u64 {
        self.tail & (self.ring.size - 1)
    }

    /// Writes this into the counter that the reader trusts.
    pub fn corrupt(&self, tail: u64) {
        self.ring.shared().tail().store(tail, Ordering::Release);
    }
}

#[cfg(test)]
impl RingReader {
    /// Writes this into the counter that the writer trusts.
    pub fn corrupt(&self, head: u64) {
        self.ring.shared().head().store(head, Ordering::Release);
    }
}
