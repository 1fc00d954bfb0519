//! Datagrams between queue pairs of type UD: the headers before the payload in UDP, and the route
//! header that a receiver finds before it in memory.
//!
//! The headers are InfiniBand's own, as RoCE v2 carries them: a base transport header (InfiniBand
//! architecture, volume 1, section 9.2), a datagram extended transport header (section 9.3.3) and,
//! with immediate data, four octets more (section 9.3.6). The invariant CRC is left out, since UDP
//! has a checksum, and so is padding, since UDP has a length.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Octets of the headers without immediate data.
pub const HEADER_LEN: usize = 20;
/// Octets of the headers with immediate data.
pub const HEADER_LEN_MAX: usize = HEADER_LEN + 4;
/// Octets of the route header, of either family.
pub const ROUTE_LEN: usize = 40;

/// The queue pair of every member of a group.
pub const GROUP_QPN: u32 = NUMBER;

/// "Send only" and "send only with immediate" of the unreliable datagram service.
const SEND_ONLY: u8 = 0x64;
const SEND_ONLY_IMMEDIATE: u8 = 0x65;
/// The bit that asks for an event at the receiver.
const SOLICITED: u8 = 0x80;
/// Bits of the same octet that name the version of the headers, which is zero.
const VERSION: u8 = 0x0f;
/// The default partition.
const PKEY: [u8; 2] = [0xff, 0xff];
/// A queue pair number has 24 bits.
const NUMBER: u32 = 0x00ff_ffff;

/// What the headers say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramHeader {
    /// The queue pair that it is for, 24 bits.
    pub to: u32,
    /// The queue pair that it is from, 24 bits.
    pub from: u32,
    /// The key that the receiver must have.
    pub qkey: u32,
    /// Immediate data as it stands in memory.
    pub immediate: Option<[u8; 4]>,
    /// The sender asks for an event at the receiver.
    pub solicited: bool,
}

impl DatagramHeader {
    /// The octets on the wire, of which the first [`DatagramHeader::len`] count.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN_MAX] {
        let mut bytes = [0; HEADER_LEN_MAX];
        bytes[0] = if self.immediate.is_some() { SEND_ONLY_IMMEDIATE } else { SEND_ONLY };
        bytes[1] = if self.solicited { SOLICITED } else { 0 };
        bytes[2..4].copy_from_slice(&PKEY);
        bytes[4..8].copy_from_slice(&(self.to & NUMBER).to_be_bytes());
        bytes[12..16].copy_from_slice(&self.qkey.to_be_bytes());
        bytes[16..20].copy_from_slice(&(self.from & NUMBER).to_be_bytes());
        bytes[HEADER_LEN..].copy_from_slice(&self.immediate.unwrap_or_default());
        bytes
    }

    /// How many octets it has.
    pub fn len(&self) -> usize {
        if self.immediate.is_some() { HEADER_LEN_MAX } else { HEADER_LEN }
    }

    /// Never: a header has octets.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Takes the headers off `datagram`; gives the payload too. `None` for anything else.
    pub fn parse(datagram: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = datagram.split_first_chunk::<HEADER_LEN>()?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (immediate, payload) = match head[0] {
            SEND_ONLY => (None, rest),
            SEND_ONLY_IMMEDIATE => {
                let (immediate, payload) = rest.split_first_chunk::<4>()?;
                (Some(*immediate), payload)
            }
            _ => return None,
        };
        if head[1] & VERSION != 0 || head[2..4] != PKEY {
            return None;
        }
        let header = Self {
            to: word(4) & NUMBER,
            from: word(16) & NUMBER,
            qkey: word(12),
            immediate,
            solicited: head[1] & SOLICITED != 0,
        };
        Some((header, payload))
    }
}

/// Octets before the text of a sealed datagram.
pub const SEALED_LEN: usize = 36;
/// What a sealed datagram begins with: neither an opcode nor a kind of Shuttle's packets. The low
/// four bits are the version of the seal.
const SEALED: u8 = 0xe2;

/// The cipher of a sealed datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Cipher {
    /// AES-128 in Galois/counter mode.
    Aes128Gcm = 4,
    /// ChaCha20 with Poly1305.
    ChaCha20Poly1305 = 8,
}

/// What stands before the text of a sealed datagram, in clear (`docs/datagrams.md`, D-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// How the text is sealed.
    pub cipher: Cipher,
    /// Who sealed it.
    pub sender: SenderId,
    /// Which of the sender's datagrams it is.
    pub number: u64,
    /// When it was sealed, in nanoseconds of the sender's clock since 1970.
    pub time_ns: u64,
}

/// Names one life of a sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SenderId {
    /// When that life began, in nanoseconds of the sender's clock.
    pub born_ns: u64,
    /// Fresh randomness.
    pub salt: u64,
}

impl SealedHeader {
    /// The octets on the wire.
    pub fn to_bytes(&self) -> [u8; SEALED_LEN] {
        let mut bytes = [0; SEALED_LEN];
        (bytes[0], bytes[1]) = (SEALED, self.cipher as u8);
        bytes[4..12].copy_from_slice(&self.sender.born_ns.to_be_bytes());
        bytes[12..20].copy_from_slice(&self.sender.salt.to_be_bytes());
        bytes[20..28].copy_from_slice(&self.number.to_be_bytes());
        bytes[28..].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes
    }

