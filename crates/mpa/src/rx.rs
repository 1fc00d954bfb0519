//! Deframing: FPDUs into ULPDUs (RFC 5044, sections 4 and 6).
//!
//! Works on whole frames in the caller's buffer; without markers the sink gets slices of it.

use weft_wire::crc::Crc32c;
use weft_wire::llp::{Placed, UlpduSink};

use crate::marker;
use crate::{MpaError, RxFault};

const LENGTH_LEN: usize = 2;
const CRC_LEN: usize = 4;

/// The receiving half of a stream.
pub(crate) struct Deframer {
    crc: bool,
    markers: bool,
    /// Stream bytes before the next frame.
    position: u64,
    /// Number of the next segment.
    next: u64,
    first_arrived: bool,
    /// Reception has ended: later bytes are dropped.
    ended: bool,
    /// A frame without its markers.
    stripped: Vec<u8>,
}

impl Deframer {
    pub(crate) fn new(crc: bool, markers: bool) -> Self {
        Self {
            crc,
            markers,
            position: 0,
            next: 0,
            first_arrived: false,
            ended: false,
            stripped: Vec::new(),
        }
    }

    /// Whether one valid frame has arrived.
    pub(crate) fn first_arrived(&self) -> bool {
        self.first_arrived
    }

    /// Places the whole frames at the start of `buf` and tells how many bytes they are. It stops
    /// at a frame that the sink holds; the next call offers that one again.
    pub(crate) fn handle_received<S: UlpduSink>(
        &mut self,
        buf: &[u8],
        sink: &mut S,
    ) -> Result<usize, RxFault<S::Fault>> {
        if self.ended {
            return Ok(buf.len());
        }
        let delivered = self.next;
        let mut result = self.place_frames(buf, sink);
        if self.next > delivered
            && let Err(fault) = sink.deliver(self.next)
        {
            // It concerns segments before the one that ended the placing.
            result = Err(RxFault::Sink(fault));
        }
        self.ended = result.is_err();
        result
    }

    fn place_frames<S: UlpduSink>(
        &mut self,
        buf: &[u8],
        sink: &mut S,
    ) -> Result<usize, RxFault<S::Fault>> {
        let mut rest = buf;
        while let Some(frame) = WholeFpdu::locate(rest, self.position, self.markers) {
            if self.crc && !frame.crc_is_right() {
                return Err(RxFault::Mpa(MpaError::Crc));
            }
            let content = if self.markers {
                frame.strip(self.position, &mut self.stripped).map_err(RxFault::Mpa)?;
                &self.stripped
            } else {
                frame.octets
            };
            self.first_arrived = true;
            let ulpdu = &content[LENGTH_LEN..][..frame.ulpdu_len];
            let placed = sink.place(self.next, ulpdu).map_err(RxFault::Sink)?;
            if matches!(placed, Placed::Held | Placed::Refused) {
                break;
            }
            self.next += 1;
            self.position += frame.octets.len() as u64;
            rest = &rest[frame.octets.len()..];
        }
        Ok(buf.len() - rest.len())
    }
}

/// A whole frame in the receive buffer.
struct WholeFpdu<'a> {
    /// From the marker before it or its length field to its CRC.
    octets: &'a [u8],
    /// Bytes of the marker before it.
    leading: usize,
    ulpdu_len: usize,
}

impl<'a> WholeFpdu<'a> {
    /// The frame at the start of `buf`, which is at `position`, if all of it is there.
    fn locate(buf: &'a [u8], position: u64, markers: bool) -> Option<Self> {
        let leading = if markers && marker::distance(position) == 0 { marker::LEN } else { 0 };
        let length = buf.get(leading..leading + LENGTH_LEN)?.first_chunk()?;
        let ulpdu_len = usize::from(u16::from_be_bytes(*length));
        let content = (LENGTH_LEN + ulpdu_len).next_multiple_of(4) + CRC_LEN;
        let overhead = if markers { marker::overhead(position, content) } else { 0 };
        let octets = buf.get(..content + overhead)?;
        Some(Self { octets, leading, ulpdu_len })
    }

    fn crc_is_right(&self) -> bool {
        let (covered, crc) = self.octets.split_at(self.octets.len() - CRC_LEN);
        Crc32c::of(covered) == crc
    }

    /// Copies the content into `out`, without the markers, which must point to its start.
    fn strip(&self, position: u64, out: &mut Vec<u8>) -> Result<(), MpaError> {
        out.clear();
        let mut at = 0;
        while at < self.octets.len() {
            let until_marker = marker::distance(position + at as u64);
            let (now, later) = self.octets[at..].split_at(until_marker.min(self.octets.len() - at));
            out.extend_from_slice(now);
            at += now.len();
            if let Some(octets) = later.first_chunk() {
                let back = at.saturating_sub(self.leading) as u64;
                if !marker::matches(*octets, back) {
                    return Err(MpaError::Marker);
                }
                at += marker::LEN;
            }
        }
        Ok(())
    }
}
