//! Packets as a TUN device with segmentation offload hands them over: many segments in one bundle,
//! with one header and a checksum that is not finished.
//!
//! [`TunFrame::parse`] takes what was read. [`TunFrame::segments`] and [`TunFrame::wire_bytes`]
//! say what it is on the wire. [`TunFrame::run`] makes the bundle of some neighbouring segments, to
//! be written to another TUN device; [`TunFrame::segment`] makes one segment as it stands on the
//! wire.
//!
//! Invariant: the segments of a frame are those that a network adapter would have sent for it, and
//! the segments of all runs of a frame together are the same.

mod checksum;
mod headers;

use std::ops::Range;

use headers::{Ip, OffloadTransport};

/// The header before each packet: `struct virtio_net_hdr` (virtio 1.2, section 5.1.6), in
/// little-endian order.
pub const OFFLOAD_BYTES: usize = 10;
/// The largest packet that a TUN device hands over, with its header.
pub const BUNDLE_BYTES_MAX: usize = 65536 + OFFLOAD_BYTES;

const NEEDS_CHECKSUM: u8 = 1;
const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// What a TUN device says about a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Offload {
    flags: u8,
    gso_type: u8,
    header_bytes: u16,
    segment_bytes: u16,
    checksum_start: u16,
    checksum_offset: u16,
}

/// A packet or bundle of segments.
#[derive(Clone, Debug)]
pub struct TunFrame {
    /// The packet, and then whatever the buffer held before.
    buffer: Vec<u8>,
    bytes: usize,
    offload: Offload,
    ip: Ip,
    split: Option<Split>,
}

/// How a bundle falls into segments.
#[derive(Clone, Copy, Debug)]
struct Split {
    transport: OffloadTransport,
    /// Where the payload begins.
    headers: usize,
    /// How much of it each segment has, but for the last.
    each: usize,
}

/// Some segments as one bundle: three parts for one write.
#[derive(Debug)]
pub struct BundleParts<'a> {
    /// What goes before the packet.
    pub offload: [u8; OFFLOAD_BYTES],
    /// The headers, or as much of the packet as was changed.
    pub headers: &'a [u8],
    /// The rest.
    pub payload: &'a [u8],
}

/// A packet that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a damaged packet")]
pub struct Damaged;

impl TunFrame {
    /// Takes a packet, the first `bytes` of a buffer, with the header before it.
    ///
    /// # Errors
    /// The lengths contradict each other, or it is not IP.
    pub fn parse(
        offload: &[u8; OFFLOAD_BYTES],
        buffer: Vec<u8>,
        bytes: usize,
    ) -> Result<Self, Damaged> {
        let offload = Offload::parse(offload);
        let packet = buffer.get(..bytes).ok_or(Damaged)?;
        let ip = Ip::parse(packet).ok_or(Damaged)?;
        let split = offload.split(packet, ip)?;
        Ok(Self { buffer, bytes, offload, ip, split })
    }

    /// How many segments it is on the wire; at least 1.
    pub fn segments(&self) -> usize {
        let Some(split) = self.split else { return 1 };
        (self.bytes - split.headers).div_ceil(split.each).max(1)
    }

    /// The size of segment `index` as an IP packet, in bytes.
    pub fn wire_bytes(&self, index: usize) -> usize {
        let Some(split) = self.split else { return self.bytes };
        split.headers + self.payload_of(split, index..index + 1).len()
    }

    /// Whether it may be marked instead of being dropped (RFC 3168, section 5).
    pub fn is_markable(&self) -> bool {
        self.ip.ecn(self.packet()) & 0b11 != 0
    }

