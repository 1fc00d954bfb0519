//! The seam between DDP and its lower layer protocol (RFC 5041, section 1.1: "LLP").
//!
//! RDMAP/DDP above produces and consumes *segments*; MPA or Shuttle below carries them. Payload
//! stays where the application registered it: a segment is a few header bytes plus pieces that
//! name registered memory by address, and it can be gathered again at any time, so no layer keeps
//! a copy for retransmission.
//!
//! Order of calls, sender: [`UlpduSource::next`], [`UlpduSource::gather`] (any number of times),
//! [`UlpduSource::acked`] once. Receiver: [`UlpduSink::place`] for each segment as it arrives,
//! [`UlpduSink::deliver`] when the unbroken prefix grows.

use crate::crc::Crc32c;
use crate::ids::Msn;

/// Names a segment, so that it can be written again.
///
/// `wqe` is the source's own name for the message, opaque to the LLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId {
    /// The message this segment belongs to, in the source's numbering.
    pub wqe: u32,
    /// First payload octet of the segment within its message.
    pub offset: u32,
    /// Payload octets of the segment.
    pub len: u32,
}

/// Segments of one message that follow each other: each but the last is as long as the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRun {
    /// The first.
    pub first: SegmentId,
    /// How many they are, at least one.
    pub count: u64,
    /// Payload octets of the last.
    pub last_len: u32,
}

impl SegmentRun {
    /// One segment.
    pub fn new(first: SegmentId) -> Self {
        Self { first, count: 1, last_len: first.len }
    }

    /// Whether `id` follows; then it is part of the run.
    pub fn append(&mut self, id: SegmentId) -> bool {
        let follows = id.wqe == self.first.wqe
            && self.last_len == self.first.len
            && self.first.len > 0
            && u64::from(id.offset)
                == u64::from(self.first.offset) + self.count * u64::from(self.first.len);
        if follows {
            self.count += 1;
            self.last_len = id.len;
        }
        follows
    }

    /// The segment with `at` before it, which is less than `count`.
    pub fn get(&self, at: u64) -> SegmentId {
        let len = if at + 1 == self.count { self.last_len } else { self.first.len };
        let offset = self.first.offset + (at * u64::from(self.first.len)) as u32;
        SegmentId { wqe: self.first.wqe, offset, len }
    }

    /// The first `count` of them and the others, if any.
    pub fn split(self, count: u64) -> (Self, Option<Self>) {
        if count >= self.count {
            return (self, None);
        }
        let others = Self { first: self.get(count), count: self.count - count, ..self };
        (Self { count, last_len: self.first.len, ..self }, Some(others))
    }

    /// Each of them, in order.
    pub fn iter(self) -> impl Iterator<Item = SegmentId> {
        (0..self.count).map(move |at| self.get(at))
    }
}

/// A stretch of registered memory: an address in this process, never a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPiece {
    /// Address of the first octet.
    pub addr: u64,
    /// Length in octets.
    pub len: u32,
}

/// One stretch of bytes to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece {
    /// `len` octets of the slab, from `start`.
    Slab {
        /// Index of the first octet in the slab.
        start: u32,
        /// Length in octets.
        len: u32,
    },
    /// Octets of registered memory.
    Memory(MemoryPiece),
}

/// A list of pieces over one slab of staged bytes; reused, so that nothing is allocated in the
/// steady state.
///
/// Adjacent staged bytes form one piece.
#[derive(Default, Debug)]
pub struct Gather {
    slab: Vec<u8>,
    pieces: Vec<Piece>,
    len: usize,
}

