//! What leaves next: frames of a byte stream, or datagrams.

use weft_shuttle::Route;
use weft_verbs::mr::RegionReader;
use weft_wire::llp::{Gather, Piece, RegisteredMemory};

/// What is to be written next.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Where the datagrams go; `None` for a byte stream.
    pub route: Option<&'a Route>,
    /// The pieces, and the bytes that they are staged in.
    pub gather: &'a Gather,
    /// The lengths in bytes of the datagrams that are left; none for a byte stream.
    pub lengths: &'a [u16],
    /// Datagrams that are longer than the path takes may be cut on the way (IP fragments).
    pub may_fragment: bool,
    /// Bytes at the front that are written already.
    pub written: usize,
}

/// How much of a batch the kernel took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// This many bytes; of datagrams, whole ones.
    Octets(usize),
    /// Nothing, for now.
    Blocked,
    /// The connection is gone.
    Failed,
    /// Nothing: memory that is to be written is not there (`EFAULT`).
    Gone,
}

/// Frames, and how much of them is written.
#[derive(Default)]
pub(crate) struct OutgoingFrames {
    pub gather: Gather,
    written: usize,
    generation: u64,
}

impl OutgoingFrames {
    pub fn batch(&self) -> Batch<'_> {
        let (gather, written) = (&self.gather, self.written);
        Batch { route: None, gather, lengths: &[], may_fragment: false, written }
    }

    /// Whether nothing is left to write.
    pub fn is_drained(&self) -> bool {
        self.written == self.gather.len()
    }

    pub fn restart(&mut self, generation: u64) {
        self.gather.clear();
        self.written = 0;
        self.generation = generation;
    }

    pub fn clear(&mut self) {
        self.restart(self.generation);
    }

    pub fn advance(&mut self, octets: usize) {
        self.written += octets;
    }

    /// Whether the memory that is left to write is still registered.
    pub fn is_current(&mut self, regions: &RegionReader<'_>) -> bool {
        if self.generation == regions.generation() {
            return true;
        }
        self.generation = regions.generation();
        let mut skip = self.written;
        self.gather.pieces().iter().all(|piece| {
            let len = len_of(piece);
            let passed = len.min(skip);
            skip -= passed;
            match piece {
                Piece::Memory(memory) if passed < len => regions.still_holds(*memory),
                _ => true,
            }
        })
    }

    /// Copies what is left, so that the memory it names may go away. `false` when some of that
    /// memory is gone already: then nothing is left, and the last frame stays incomplete.
    pub fn detach(&mut self, regions: &RegionReader<'_>) -> bool {
        if self.is_drained() {
            return true;
        }
        let rest = if self.is_current(regions) { self.rest(regions) } else { None };
        self.clear();
        self.gather.push_bytes(rest.as_deref().unwrap_or_default());
        rest.is_some()
    }

    /// The next `octets` bytes that are to be written.
    pub fn copy_next(&self, octets: usize, regions: &RegionReader<'_>) -> Vec<u8> {
        let mut next = self.rest(regions).unwrap_or_default();
        next.truncate(octets);
        next
    }

    fn rest(&self, regions: &RegionReader<'_>) -> Option<Vec<u8>> {
        let mut all = Vec::with_capacity(self.gather.len());
        for piece in self.gather.pieces() {
            match piece {
                Piece::Slab { start, len } => {
                    all.extend_from_slice(self.gather.staged(*start, *len));
                }
                Piece::Memory(memory) => regions.copy_to(*memory, &mut all),
            }
        }
        (!regions.found_gone()).then(|| all.split_off(self.written))
    }
}

/// Datagrams that leave together.
#[derive(Default)]
pub(crate) struct DatagramBurst {
    pub transmit: weft_shuttle::Transmit,
    /// Datagrams and bytes that are written.
    written: (usize, usize),
    /// The rest is still to be written; the generation of the regions that it names.
    waiting: Option<u64>,
}

impl DatagramBurst {
    pub fn batch(&self) -> Batch<'_> {
        let weft_shuttle::Transmit { gather, route, may_fragment, .. } = &self.transmit;
        let (route, lengths, written) = (route.as_ref(), self.lengths(), self.written.1);
        Batch { route, gather, lengths, may_fragment: *may_fragment, written }
    }

    /// Lengths of the datagrams that are left.
    pub fn lengths(&self) -> &[u16] {
        &self.transmit.lengths[self.written.0..]
    }

    /// Notes that the first `octets` of what was left are written, whole datagrams. Gives whether
    /// any are left.
    pub fn advance(&mut self, octets: usize) -> bool {
        let end = self.written.1 + octets;
        while let Some(length) = self.lengths().first()
            && self.written.1 < end
        {
            self.written = (self.written.0 + 1, self.written.1 + usize::from(*length));
        }
        !self.lengths().is_empty()
    }

    /// Whether it is still to be written, and the memory it names is where it was.
    pub fn waits(&self, generation: u64) -> bool {
        self.waiting == Some(generation)
    }

    pub fn keep(&mut self, generation: u64) {
        self.waiting = Some(generation);
    }

    pub fn restart(&mut self) {
        self.waiting = None;
        self.written = (0, 0);
    }
}

fn len_of(piece: &Piece) -> usize {
    match piece {
        Piece::Slab { len, .. } => *len as usize,
        Piece::Memory(memory) => memory.len as usize,
    }
}
