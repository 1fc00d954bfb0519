//! The fields of IP, TCP and UDP headers that differ from segment to segment.

use super::checksum;

const IP_V4_BYTES: usize = 20;
const IP_V6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
const TCP_FLAGS: usize = 13;
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
const CONGESTION_EXPERIENCED: u8 = 0b11;

/// The version of IP, and how long its header is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip {
    /// RFC 791, with its options.
    V4 { bytes: usize },
    /// RFC 8200, without extension headers.
    V6,
}

impl Ip {
    /// What `packet` begins with, if its header is whole.
    pub fn parse(packet: &[u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            4 => {
                let bytes = usize::from(packet[0] & 0xf) * 4;
                (bytes >= IP_V4_BYTES && bytes <= packet.len()).then_some(Self::V4 { bytes })
            }
            6 => (packet.len() >= IP_V6_BYTES).then_some(Self::V6),
            _ => None,
        }
    }

    /// The length of the header.
    pub fn bytes(self) -> usize {
        match self {
            Self::V4 { bytes } => bytes,
            Self::V6 => IP_V6_BYTES,
        }
    }

    /// The two bits of RFC 3168.
    pub fn ecn(self, packet: &[u8]) -> u8 {
        match self {
            Self::V4 { .. } => packet[1] & 0b11,
            Self::V6 => packet[1] >> 4 & 0b11,
        }
    }

    /// Says that the packet met congestion.
    pub fn mark(self, packet: &mut [u8]) {
        packet[1] |= match self {
            Self::V4 { .. } => CONGESTION_EXPERIENCED,
            Self::V6 => CONGESTION_EXPERIENCED << 4,
        };
    }

    /// Sets the length of the whole packet; it is segment `index` of its bundle, which counts in
    /// the identification.
    pub fn set_length(self, packet: &mut [u8], bytes: usize, index: usize) {
        match self {
            Self::V4 { .. } => {
                put(packet, 2, bytes as u16);
                let identification = get(packet, 4).wrapping_add(index as u16);
                put(packet, 4, identification);
            }
            Self::V6 => put(packet, 4, (bytes - IP_V6_BYTES) as u16),
        }
    }

    /// Makes the header's own checksum right.
    pub fn finish(self, packet: &mut [u8]) {
        if let Self::V4 { bytes } = self {
            put(packet, 10, 0);
            let sum = !checksum::fold(checksum::add(0, &packet[..bytes]));
            put(packet, 10, sum);
        }
    }

    /// Leaves in the field of the transport's checksum the sum of the pseudo header alone, for
    /// whoever finishes it. The transport's header is at `at`; it and its payload are `bytes`.
    pub fn start_checksum(
        self,
        packet: &mut [u8],
        at: usize,
        kind: OffloadTransport,
        bytes: usize,
    ) {
        let addresses = match self {
            Self::V4 { .. } => &packet[12..20],
            Self::V6 => &packet[8..40],
        };
        let sum = checksum::add(u64::from(kind.number()) + bytes as u64, addresses);
        put(packet, at + kind.checksum_offset(), checksum::fold(sum));
    }
}

/// A transport whose segments come in bundles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadTransport {
    Tcp,
    Udp,
}

impl OffloadTransport {
    /// The length of the header, if `header` has it whole.
    pub fn header_bytes(self, header: &[u8]) -> Option<usize> {
        match self {
            Self::Tcp => {
                let bytes = usize::from(header.get(12)? >> 4) * 4;
                (bytes >= TCP_BYTES && bytes <= header.len()).then_some(bytes)
            }
            Self::Udp => (header.len() >= UDP_BYTES).then_some(UDP_BYTES),
        }
    }

    /// Where the checksum stands in the header.
    pub fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => checksum::UDP_OFFSET,
        }
    }

    /// Makes the header of a bundle that of a part of it: `skipped` bytes of payload come before
    /// it, header and payload are `bytes`, and it ends with the bundle's end if `is_last`.
    pub fn adapt(self, header: &mut [u8], skipped: usize, bytes: usize, is_last: bool) {
        match self {
            Self::Tcp => {
                let sequence = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                let sequence = sequence.wrapping_add(skipped as u32);
                header[4..8].copy_from_slice(&sequence.to_be_bytes());
                if !is_last {
                    header[TCP_FLAGS] &= !FIN_AND_PSH;
                }
                if skipped > 0 {
                    header[TCP_FLAGS] &= !CWR;
                }
            }
            Self::Udp => put(header, 4, bytes as u16),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

fn get(packet: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([packet[at], packet[at + 1]])
}

fn put(packet: &mut [u8], at: usize, value: u16) {
    packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
}