    /// Whether `datagram` is sealed as another version does it.
    pub fn is_foreign(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first >> 4 == SEALED >> 4 && *first != SEALED)
    }

    /// The header of `datagram`; `None` if it is not sealed.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let (head, _) = datagram.split_first_chunk::<SEALED_LEN>()?;
        let cipher = match head[..4] {
            [SEALED, 4, 0, 0] => Cipher::Aes128Gcm,
            [SEALED, 8, 0, 0] => Cipher::ChaCha20Poly1305,
            _ => return None,
        };
        let word = |at: usize| u64::from_be_bytes(core::array::from_fn(|i| head[at + i]));
        let sender = SenderId { born_ns: word(4), salt: word(12) };
        Some(Self { cipher, sender, number: word(20), time_ns: word(28) })
    }
}

/// Octets of a notice. Whatever it answers is at least as long.
pub const NOTICE_LEN: usize = 20;
/// What a notice begins with: neither an opcode, nor a seal, nor a kind of Shuttle's packets.
const NOTICE: u8 = 0xf1;

/// Why a receiver has dropped a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Dropped {
    /// It is sealed with another key than the receiver's.
    OtherKey = 1,
    /// It is sealed, and the receiver has no key.
    NoKey = 2,
    /// It is in clear, and the receiver has a key.
    Clear = 3,
    /// It is in clear and from another host, and the receiver takes no such text.
    ClearText = 4,
    /// It is sealed as another version does it.
    Version = 5,
}

/// What a receiver answers in place of a datagram that it cannot take (`docs/datagrams.md`, D-9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Why.
    pub why: Dropped,
    /// The octets of the datagram from the fifth to the twentieth, by which its sender knows it.
    pub echo: [u8; 16],
}

impl Notice {
    /// About `datagram`; `None` if that is too short to be one.
    pub fn about(datagram: &[u8], why: Dropped) -> Option<Self> {
        let echo = datagram.get(NOTICE_LEN - 16..NOTICE_LEN)?.try_into().ok()?;
        Some(Self { why, echo })
    }

    /// The octets on the wire.
    pub fn to_bytes(&self) -> [u8; NOTICE_LEN] {
        let mut bytes = [0; NOTICE_LEN];
        (bytes[0], bytes[1]) = (NOTICE, self.why as u8);
        bytes[4..].copy_from_slice(&self.echo);
        bytes
    }

    /// The notice that `datagram` is; `None` for anything else.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let bytes: &[u8; NOTICE_LEN] = datagram.try_into().ok()?;
        let why = match bytes[..4] {
            [NOTICE, 1, 0, 0] => Dropped::OtherKey,
            [NOTICE, 2, 0, 0] => Dropped::NoKey,
            [NOTICE, 3, 0, 0] => Dropped::Clear,
            [NOTICE, 4, 0, 0] => Dropped::ClearText,
            [NOTICE, 5, 0, 0] => Dropped::Version,
            _ => return None,
        };
        Self::about(bytes, why)
    }

    /// Whether it is about a sealed datagram of `sender`.
    pub fn is_of_sender(&self, sender: SenderId) -> bool {
        let header = SealedHeader { cipher: Cipher::Aes128Gcm, sender, number: 0, time_ns: 0 };
        self.echo == header.to_bytes()[4..NOTICE_LEN]
    }

    /// The queue pairs, receiver's and sender's, of the datagram in clear that it is about.
    pub fn queue_pairs(&self) -> (u32, u32) {
        let word =
            |at: usize| u32::from_be_bytes(core::array::from_fn(|i| self.echo[at + i])) & NUMBER;
        (word(0), word(12))
    }
}

/// The route header of a datagram with `payload_len` octets: an IPv6 header, or an IPv4 header
/// behind 20 octets of nothing, as RoCE v2 has it. Addresses of two families give the former.
pub fn route_header(from: IpAddr, to: IpAddr, payload_len: u16) -> [u8; ROUTE_LEN] {
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => route_header_v4(from, to, payload_len),
        _ => route_header_v6(wide(from), wide(to), payload_len),
    }
}

const UDP: u8 = 17;
const HOPS: u8 = 64;

fn route_header_v4(from: Ipv4Addr, to: Ipv4Addr, payload_len: u16) -> [u8; ROUTE_LEN] {
    const LEN: usize = 20;
    let mut header = [0; LEN];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&payload_len.saturating_add(LEN as u16).to_be_bytes());
    (header[8], header[9]) = (HOPS, UDP);
    header[12..16].copy_from_slice(&from.octets());
    header[16..20].copy_from_slice(&to.octets());
    let words = header.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    // Ten words sum up to less than ten carries.
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut whole = [0; ROUTE_LEN];
    whole[ROUTE_LEN - LEN..].copy_from_slice(&header);
    whole
}