impl Gather {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Empties the list and keeps its room.
    pub fn clear(&mut self) {
        self.slab.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// Drops what lies beyond the first `len` octets.
    pub fn truncate(&mut self, len: usize) {
        while self.len > len
            && let Some(last) = self.pieces.last_mut()
        {
            let over = (self.len - len) as u32;
            let (Piece::Slab { len: size, .. } | Piece::Memory(MemoryPiece { len: size, .. })) =
                last;
            let dropped = over.min(*size);
            *size -= dropped;
            let is_empty = *size == 0;
            if let Piece::Slab { .. } = last {
                self.slab.truncate(self.slab.len() - dropped as usize);
            }
            self.len -= dropped as usize;
            if is_empty {
                self.pieces.pop();
            }
        }
    }

    /// Octets of memory that it keeps for what is staged.
    pub fn room(&self) -> usize {
        self.slab.capacity()
    }

    /// Total octets named by the pieces.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The pieces in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The staged bytes which [`Piece::Slab`] points into.
    pub fn slab(&self) -> &[u8] {
        &self.slab
    }

    /// The staged bytes of a slab piece.
    pub fn staged(&self, start: u32, len: u32) -> &[u8] {
        &self.slab[start as usize..start as usize + len as usize]
    }

    /// Stages a copy of `bytes`.
    #[inline]
    pub fn push_bytes(&mut self, bytes: &[u8]) {
        let start = self.slab.len();
        self.slab.extend_from_slice(bytes);
        self.extend_staged(start);
    }

    /// Stages a copy of registered memory.
    pub fn push_copy(&mut self, memory: &impl RegisteredMemory, piece: MemoryPiece) {
        let start = self.slab.len();
        memory.copy_to(piece, &mut self.slab);
        self.extend_staged(start);
    }

    /// Stages whatever `write` appends to the slab, which it must not shorten.
    pub fn push_with<R>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> R) -> R {
        let start = self.slab.len();
        let result = write(&mut self.slab);
        self.extend_staged(start);
        result
    }

    /// Names registered memory without copying it.
    #[inline]
    pub fn push_memory(&mut self, piece: MemoryPiece) {
        if piece.len > 0 {
            self.len += piece.len as usize;
            self.pieces.push(Piece::Memory(piece));
        }
    }

    #[inline]
    fn extend_staged(&mut self, start: usize) {
        let added = self.slab.len() - start;
        if added == 0 {
            return;
        }
        self.len += added;
        if let Some(Piece::Slab { start: s, len }) = self.pieces.last_mut()
            && *s as usize + *len as usize == start
        {
            *len += added as u32;
            return;
        }
        self.pieces.push(Piece::Slab { start: start as u32, len: added as u32 });
    }
}

/// Reads of registered memory on behalf of layers that may not touch it themselves.
pub trait RegisteredMemory {
    /// Continues `crc` over the octets of `piece`.
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c;
    /// Appends the octets of `piece` to `out`.
    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>);
}

/// The sending side above the seam: hands out segments in order.
pub trait UlpduSource {
    /// The next new segment whose ULPDU (DDP header and payload) fits `mulpdu` octets.
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId>;
    /// Octets that [`UlpduSource::next`] has yet to hand out; `enough` or more if that is at least
    /// as much, or not known. Several paths end together by this.
    fn left(&self, enough: u64) -> u64 {
        enough
    }
    /// Appends the DDP header bytes and the payload of `id`; repeatable until `id` is acked.
    fn gather(&self, id: &SegmentId, out: &mut Gather);
    /// Whether the memory of `id` may rightly change while it is on its way, as that of a Read
    /// Response may: an LLP whose checksum must match what it sends later takes a copy.
    fn may_change(&self, id: SegmentId) -> bool {
        let _ = id;
        false
    }
    /// The LLP took responsibility for `id`. MPA: handed to TCP. Shuttle: placed at the peer.
    fn acked(&mut self, id: SegmentId);
    /// [`UlpduSource::acked`] for all of `run`, for less than that for each costs.
    fn acked_run(&mut self, run: SegmentRun) {
        run.iter().for_each(|id| self.acked(id));
    }
    /// Instead of [`UlpduSource::acked`] from an LLP that does not repair losses: `id` is taken
    /// for lost and will not be gathered again. To who has no use for that it is done with, too.
    fn lost(&mut self, id: SegmentId) {
        self.acked(id);
    }
    /// From an LLP whose peer says so: the peer has no receive for the messages after `credit`,
    /// and who sent them should wait for about `wait_us` at a time until it has one.
    fn receiver_not_ready(&mut self, credit: Msn, wait_us: u32) {
        let _ = (credit, wait_us);
    }
}

impl<T: UlpduSource + ?Sized> UlpduSource for &mut T {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        (**self).next(mulpdu)
    }

    fn left(&self, enough: u64) -> u64 {
        (**self).left(enough)
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        (**self).gather(id, out);
    }

    fn may_change(&self, id: SegmentId) -> bool {
        (**self).may_change(id)
    }

    fn acked(&mut self, id: SegmentId) {
        (**self).acked(id);
    }

    fn acked_run(&mut self, run: SegmentRun) {
        (**self).acked_run(run);
    }

    fn lost(&mut self, id: SegmentId) {
        (**self).lost(id);
    }

    fn receiver_not_ready(&mut self, credit: Msn, wait_us: u32) {
        (**self).receiver_not_ready(credit, wait_us);
    }
}

