//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng, section 4), in little-endian order.

use weft_wire::tap::TapDirection;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Major and minor version: 1.0.
const VERSION: [u8; 4] = [1, 0, 0, 0];
/// The length of a section that nobody knows yet.
const LENGTH_UNKNOWN: u64 = u64::MAX;

const END: u16 = 0;
const COMMENT: u16 = 1;
const SECTION_APPLICATION: u16 = 4;
const INTERFACE_NAME: u16 = 2;
const INTERFACE_TIME_RESOLUTION: u16 = 9;
const PACKET_FLAGS: u16 = 2;

/// Time stamps count 10^-9 s.
const NANOSECONDS: u8 = 9;

/// What the packets of an interface begin with: the registered link types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub(crate) enum LinkType {
    /// A header of IPv4 or IPv6 (`LINKTYPE_RAW`).
    Ip = 101,
    /// Tags that name the dissector (`LINKTYPE_WIRESHARK_UPPER_PDU`).
    Exported = 252,
}

/// A section header: what a file begins with. `about` says whose packets follow.
pub(crate) fn section(about: &str) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend(BYTE_ORDER.to_le_bytes());
    body.extend(VERSION);
    body.extend(LENGTH_UNKNOWN.to_le_bytes());
    put_option(&mut body, SECTION_APPLICATION, concat!("Weft ", env!("CARGO_PKG_VERSION")));
    put_option(&mut body, COMMENT, about);
    block(SECTION, body)
}

/// An interface called `name`. Interfaces of a section are numbered in their order.
pub(crate) fn interface(name: &str, link: LinkType) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend((link as u16).to_le_bytes());
    // Reserved, and no limit to what is captured of a packet.
    body.extend([0; 6]);
    put_option(&mut body, INTERFACE_NAME, name);
    put_option(&mut body, INTERFACE_TIME_RESOLUTION, [NANOSECONDS]);
    block(INTERFACE, body)
}

/// A packet.
pub(crate) struct PacketBlock<'a> {
    /// The number of its interface.
    pub interface: u32,
    /// When it was seen, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Which way it went.
    pub direction: TapDirection,
    /// Its bytes.
    pub bytes: &'a [u8],
    /// What there is to say of it, if anything.
    pub comment: &'a str,
}

impl PacketBlock<'_> {
    /// The block as it is written.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.bytes.len() + 64);
        body.extend(self.interface.to_le_bytes());
        body.extend(((self.time_ns >> 32) as u32).to_le_bytes());
        body.extend((self.time_ns as u32).to_le_bytes());
        let length = (self.bytes.len() as u32).to_le_bytes();
        body.extend([length, length].concat());
        body.extend(self.bytes);
        pad(&mut body);
        let flags: u32 = match self.direction {
            TapDirection::Received => 1,
            TapDirection::Sent => 2,
        };
        put_option(&mut body, PACKET_FLAGS, flags.to_le_bytes());
        if !self.comment.is_empty() {
            put_option(&mut body, COMMENT, self.comment);
        }
        block(PACKET, body)
    }
}

/// Fields begin at multiples of four bytes.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn put_option(body: &mut Vec<u8>, code: u16, value: impl AsRef<[u8]>) {
    let value = value.as_ref();
    let value = &value[..value.len().min(u16::MAX.into())];
    body.extend(code.to_le_bytes());
    body.extend((value.len() as u16).to_le_bytes());
    body.extend(value);
    pad(body);
}

/// A block with `body`, whose options are all there.
fn block(kind: u32, mut body: Vec<u8>) -> Vec<u8> {
    body.extend(END.to_le_bytes());
    body.extend([0; 2]);
    let length = (body.len() as u32 + 12).to_le_bytes();
    let mut block = Vec::with_capacity(body.len() + 12);
    block.extend(kind.to_le_bytes());
    block.extend(length);
    block.extend(body);
    block.extend(length);
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_says_its_length_at_both_ends_and_its_fields_are_aligned() {
        let packet = PacketBlock {
            interface: 3,
            time_ns: (7 << 32) + 9,
            direction: TapDirection::Sent,
            bytes: &[1, 2, 3, 4, 5],
            comment: "x",
        };
        for block in [section("a"), interface("weft0", LinkType::Ip), packet.encode()] {
            let length = (block.len() as u32).to_le_bytes();
            assert_eq!(block.len() % 4, 0);
            assert_eq!(block[4..8], length);
            assert_eq!(block[block.len() - 4..], length);
        }
        let block = packet.encode();
        assert_eq!(block[8..20], [3, 0, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(block[20..28], [5, 0, 0, 0, 5, 0, 0, 0]);
        assert_eq!(block[28..36], [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(block[36..44], [2, 0, 4, 0, 2, 0, 0, 0], "outbound");
    }
}
