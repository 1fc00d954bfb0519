//! Receive buffers, reused while they are warm.

use std::sync::Mutex;

use weft_rnic::mpa::MAX_FPDU_LEN;

/// Octets received at once, behind a frame that is not whole yet.
const RECEIVE_OCTETS: usize = 512 << 10;
/// Idle buffers that are kept.
const KEPT_MAX: usize = 8;

static POOL: Mutex<Vec<Box<[u8]>>> = Mutex::new(Vec::new());

/// A buffer with received octets that have not been consumed.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    filled: usize,
}

impl Buffer {
    /// An empty buffer.
    pub fn take() -> Self {
        let kept = POOL.lock().expect("buffer pool lock").pop();
        let bytes = kept.unwrap_or_else(|| vec![0; RECEIVE_OCTETS + MAX_FPDU_LEN].into());
        Self { bytes, filled: 0 }
    }

    /// Gives it back.
    pub fn put(self) {
        let mut pool = POOL.lock().expect("buffer pool lock");
        if pool.len() < KEPT_MAX {
            pool.push(self.bytes);
        }
    }

    /// Where to receive to.
    pub fn room(&mut self) -> &mut [u8] {
        let end = (self.filled + RECEIVE_OCTETS).min(self.bytes.len());
        &mut self.bytes[self.filled..end]
    }

    /// Notes that `octets` were received into the room.
    pub fn fill(&mut self, octets: usize) {
        self.filled += octets;
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.filled]
    }

    /// Removes `octets` from the front.
    pub fn consume(&mut self, octets: usize) {
        self.bytes.copy_within(octets..self.filled, 0);
        self.filled -= octets;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        self.filled = 0;
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.filled == 0
    }
}