fn route_header_v6(from: Ipv6Addr, to: Ipv6Addr, payload_len: u16) -> [u8; ROUTE_LEN] {
    let mut header = [0; ROUTE_LEN];
    header[0] = 0x60;
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    (header[6], header[7]) = (UDP, HOPS);
    header[8..24].copy_from_slice(&from.octets());
    header[24..40].copy_from_slice(&to.octets());
    header
}

fn wide(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> DatagramHeader {
        DatagramHeader {
            to: 0x12_3456,
            from: 0xab_cdef,
            qkey: 0x1111_1111,
            immediate: Some([1, 2, 3, 4]),
            solicited: true,
        }
    }

    #[test]
    fn headers_come_back_with_the_payload() {
        for header in [header(), DatagramHeader { immediate: None, solicited: false, ..header() }] {
            let mut datagram = header.to_bytes()[..header.len()].to_vec();
            datagram.extend_from_slice(b"payload");
            assert_eq!(DatagramHeader::parse(&datagram), Some((header, &b"payload"[..])));
        }
    }

    #[test]
    fn what_is_cut_or_strange_is_nothing() {
        let bytes = header().to_bytes();
        for len in 0..bytes.len() {
            assert_eq!(DatagramHeader::parse(&bytes[..len]), None, "{len}");
        }
        for (at, value) in [(0, 0x04), (1, 0x01), (2, 0)] {
            let mut other = bytes;
            other[at] = value;
            assert_eq!(DatagramHeader::parse(&other), None);
        }
    }

    #[test]
    fn the_octets_are_those_of_the_specification() {
        let bytes = header().to_bytes();
        assert_eq!(bytes[..8], [0x65, 0x80, 0xff, 0xff, 0, 0x12, 0x34, 0x56]);
        assert_eq!(bytes[12..20], [0x11, 0x11, 0x11, 0x11, 0, 0xab, 0xcd, 0xef]);
    }

    #[test]
    fn notices_come_back_and_are_about_one_datagram() {
        let clear = header().to_bytes();
        for why in 1..=6 {
            let mut bytes = [0; NOTICE_LEN];
            (bytes[0], bytes[1]) = (NOTICE, why);
            bytes[4..].copy_from_slice(&clear[4..NOTICE_LEN]);
            let Some(notice) = Notice::parse(&bytes) else {
                assert_eq!(why, 6);
                continue;
            };
            assert_eq!((notice.why as u8, notice.to_bytes()), (why, bytes));
            assert_eq!(Notice::about(&clear, notice.why), Some(notice));
            assert_eq!(notice.queue_pairs(), (header().to, header().from));
            assert_eq!(Notice::parse(&bytes[..NOTICE_LEN - 1]), None);
            assert!(DatagramHeader::parse(&bytes).is_none() && !SealedHeader::is_foreign(&bytes));
        }
        let sender = SenderId { born_ns: 7, salt: 8 };
        let cipher = Cipher::ChaCha20Poly1305;
        let sealed = SealedHeader { cipher, sender, number: 9, time_ns: 10 }.to_bytes();
        let notice = Notice::about(&sealed, Dropped::NoKey).unwrap();
        assert!(
            notice.is_of_sender(sender) && !notice.is_of_sender(SenderId { salt: 9, ..sender })
        );
        assert_eq!(Notice::about(&sealed[..NOTICE_LEN - 1], Dropped::NoKey), None);
    }

    #[test]
    fn headers_of_sealed_datagrams_come_back_and_are_no_others() {
        let sender = SenderId { born_ns: 0x0102_0304_0506_0708, salt: 9 };
        for cipher in [Cipher::Aes128Gcm, Cipher::ChaCha20Poly1305] {
            let header = SealedHeader { cipher, sender, number: 0x1122, time_ns: 0x33 };
            let bytes = header.to_bytes();
            assert_eq!(SealedHeader::parse(&bytes), Some(header));
            assert_eq!(bytes[..5], [0xe2, cipher as u8, 0, 0, 1]);
            assert_eq!(DatagramHeader::parse(&bytes), None);
            for (at, len) in (0..4).map(|at| (at, SEALED_LEN)).chain([(35, SEALED_LEN - 1)]) {
                let mut other = bytes;
                other[at] ^= 1;
                assert_eq!(SealedHeader::parse(&other[..len]), None);
            }
        }
        assert_eq!(SealedHeader::parse(&header().to_bytes()), None);
        assert!(SealedHeader::is_foreign(&[0xe1]) && !SealedHeader::is_foreign(&[0xe2]));
        assert!(!SealedHeader::is_foreign(&header().to_bytes()) && !SealedHeader::is_foreign(&[]));
    }

    #[test]
    fn route_headers_are_those_of_ip() {
        let (from, to) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let header = route_header(from, to, 40);
        assert_eq!(header[..20], [0; 20]);
        let expected = [0x45, 0, 0, 60, 0, 0, 0, 0, 64, 17, 0xf6, 0xad, 192, 0, 2, 1, 192, 0, 2, 2];
        assert_eq!(header[20..], expected);
        let header = route_header("::1".parse().unwrap(), "::2".parse().unwrap(), 7);
        assert_eq!((header[0] >> 4, header[5], header[23], header[39]), (6, 7, 1, 2));
    }
}
