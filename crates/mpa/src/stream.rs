//! Full operation: a framer and a deframer, and the rule that the initiator sends first.

use weft_wire::capability::Capabilities;
use weft_wire::llp::{Gather, RegisteredMemory, UlpduSink, UlpduSource};

use crate::RxFault;
use crate::capability::capabilities;
use crate::marker;
use crate::negotiate::{Agreed, MpaRole};
use crate::rx::Deframer;
use crate::tx::Framer;

/// The smallest MULPDU that is ever told to DDP (RFC 5044, section 4.1).
pub const MIN_MULPDU: u16 = 128;
/// The largest: with all markers the pointer of the last one still has its 16 bits.
pub const MAX_MULPDU: u16 = 64768;
/// Bytes of the longest frame that a length field can announce, markers included: what a receive
/// buffer must hold.
pub const MAX_FPDU_LEN: usize = 65544 + 130 * marker::LEN;

/// EMSS of Ethernet without TCP options, until the true one is known.
const DEFAULT_EMSS: u32 = 1460;

/// FPDU framing over one TCP connection in full operation.
///
/// A responder sends nothing until one valid FPDU has arrived (RFC 5044, section 7.1.2, rule 4).
pub struct MpaStream {
    framer: Framer,
    deframer: Deframer,
    held: bool,
    markers_out: bool,
    capabilities: Capabilities,
    mulpdu: u16,
}

impl MpaStream {
    /// A stream whose first byte, in both directions, is the first after the start frames.
    pub fn new(role: MpaRole, agreed: &Agreed) -> Self {
        let mut stream = Self {
            framer: Framer::new(agreed.crc, agreed.markers_out),
            deframer: Deframer::new(agreed.crc, agreed.markers_in),
            held: role == MpaRole::Responder,
            markers_out: agreed.markers_out,
            capabilities: capabilities(agreed),
            mulpdu: MIN_MULPDU,
        };
        stream.set_emss(DEFAULT_EMSS);
        stream
    }

    /// Tells the effective maximum segment size of TCP, so that frames fill segments.
    pub fn set_emss(&mut self, emss: u32) {
        let interval = marker::INTERVAL as u32;
        let markers =
            if self.markers_out { emss.div_ceil(interval) * marker::LEN as u32 } else { 0 };
        let fits = emss.saturating_sub(6 + markers + emss % 4);
        self.mulpdu = fits.clamp(u32::from(MIN_MULPDU), u32::from(MAX_MULPDU)) as u16;
    }

    /// The largest ULPDU that is framed now (RFC 5044, section 4.1).
    pub fn mulpdu(&self) -> u16 {
        self.mulpdu
    }

    /// Capabilities below DDP on this connection.
    pub fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Whether one valid FPDU has arrived; for a responder that ends the set-up.
    pub fn has_received_first(&self) -> bool {
        self.deframer.first_arrived()
    }

    /// Lets a responder send before anything has arrived. For servers that speak first to peers
    /// that tolerate it, once the peer has certainly taken in the Reply.
    pub fn release(&mut self) {
        self.held = false;
    }

    /// Whether a responder still waits for the first FPDU before it may send.
    pub fn is_held(&self) -> bool {
        self.held && !self.has_received_first()
    }

    /// Frames segments of `source` into `out` until that has `limit` bytes or the source is dry;
    /// returns how many. The last frame may pass the limit. None while [`MpaStream::is_held`].
    pub fn poll_transmit(
        &mut self,
        source: &mut impl UlpduSource,
        memory: &impl RegisteredMemory,
        out: &mut Gather,
        limit: usize,
    ) -> usize {
        let mut frames = 0;
        if self.is_held() {
            return frames;
        }
        while out.len() < limit && self.framer.frame_next(self.mulpdu, source, memory, out) {
            frames += 1;
        }
        frames
    }

    /// TCP took `octets` more of what was framed: each segment that is complete with them is
    /// acknowledged to `source`.
    pub fn handle_transmitted(&mut self, octets: usize, source: &mut impl UlpduSource) {
        self.framer.handle_transmitted(octets, source);
    }

    /// Forgets what was framed and not transmitted, so that other frames can follow what was;
    /// `false` if that ends within a frame. The segments are not acknowledged.
    pub fn forget_unsent(&mut self) -> bool {
        self.framer.forget_unsent()
    }

    /// Takes the whole frames at the start of `buf` apart: places each segment, then delivers up
    /// to the last. Returns the bytes of those frames; the caller keeps the rest and calls again
    /// with it in front. A buffer of [`MAX_FPDU_LEN`] never stands still.
    ///
    /// # Errors
    /// The first fault, after the segments before it have been delivered. It ends this half of the
    /// stream: whatever is passed in later is consumed and dropped (RFC 5044, section 8; RFC 5041,
    /// section 7.1).
    pub fn handle_received<S: UlpduSink>(
        &mut self,
        buf: &[u8],
        sink: &mut S,
    ) -> Result<usize, RxFault<S::Fault>> {
        self.deframer.handle_received(buf, sink)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mulpdu_follows_the_segment_size() {
        let of = |emss, markers_out| {
            let mut stream =
                MpaStream::new(MpaRole::Initiator, &Agreed { markers_out, ..Agreed::default() });
            stream.set_emss(emss);
            stream.mulpdu()
        };
        assert_eq!([of(1460, false), of(1460, true)], [1454, 1442]);
        assert_eq!([of(1448, false), of(1448, true)], [1442, 1430]);
        assert_eq!([of(8948, false), of(8948, true)], [8942, 8870]);
        assert_eq!([of(65483, false), of(u32::MAX, true)], [64768, 64768]);
        assert_eq!([of(1451, false), of(1449, true)], [1442, 1430]);
        assert_eq!([of(0, false), of(100, true)], [128, 128]);
    }

    #[test]
    fn the_longest_frame_has_room() {
        let content: usize = (2 + 65535_usize).next_multiple_of(4) + 4;
        assert_eq!(content + marker::overhead(0, content), MAX_FPDU_LEN);
    }
}