    /// The bundle of the segments `range`, marked as having met congestion if `marked`. The headers
    /// are made in `scratch`.
    ///
    /// # Panics
    /// When there are no such segments.
    pub fn run<'a>(
        &'a self,
        range: Range<usize>,
        marked: bool,
        scratch: &'a mut Vec<u8>,
    ) -> BundleParts<'a> {
        assert!(!range.is_empty() && range.end <= self.segments(), "{range:?} of {self:?}");
        scratch.clear();
        let Some(split) = self.split else { return self.whole(marked, scratch) };
        scratch.extend_from_slice(&self.packet()[..split.headers]);
        let payload = self.payload_of(split, range.clone());
        let bytes = split.headers + payload.len();
        self.ip.set_length(scratch, bytes, range.start);
        if marked {
            self.ip.mark(scratch);
        }
        self.ip.finish(scratch);
        let at = usize::from(self.offload.checksum_start);
        let is_last = range.end == self.segments();
        let skipped = range.start * split.each;
        split.transport.adapt(&mut scratch[at..], skipped, bytes - at, is_last);
        self.ip.start_checksum(scratch, at, split.transport, bytes - at);
        let mut offload = self.offload;
        offload.header_bytes = split.headers as u16;
        if range.len() == 1 {
            (offload.gso_type, offload.segment_bytes) = (GSO_NONE, 0);
        } else if range.start > 0 {
            offload.gso_type &= !GSO_ECN;
        }
        BundleParts { offload: offload.bytes(), headers: scratch, payload }
    }

    /// Segment `index` as it stands on the wire, its checksum finished. With `flip`, one bit behind
    /// the IP header is then turned; the number chooses which.
    pub fn segment(&self, index: usize, marked: bool, flip: Option<u64>) -> Vec<u8> {
        let mut scratch = Vec::new();
        let run = self.run(index..index + 1, marked, &mut scratch);
        let mut packet = [run.headers, run.payload].concat();
        if self.offload.flags & NEEDS_CHECKSUM != 0 {
            let start = usize::from(self.offload.checksum_start);
            checksum::finish(&mut packet, start, usize::from(self.offload.checksum_offset));
        }
        let behind = self.ip.bytes()..packet.len();
        if let Some(number) = flip.filter(|_| !behind.is_empty()) {
            let bit = (number % (behind.len() as u64 * 8)) as usize;
            packet[behind.start + bit / 8] ^= 1 << (bit % 8);
        }
        packet
    }

    /// The buffer, to be used again.
    pub fn into_buffer(self) -> Vec<u8> {
        self.buffer
    }

    fn packet(&self) -> &[u8] {
        &self.buffer[..self.bytes]
    }

    fn whole<'a>(&'a self, marked: bool, scratch: &'a mut Vec<u8>) -> BundleParts<'a> {
        let (header, payload) = self.packet().split_at(self.ip.bytes());
        scratch.extend_from_slice(header);
        if marked {
            self.ip.mark(scratch);
            self.ip.finish(scratch);
        }
        BundleParts { offload: self.offload.bytes(), headers: scratch, payload }
    }

    fn payload_of(&self, split: Split, range: Range<usize>) -> &[u8] {
        let payload = &self.packet()[split.headers..];
        let end = (range.end * split.each).min(payload.len());
        &payload[(range.start * split.each).min(end)..end]
    }
}

/// What goes before a packet that needs nothing done.
pub fn plain_offload() -> [u8; OFFLOAD_BYTES] {
    Offload::default().bytes()
}