/// What became of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Its payload is in memory.
    Memory,
    /// It was consumed by the protocol itself.
    Control,
    /// It cannot be taken yet. The LLP keeps it and what is behind it, and offers it again.
    Held,
    /// It is of a request that will be refused, or of one behind that. The LLP need not keep it,
    /// and does not acknowledge it; what answers requests of this end is still offered.
    Refused,
    /// It arrived after a fault or the end of the stream and was dropped, RFC 5041, section 7.1.
    Dropped,
}

/// The receiving side above the seam.
pub trait UlpduSink {
    /// What a segment that must not be placed turns into; the stream ends with it.
    type Fault;
    /// Places segment `seq` (counted from 0 by the LLP) at once, in whatever order it came.
    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault>;
    /// Every segment before `frontier` has been placed, or missed.
    fn deliver(&mut self, frontier: u64) -> Result<(), Self::Fault>;
    /// From an LLP that does not repair losses: segments `first..=last`, at the frontier, will not
    /// come. Who counts on everything that was sent makes a fault of it.
    fn missed(&mut self, first: u64, last: u64) -> Result<(), Self::Fault> {
        let _ = (first, last);
        Ok(())
    }
}

impl<T: UlpduSink + ?Sized> UlpduSink for &mut T {
    type Fault = T::Fault;

    fn place(&mut self, seq: u64, ulpdu: &[u8]) -> Result<Placed, T::Fault> {
        (**self).place(seq, ulpdu)
    }

    fn deliver(&mut self, frontier: u64) -> Result<(), T::Fault> {
        (**self).deliver(frontier)
    }

    fn missed(&mut self, first: u64, last: u64) -> Result<(), T::Fault> {
        (**self).missed(first, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_falls_into_its_segments_wherever_it_is_split() {
        let id = |at: u32, len| SegmentId { wqe: 7, offset: 100 * at, len };
        let ids = [id(0, 100), id(1, 100), id(2, 100), id(3, 40)];
        let mut run = SegmentRun::new(ids[0]);
        assert!(ids[1..].iter().all(|id| run.append(*id)));
        assert!(!run.append(id(4, 100)) && !SegmentRun::new(ids[0]).append(ids[2]));
        for count in 1..=5 {
            let (first, others) = run.split(count);
            assert_eq!(first.count, count.min(4));
            let both = first.iter().chain(others.into_iter().flat_map(SegmentRun::iter));
            assert!(both.eq(ids));
        }
    }

    #[test]
    fn staged_bytes_side_by_side_are_one_piece() {
        let mut gather = Gather::new();
        gather.push_bytes(b"ab");
        gather.push_bytes(b"cd");
        gather.push_memory(MemoryPiece { addr: 64, len: 3 });
        gather.push_bytes(b"e");
        assert_eq!(gather.len(), 8);
        assert_eq!(
            gather.pieces(),
            [
                Piece::Slab { start: 0, len: 4 },
                Piece::Memory(MemoryPiece { addr: 64, len: 3 }),
                Piece::Slab { start: 4, len: 1 },
            ]
        );
        assert_eq!(gather.staged(0, 4), b"abcd");
    }

    #[test]
    fn what_is_dropped_leaves_no_trace() {
        let mut gather = Gather::new();
        gather.push_bytes(b"abcd");
        gather.push_memory(MemoryPiece { addr: 64, len: 3 });
        gather.push_bytes(b"efg");
        gather.truncate(99);
        for (len, pieces, staged) in [(9, 3, 6), (7, 2, 4), (6, 2, 4), (4, 1, 4), (1, 1, 1)] {
            gather.truncate(len);
            let left = (gather.len(), gather.pieces().len(), gather.slab().len());
            assert_eq!(left, (len, pieces, staged));
        }
        gather.push_bytes(b"z");
        assert_eq!(gather.pieces(), [Piece::Slab { start: 0, len: 2 }]);
        assert_eq!(gather.staged(0, 2), b"az");
        gather.truncate(0);
        assert!(gather.is_empty() && gather.pieces().is_empty());
    }
}
