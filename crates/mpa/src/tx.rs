//! Framing: ULPDUs into FPDUs (RFC 5044, section 4).
//!
//! Small payloads are staged beside the headers, so that the kernel gets few pieces and the CRC
//! runs over one stretch; large ones stay in registered memory. Read Responses are staged whatever
//! their size: the application may change that memory, and so may an Atomic of the same batch, and
//! TCP must take what the CRC was computed over.

use std::collections::VecDeque;

use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, MemoryPiece, Piece, RegisteredMemory, SegmentId, UlpduSource};

use crate::marker;

/// Payload pieces of at least this many bytes are sent from application memory; copying shorter
/// ones costs less than another entry in the system call.
const COPY_BELOW: u32 = 1024;

/// The sending half of a stream.
pub(crate) struct Framer {
    crc: bool,
    markers: bool,
    /// Stream bytes framed so far.
    framed: u64,
    /// Stream bytes that TCP took.
    transmitted: u64,
    /// End of the last frame that TCP accepted entirely.
    boundary: u64,
    /// Segments that TCP has not taken in full, with the stream byte at which each ends.
    in_flight: VecDeque<(u64, SegmentId)>,
    ulpdu: Gather,
}

impl Framer {
    pub(crate) fn new(crc: bool, markers: bool) -> Self {
        Self {
            crc,
            markers,
            framed: 0,
            transmitted: 0,
            boundary: 0,
            in_flight: VecDeque::new(),
            ulpdu: Gather::new(),
        }
    }

    /// Frames the next segment of `source` into `out`; false if there is none.
    pub(crate) fn frame_next(
        &mut self,
        mulpdu: u16,
        source: &mut impl UlpduSource,
        memory: &impl RegisteredMemory,
        out: &mut Gather,
    ) -> bool {
        let Some(id) = source.next(mulpdu) else { return false };
        self.ulpdu.clear();
        source.gather(&id, &mut self.ulpdu);
        self.frame(source.may_change(id), memory, out);
        self.in_flight.push_back((self.framed, id));
        true
    }

    /// TCP took `octets` more: the segments that are complete with them are acknowledged.
    pub(crate) fn handle_transmitted(&mut self, octets: usize, source: &mut impl UlpduSource) {
        self.transmitted += octets as u64;
        debug_assert!(self.transmitted <= self.framed, "more transmitted than framed");
        while let Some(&(end, id)) = self.in_flight.front()
            && end <= self.transmitted
        {
            self.boundary = end;
            self.in_flight.pop_front();
            source.acked(id);
        }
    }

    /// Forgets the frames that TCP has taken nothing of; `false` if it has a part of one.
    pub(crate) fn forget_unsent(&mut self) -> bool {
        if self.boundary != self.transmitted {
            return false;
        }
        self.in_flight.clear();
        self.framed = self.transmitted;
        true
    }

    fn frame(&mut self, staged: bool, memory: &impl RegisteredMemory, out: &mut Gather) {
        let copy_below = if staged { u32::MAX } else { COPY_BELOW };
        // The MULPDU bounds it.
        let length = self.ulpdu.len() as u16;
        let pad = (2 + self.ulpdu.len()).wrapping_neg() % 4;
        let mut fpdu = Fpdu::begin(self.framed, self.markers, self.crc, memory, out);
        fpdu.put_bytes(&length.to_be_bytes());
        for piece in self.ulpdu.pieces() {
            match *piece {
                Piece::Slab { start, len } => fpdu.put_bytes(self.ulpdu.staged(start, len)),
                Piece::Memory(piece) if piece.len < copy_below => fpdu.put_copy(piece),
                Piece::Memory(piece) => fpdu.put_memory(piece),
            }
        }
        fpdu.put_bytes(&[0; 3][..pad]);
        self.framed = fpdu.finish();
    }
}

/// One frame being written.
struct Fpdu<'a, M> {
    out: &'a mut Gather,
    memory: &'a M,
    /// The CRC before `staged_from`; `None` if none was agreed.
    crc: Option<Crc32c>,
    /// Where in the slab the bytes begin that the CRC does not cover yet.
    staged_from: usize,
    markers: bool,
    position: u64,
    /// Stream position of the length field.
    start: u64,
}

impl<'a, M: RegisteredMemory> Fpdu<'a, M> {
    fn begin(position: u64, markers: bool, crc: bool, memory: &'a M, out: &'a mut Gather) -> Self {
        let leading = if marker::distance(position) == 0 { marker::LEN as u64 } else { 0 };
        Self {
            staged_from: out.slab().len(),
            out,
            memory,
            crc: crc.then(Crc32c::new),
            markers,
            position,
            start: position + leading,
        }
    }

    fn put_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.room()));
            self.out.push_bytes(now);
            self.position += now.len() as u64;
            bytes = later;
        }
    }

    fn put_copy(&mut self, piece: MemoryPiece) {
        self.put_split(piece, |fpdu, part| fpdu.out.push_copy(fpdu.memory, part));
    }

    fn put_memory(&mut self, piece: MemoryPiece) {
        self.put_split(piece, |fpdu, part| {
            fpdu.cover_staged();
            fpdu.crc = fpdu.crc.map(|crc| fpdu.memory.crc32c(crc, part));
            fpdu.out.push_memory(part);
        });
    }

    /// Puts `piece` in the parts that markers leave.
    fn put_split(&mut self, mut piece: MemoryPiece, put: impl Fn(&mut Self, MemoryPiece)) {
        while piece.len > 0 {
            let len = piece.len.min(u32::try_from(self.room()).unwrap_or(u32::MAX));
            put(self, MemoryPiece { addr: piece.addr, len });
            self.position += u64::from(len);
            piece = MemoryPiece { addr: piece.addr + u64::from(len), len: piece.len - len };
        }
    }

    /// Bytes before the next marker, after putting one that is due.
    fn room(&mut self) -> usize {
        if !self.markers {
            return usize::MAX;
        }
        if marker::distance(self.position) == 0 {
            self.out.push_bytes(&marker::encode(self.position.saturating_sub(self.start)));
            self.position += marker::LEN as u64;
        }
        marker::distance(self.position)
    }

    fn cover_staged(&mut self) {
        if let Some(crc) = &mut self.crc {
            let slab = self.out.slab();
            *crc = crc.update(&slab[self.staged_from..]);
            self.staged_from = slab.len();
        }
    }

    /// Puts the CRC, zero if none was agreed, and returns the position after it.
    fn finish(mut self) -> u64 {
        // A marker between padding and CRC is covered by this CRC.
        self.room();
        self.cover_staged();
        self.out.push_bytes(&self.crc.map_or([0; 4], Crc32c::to_wire));
        self.position + 4
    }
}
