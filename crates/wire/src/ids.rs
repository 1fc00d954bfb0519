//! The names that travel in headers.

use std::fmt;

/// A steering tag: names a registered buffer to the peer (RFC 5041, section 1.3).
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct STag(pub u32);

impl fmt::Debug for STag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "STag({:#010x})", self.0)
    }
}

/// A message sequence number of one untagged queue (RFC 5041, section 4.3).
///
/// It wraps, so it has no order of its own; [`Msn::since`] is the distance between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Msn(pub u32);

impl Msn {
    /// The number of the first message of a queue.
    pub const FIRST: Self = Self(1);

    /// The number of the message that follows.
    #[must_use]
    pub fn next(self) -> Self {
        self.plus(1)
    }

    /// The number of the message `messages` later.
    #[must_use]
    pub fn plus(self, messages: u32) -> Self {
        Self(self.0.wrapping_add(messages))
    }

    /// How many messages after `earlier` this one is; huge if it is in truth before it.
    pub fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }
}

/// Queue of Sends and Immediate Data (RFC 5040, section 4.2).
pub const QN_SEND: u32 = 0;
/// Queue of Read Requests and Atomic Requests.
pub const QN_READ_REQUEST: u32 = 1;
/// Queue of the Terminate message.
pub const QN_TERMINATE: u32 = 2;
/// Queue of Atomic Responses (RFC 7306, section 4.1).
pub const QN_ATOMIC_RESPONSE: u32 = 3;
/// Added to the number of one of several receive queues: a queue of Sends and Immediate Data that
/// only queue pairs of a domain of extended reliable connections have (docs/shuttle.md, S-39).
pub const QN_SHARED: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn msn_wraps_to_zero() {
        assert_eq!(Msn(u32::MAX).next(), Msn(0));
        assert_eq!(Msn(1).since(Msn(u32::MAX)), 2);
    }
}
