//! How two Weft peers find out that they speak RFC 7306, which has no negotiation of its own, and a
//! Send with immediate data besides: RFC 7306 has none, and Immediate Data after a Send would take
//! a second receive. The data is where a Send with Invalidate has its STag; opcodes 14 and 15.
//!
//! The STag and the offset of a zero-length RDMA Write must not be looked at (RFC 5041, section
//! 5.2), and the initiator of an enhanced set-up sends one as its first message (RFC 6581). Weft
//! writes its name and its capabilities into them. A Weft responder that reads them there answers
//! with one of its own before anything else; to any other peer both are messages without effect.
//! An initiator that must know sends a zero-length Read: a peer that answers it without having
//! said its name is not Weft.

use weft_wire::ids::STag;

/// What the peer has said of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// Nothing yet.
    Unknown,
    /// It speaks RFC 7306.
    Extended,
    /// It does not, or has not said so when a Weft peer would have.
    Plain,
}

const NAME: STag = STag(u32::from_be_bytes(*b"Weft"));
/// What the offset begins with in a message that tells how many messages are placed.
const PLACED: u64 = (u32::from_be_bytes(*b"plcd") as u64) << 32;
const EXTENDED: u64 = (u32::from_be_bytes(*b"7306") as u64) << 32 | 1;

/// The STag and offset of the message in which a Weft peer says its name.
pub const fn hello() -> (STag, u64) {
    (NAME, EXTENDED)
}

/// Whether a zero-length Write to `stag` and `to` is such a message.
pub fn is_hello(stag: STag, to: u64) -> bool {
    (stag, to) == hello()
}

/// The STag and offset of the message in which a Weft peer says that it has placed `count` messages
/// ([`crate::progress`]).
pub const fn placed(count: u32) -> (STag, u64) {
    (NAME, PLACED | count as u64)
}

/// The count in a zero-length Write to `stag` and `to`, if it is such a message.
pub fn placed_count(stag: STag, to: u64) -> Option<u32> {
    (stag == NAME && to & !u64::from(u32::MAX) == PLACED).then_some(to as u32)
}

/// Whether a zero-length Write to `stag` is one of Weft's own messages.
pub fn is_own(stag: STag) -> bool {
    stag == NAME
}
