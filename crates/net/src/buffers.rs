//! Receive buffers, reused while they are warm.

use weft_reactor::warm::Warm;
use weft_rnic::mpa::MAX_FPDU_LEN;

/// Bytes received at once, behind a frame that is not whole yet.
const RECEIVE_OCTETS: usize = 512 << 10;
/// Room for a frame that is not whole yet and the one that follows, from the reserve if there is no
/// other memory.
const LEAST_OCTETS: usize = 2 * MAX_FPDU_LEN;
const _: () = assert!(LEAST_OCTETS <= weft_memory::RESERVED_MAX);
/// Idle buffers that are kept.
const KEPT_MAX: usize = 8;

static POOL: Warm = Warm::new(RECEIVE_OCTETS + MAX_FPDU_LEN, KEPT_MAX);

/// A buffer with received bytes that have not been consumed.
pub struct Buffer {
    bytes: Box<[u8]>,
    /// Where these begin and end.
    start: usize,
    end: usize,
}

impl Buffer {
    /// An empty buffer.
    pub fn take() -> Self {
        Self { bytes: POOL.take(LEAST_OCTETS), start: 0, end: 0 }
    }

    /// Gives it back.
    pub fn put(self) {
        POOL.put(self.bytes);
    }

    /// Where to receive to. What is there moves to the front.
    pub fn room(&mut self) -> &mut [u8] {
        self.bytes.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let end = (self.end + RECEIVE_OCTETS).min(self.bytes.len());
        &mut self.bytes[self.end..end]
    }

    /// Notes that `octets` were received into the room.
    pub fn fill(&mut self, octets: usize) {
        self.end += octets;
    }

    /// What is there.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Removes `octets` from the front; moves nothing, because messages that wait for receives are
    /// taken one by one.
    pub fn consume(&mut self, octets: usize) {
        self.start += octets;
    }

    /// Removes everything.
    pub fn clear(&mut self) {
        (self.start, self.end) = (0, 0);
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}