impl Offload {
    fn parse(bytes: &[u8; OFFLOAD_BYTES]) -> Self {
        let word = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_bytes: word(2),
            segment_bytes: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    fn bytes(self) -> [u8; OFFLOAD_BYTES] {
        let mut bytes = [0; OFFLOAD_BYTES];
        (bytes[0], bytes[1]) = (self.flags, self.gso_type);
        let words =
            [self.header_bytes, self.segment_bytes, self.checksum_start, self.checksum_offset];
        for (to, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// How `packet` falls into segments. What is returned lies inside the packet.
    fn split(&self, packet: &[u8], ip: Ip) -> Result<Option<Split>, Damaged> {
        let start = usize::from(self.checksum_start);
        let field = start + usize::from(self.checksum_offset);
        if self.flags & NEEDS_CHECKSUM != 0 && field + 2 > packet.len() {
            return Err(Damaged);
        }
        let transport = match self.gso_type & !GSO_ECN {
            GSO_NONE => return Ok(None),
            GSO_TCP_V4 | GSO_TCP_V6 => OffloadTransport::Tcp,
            GSO_UDP => OffloadTransport::Udp,
            _ => return Err(Damaged),
        };
        if self.flags & NEEDS_CHECKSUM == 0 || self.segment_bytes == 0 {
            return Err(Damaged);
        }
        let bytes = packet.get(start..).and_then(|header| transport.header_bytes(header));
        let headers = start + bytes.ok_or(Damaged)?;
        if usize::from(self.checksum_offset) != transport.checksum_offset()
            || headers > packet.len()
            || start < ip.bytes()
        {
            return Err(Damaged);
        }
        let each = usize::from(self.segment_bytes);
        Ok(Some(Split { transport, headers, each }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SEQUENCE: u32 = 0xffff_f000;
    const ALL_FLAGS: u8 = 0b1001_1001;

    fn parsed(offload: Offload, packet: Vec<u8>) -> Result<TunFrame, Damaged> {
        let bytes = packet.len();
        TunFrame::parse(&offload.bytes(), packet, bytes)
    }

    /// A bundle as a kernel makes it.
    fn bundle(transport: OffloadTransport, v6: bool, payload: &[u8], each: u16) -> TunFrame {
        let mut packet = if v6 { vec![0; 40] } else { vec![0; 20] };
        let start = packet.len();
        let number = if transport == OffloadTransport::Tcp { 6 } else { 17 };
        if v6 {
            (packet[0], packet[1], packet[6]) = (0x60, 0x20, number);
            (packet[8..40]).fill(0xfd);
        } else {
            (packet[0], packet[1], packet[9]) = (0x45, 0x02, number);
            packet[12..20].copy_from_slice(&[10, 77, 0, 1, 10, 77, 0, 2]);
        }
        let mut header = vec![0; if transport == OffloadTransport::Tcp { 32 } else { 8 }];
        if transport == OffloadTransport::Tcp {
            header[4..8].copy_from_slice(&SEQUENCE.to_be_bytes());
            (header[12], header[13]) = (0x80, ALL_FLAGS);
        }
        packet.extend(header);
        packet.extend(payload);
        let gso_type = match (transport, v6) {
            (OffloadTransport::Tcp, false) => GSO_TCP_V4 | GSO_ECN,
            (OffloadTransport::Tcp, true) => GSO_TCP_V6 | GSO_ECN,
            (OffloadTransport::Udp, _) => GSO_UDP,
        };
        let offload = Offload {
            flags: NEEDS_CHECKSUM,
            gso_type,
            segment_bytes: each,
            checksum_start: start as u16,
            checksum_offset: transport.checksum_offset() as u16,
            ..Offload::default()
        };
        parsed(offload, packet).unwrap()
    }

    /// Fails unless the lengths and checksums of a packet on the wire are right; gives its payload.
    fn verified(packet: &[u8], transport: OffloadTransport) -> Vec<u8> {
        let ip = Ip::parse(packet).unwrap();
        let start = ip.bytes();
        let (length, addresses) = match ip {
            Ip::V4 { bytes } => {
                assert_eq!(checksum::fold(checksum::add(0, &packet[..bytes])), 0xffff);
                (usize::from(u16::from_be_bytes([packet[2], packet[3]])), &packet[12..20])
            }
            Ip::V6 => {
                (usize::from(u16::from_be_bytes([packet[4], packet[5]])) + 40, &packet[8..40])
            }
        };
        assert_eq!(length, packet.len());
        let number = if transport == OffloadTransport::Tcp { 6 } else { 17 };
        let pseudo = checksum::add(number + (packet.len() - start) as u64, addresses);
        assert_eq!(checksum::fold(checksum::add(pseudo, &packet[start..])), 0xffff);
        packet[start + transport.header_bytes(&packet[start..]).unwrap()..].to_vec()
    }

    fn segments_of(frame: &TunFrame) -> Vec<Vec<u8>> {
        (0..frame.segments()).map(|index| frame.segment(index, false, None)).collect()
    }

    proptest! {
        #[test]
        fn segments_are_what_an_adapter_sends(
            payload in proptest::collection::vec(any::<u8>(), 1..9000),
            each in 100_u16..1500,
            v6: bool,
            tcp: bool,
        ) {
            let transport = if tcp { OffloadTransport::Tcp } else { OffloadTransport::Udp };
            let frame = bundle(transport, v6, &payload, each);
            let segments = segments_of(&frame);
            let sizes: Vec<usize> = segments.iter().map(Vec::len).collect();
            let expected: Vec<usize> =
                (0..frame.segments()).map(|index| frame.wire_bytes(index)).collect();
            prop_assert_eq!(sizes, expected);
            let together: Vec<u8> =
                segments.iter().flat_map(|segment| verified(segment, transport)).collect();
            prop_assert_eq!(together, payload);
        }

        #[test]
        fn runs_fall_into_the_same_segments(
            payload in proptest::collection::vec(any::<u8>(), 1..20_000),
            cuts in proptest::collection::vec(1_usize..6, 1..50),
            v6: bool,
            tcp: bool,
        ) {
            let transport = if tcp { OffloadTransport::Tcp } else { OffloadTransport::Udp };
            let frame = bundle(transport, v6, &payload, 1400);
            let (mut from, mut again) = (0, Vec::new());
            for cut in cuts.iter().cycle() {
                let until = (from + cut).min(frame.segments());
                let mut scratch = Vec::new();
                let run = frame.run(from..until, false, &mut scratch);
                let packet = [run.headers, run.payload].concat();
                again.extend(segments_of(&parsed(Offload::parse(&run.offload), packet).unwrap()));
                from = until;
                if from == frame.segments() { break; }
            }
            prop_assert_eq!(again, segments_of(&frame));
        }

        #[test]
        fn nothing_that_is_read_panics(
            gso_type in prop::sample::select(vec![0, 1, 4, 5, 0x81, 3]),
            flags in 0_u8..2,
            checksum_start in 0_u16..90,
            checksum_offset in prop::sample::select(vec![6, 16, 7]),
            segment_bytes in 0_u16..60,
            mut packet in proptest::collection::vec(any::<u8>(), 0..200),
            version in 4_u8..7,
        ) {
            if let Some(first) = packet.first_mut() { *first = version << 4 | *first & 0xf; }
            let offload = Offload {
                flags,
                gso_type,
                segment_bytes,
                checksum_start,
                checksum_offset,
                ..Offload::default()
            };
            if let Ok(frame) = parsed(offload, packet) {
                let mut scratch = Vec::new();
                for index in 0..frame.segments() {
                    frame.run(index..frame.segments(), true, &mut scratch);
                    frame.segment(index, true, Some(u64::MAX));
                }
            }
        }
    }

    #[test]
    fn flags_are_on_the_segment_they_belong_to() {
        let frame = bundle(OffloadTransport::Tcp, false, &[7; 3000], 1000);
        let flags: Vec<u8> = segments_of(&frame).iter().map(|packet| packet[20 + 13]).collect();
        assert_eq!(flags, [0b1001_0000, 0b0001_0000, 0b0001_1001]);
        let sequence = |packet: &Vec<u8>| u32::from_be_bytes(packet[24..28].try_into().unwrap());
        let numbers: Vec<u32> = segments_of(&frame).iter().map(sequence).collect();
        assert_eq!(numbers, [0, 1000, 2000].map(|bytes| SEQUENCE.wrapping_add(bytes)));
    }

    #[test]
    fn a_mark_is_set_and_the_checksum_stays_right() {
        for v6 in [false, true] {
            let frame = bundle(OffloadTransport::Udp, v6, &[7; 3000], 1000);
            assert!(frame.is_markable());
            let marked = frame.segment(1, true, None);
            assert_eq!(Ip::parse(&marked).unwrap().ecn(&marked), 0b11);
            verified(&marked, OffloadTransport::Udp);
        }
    }

    #[test]
    fn a_flip_is_one_bit_behind_the_ip_header() {
        let frame = bundle(OffloadTransport::Tcp, false, &[7; 3000], 1000);
        let right = frame.segment(0, false, None);
        for number in [0, 1, 4711, u64::MAX] {
            let wrong = frame.segment(0, false, Some(number));
            let bits: u32 = right.iter().zip(&wrong).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!((bits, &right[..20]), (1, &wrong[..20]));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let good = bundle(OffloadTransport::Tcp, false, &[7; 3000], 1000);
        for change in [
            |offload: &mut Offload| offload.segment_bytes = 0,
            |offload: &mut Offload| offload.checksum_start = 60_000,
            |offload: &mut Offload| offload.checksum_offset = 60_000,
            |offload: &mut Offload| offload.checksum_start = 0,
            |offload: &mut Offload| offload.flags = 0,
            |offload: &mut Offload| offload.gso_type = 3,
        ] {
            let mut offload = good.offload;
            change(&mut offload);
            assert!(parsed(offload, good.buffer.clone()).is_err(), "{offload:?}");
        }
        assert!(parsed(Offload::default(), vec![0x20; 40]).is_err());
        assert!(parsed(Offload::default(), Vec::new()).is_err());
        assert!(TunFrame::parse(&plain_offload(), vec![0x45; 40], 41).is_err());
    }
}
