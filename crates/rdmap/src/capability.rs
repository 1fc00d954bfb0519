//! Detection of Weft peers. RFC 7306 has no negotiation; Weft also has a Send with immediate data
//! (opcodes 14 and 15, the data in place of the STag of a Send with Invalidate), because Immediate
//! Data after a Send would take a second receive.
//!
//! No header field could carry a name: reserved bits must be zero, and Linux siw echoes them; the
//! private data of connection setup belongs to the application.
//!
//! A receiver must ignore the STag and offset of a zero-length RDMA Write (RFC 5041, section 5.2),
//! and the initiator of an enhanced connection setup sends one as its first message (RFC 6581).
//! Weft puts its name and capabilities there. A Weft responder answers with one of its own before
//! anything else; to other peers both are messages without effect. An initiator that must know
//! sends a zero-length Read: a peer that responds without having sent its name is not Weft.

use weft_wire::ids::STag;

/// Extensions that the peer supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerExtensions {
    /// Not known yet.
    Unknown,
    /// RFC 7306 and a Send with immediate data: a Weft peer.
    Extended,
    /// None: not Weft, or silent for too long.
    Plain,
}

const NAME: STag = STag(u32::from_be_bytes(*b"Weft"));
/// Upper half of the offset in a message that counts placed messages.
const PLACED: u64 = (u32::from_be_bytes(*b"plcd") as u64) << 32;
const EXTENDED: u64 = (u32::from_be_bytes(*b"7306") as u64) << 32 | 1;

/// STag and offset of the message that identifies a Weft peer.
pub const fn hello() -> (STag, u64) {
    (NAME, EXTENDED)
}

/// Whether a zero-length Write to `stag` and `to` identifies a Weft peer.
pub fn is_hello(stag: STag, to: u64) -> bool {
    (stag, to) == hello()
}

/// STag and offset of the message that confirms the placement of `count` messages
/// ([`crate::progress`]).
pub const fn placed(count: u32) -> (STag, u64) {
    (NAME, PLACED | count as u64)
}

/// Count of placed messages in a zero-length Write to `stag` and `to`, if it holds one.
pub fn placed_count(stag: STag, to: u64) -> Option<u32> {
    (stag == NAME && to & !u64::from(u32::MAX) == PLACED).then_some(to as u32)
}

/// Whether a zero-length Write to `stag` is one of Weft's own messages.
pub fn is_own(stag: STag) -> bool {
    stag == NAME
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What goes over the wire: other builds of Weft look for exactly this.
    #[test]
    fn the_names_are_what_other_builds_look_for() {
        let name = STag(0x5765_6674);
        assert_eq!(hello(), (name, 0x3733_3036_0000_0001));
        assert_eq!(placed(7), (name, 0x706c_6364_0000_0007));
        assert_eq!(placed(u32::MAX), (name, 0x706c_6364_ffff_ffff));
    }

    #[test]
    fn only_the_own_messages_count() {
        let (stag, to) = placed(7);
        assert_eq!(placed_count(stag, to), Some(7));
        assert_eq!(placed_count(STag(5), to), None);
        assert_eq!(placed_count(stag, hello().1), None);
        assert!(is_own(stag) && is_own(hello().0) && !is_own(STag(5)));
        assert!(is_hello(hello().0, hello().1));
        assert!(!is_hello(stag, to) && !is_hello(STag(5), hello().1));
    }
}
