//! Headers of IP, UDP and TCP around a payload, with their checksums.

use std::net::{IpAddr, SocketAddr};

const TCP: u8 = 6;
const UDP: u8 = 17;
const HOP_LIMIT: u8 = 64;

/// Bytes of a UDP header.
pub(crate) const UDP_LEN: usize = 8;
/// Where the checksum of a UDP header is.
pub(crate) const UDP_CHECKSUM_AT: usize = 6;
/// Bytes of a TCP header without options.
const TCP_LEN: usize = 20;
const TCP_CHECKSUM_AT: usize = 16;
const TCP_WINDOW: u16 = u16::MAX;

/// Payload in a packet at most, so that its length fits the fields that say it.
pub(crate) const PAYLOAD_MAX: usize = 65_000;

/// From where to where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PacketPath {
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl PacketPath {
    fn addresses(&self) -> (IpAddr, IpAddr) {
        let (from, to) = (self.from.ip().to_canonical(), self.to.ip().to_canonical());
        match (from, to) {
            // A socket of both families says either.
            (IpAddr::V4(v4), IpAddr::V6(_)) => (v4.to_ipv6_mapped().into(), to),
            (IpAddr::V6(_), IpAddr::V4(v4)) => (from, v4.to_ipv6_mapped().into()),
            same => same,
        }
    }
}

/// What the header of a TCP segment says, besides its ports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpFields {
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: u8,
}

pub(crate) const TCP_FIN: u8 = 0x01;
pub(crate) const TCP_SYN: u8 = 0x02;
pub(crate) const TCP_PUSH: u8 = 0x08;
pub(crate) const TCP_ACK: u8 = 0x10;

/// A UDP datagram in a packet; gives where its UDP header begins, too.
pub(crate) fn udp_packet(path: PacketPath, payload: &[u8]) -> (Vec<u8>, usize) {
    let length = (UDP_LEN + payload.len()) as u16;
    let mut segment = Vec::with_capacity(length.into());
    segment.extend(path.from.port().to_be_bytes());
    segment.extend(path.to.port().to_be_bytes());
    segment.extend(length.to_be_bytes());
    segment.extend([0; 2]);
    segment.extend(payload);
    packet(path, UDP, segment, UDP_CHECKSUM_AT)
}

/// A TCP segment in a packet.
pub(crate) fn tcp_packet(path: PacketPath, fields: TcpFields, payload: &[u8]) -> Vec<u8> {
    let mut segment = Vec::with_capacity(TCP_LEN + payload.len());
    segment.extend(path.from.port().to_be_bytes());
    segment.extend(path.to.port().to_be_bytes());
    segment.extend(fields.sequence.to_be_bytes());
    segment.extend(fields.acknowledged.to_be_bytes());
    segment.extend([(TCP_LEN as u8 / 4) << 4, fields.flags]);
    segment.extend(TCP_WINDOW.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(payload);
    packet(path, TCP, segment, TCP_CHECKSUM_AT).0
}

/// `segment`, whose checksum is still zero, in a packet; gives where it begins, too.
fn packet(
    path: PacketPath,
    protocol: u8,
    mut segment: Vec<u8>,
    checksum_at: usize,
) -> (Vec<u8>, usize) {
    let addresses = path.addresses();
    let checksum = checksum_of(&[&pseudo_header(addresses, protocol, segment.len()), &segment]);
    segment[checksum_at..checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = match addresses {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut header = vec![0x45, 0];
            header.extend((segment.len() as u16 + 20).to_be_bytes());
            header.extend([0, 0, 0x40, 0, HOP_LIMIT, protocol, 0, 0]);
            header.extend(from.octets());
            header.extend(to.octets());
            let checksum = checksum_of(&[&header]);
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            header
        }
        (from, to) => {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend((segment.len() as u16).to_be_bytes());
            header.extend([protocol, HOP_LIMIT]);
            header.extend(octets_of(from));
            header.extend(octets_of(to));
            header
        }
    };
    let at = packet.len();
    packet.extend(segment);
    (packet, at)
}

fn octets_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(v4) => v4.octets().into(),
        IpAddr::V6(v6) => v6.octets().into(),
    }
}

/// What the checksum of TCP and UDP covers before the segment (RFC 9293, section 3.1; RFC 8200,
/// section 8.1).
fn pseudo_header((from, to): (IpAddr, IpAddr), protocol: u8, length: usize) -> Vec<u8> {
    let mut header = octets_of(from);
    header.extend(octets_of(to));
    header.extend((length as u32).to_be_bytes());
    header.extend([0, 0, 0, protocol]);
    header
}

/// The Internet checksum (RFC 1071) of `parts`, each but the last of an even length.
fn checksum_of(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u64;
    for part in parts {
        let (words, odd) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        sum += odd.first().map_or(0, |byte| u64::from(*byte) << 8);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(from: &str, to: &str) -> PacketPath {
        PacketPath { from: from.parse().unwrap(), to: to.parse().unwrap() }
    }

    #[test]
    fn a_checksum_over_what_contains_it_is_zero() {
        for path in [path("192.0.2.1:9", "192.0.2.2:4791"), path("[::1]:9", "[2001:db8::1]:4791")] {
            let (packet, at) = udp_packet(path, b"odd");
            if at == 20 {
                assert_eq!(checksum_of(&[&packet[..20]]), 0);
            }
            let pseudo = pseudo_header(path.addresses(), UDP, packet.len() - at);
            assert_eq!(checksum_of(&[&pseudo, &packet[at..]]), 0);
        }
    }

    #[test]
    fn one_packet_has_one_family() {
        let (packet, at) = udp_packet(path("192.0.2.1:9", "[::ffff:192.0.2.2]:9"), &[]);
        assert_eq!((packet[0] >> 4, at), (4, 20));
        let (packet, at) = udp_packet(path("192.0.2.1:9", "[2001:db8::1]:9"), &[]);
        assert_eq!((packet[0] >> 4, at), (6, 40));
    }
}
