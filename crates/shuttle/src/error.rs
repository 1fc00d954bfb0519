//! Errors of the caller, refusals of an endpoint, and ends of a connection.

/// Invalid call; the object is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShuttleMisuse {
    /// A configuration value is out of range.
    #[error("configuration out of range: streams, datagram sizes, protections or packets per key")]
    Config,
    /// More private data than a handshake packet carries.
    #[error("{0} octets of private data are too many")]
    PrivateDataTooLong(usize),
    /// The credentials do not fit the role: an initiator needs the peer's public key.
    #[error("credentials that do not fit")]
    Credentials,
    /// The peer does not allow this stream number.
    #[error("stream {0} is beyond what the peer allows")]
    Stream(u8),
    /// The stream has sent: its choice of controller is final.
    #[error("stream {0} has sent already: its controller cannot change")]
    Started(u8),
    /// No protection, placement or recovery in common.
    #[error("no protection or placement in common with the peer")]
    NothingInCommon,
    /// The connection is not open (yet or any more).
    #[error("the connection is not open")]
    NotOpen,
    /// All [`crate::MAX_PATHS`] path numbers are in use.
    #[error("too many paths")]
    Paths,
    /// The ticket names no pending Request: it expired, was answered, or never existed.
    #[error("no request with this ticket waits for an answer")]
    Gone,
    /// No free connection id was found in 64 draws.
    #[error("too many connections on one endpoint")]
    TooMany,
}

/// Reason for which an endpoint refuses a Request without asking its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The key agreement failed: another key, or a message for another responder.
    #[error("the peer does not have the key that it needs")]
    Stranger,
    /// No module in common.
    #[error("no protection, placement or recovery in common with the peer")]
    NothingInCommon,
    /// The responder requires a cipher for other hosts.
    #[error("clear text with other hosts is not allowed")]
    ClearText,
    /// Another version of Shuttle.
    #[error("the peer speaks another version of Shuttle")]
    Version,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionEnd {
    /// Closed by this end and acknowledged by the peer.
    #[error("closed")]
    Local,
    /// Closed by the peer with this reason; 0 is an orderly end.
    #[error("closed by the peer, reason {0}")]
    Peer(u64),
    /// Idle timeout: nothing arrived for the time agreed.
    #[error("no sign of life from the peer")]
    Silence,
    /// Handshake timeout: no answer.
    #[error("no answer to the request")]
    NoAnswer,
    /// Refused by the peer's application, with its reason.
    #[error("refused by the peer, reason {0}")]
    Rejected(u16),
    /// The peer cannot decrypt the Request: it has another key, or this end has a wrong public key
    /// of it.
    #[error("the peer does not know this end's key")]
    Stranger,
    /// The peer has no module in common.
    #[error("no protection, placement or recovery in common with the peer")]
    NothingInCommon,
    /// The peer does not exchange clear text with other hosts.
    #[error("the peer allows no clear text with other hosts")]
    ClearText,
    /// The peer speaks another version of Shuttle.
    #[error("the peer speaks another version of Shuttle")]
    Version,
    /// The peer has asked for the connection, and given it up before it had the answer.
    #[error("given up by the peer before it was established")]
    Withdrawn,
    /// The answer chose modules that were not offered, or broke the limits.
    #[error("the peer's answer chose what was not offered")]
    BadAnswer,
}

impl ConnectionEnd {
    /// The refusal by the peer's Weft that ended it; `None` if the peer's application refused, or
    /// for any other end.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Stranger => Some(Refusal::Stranger),
            Self::NothingInCommon => Some(Refusal::NothingInCommon),
            Self::ClearText => Some(Refusal::ClearText),
            Self::Version => Some(Refusal::Version),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_that_of_the_peers_weft_and_not_of_its_application() {
        for (end, refusal) in [
            (ConnectionEnd::Stranger, Some(Refusal::Stranger)),
            (ConnectionEnd::NothingInCommon, Some(Refusal::NothingInCommon)),
            (ConnectionEnd::ClearText, Some(Refusal::ClearText)),
            (ConnectionEnd::Version, Some(Refusal::Version)),
            (ConnectionEnd::Rejected(7), None),
            (ConnectionEnd::Silence, None),
        ] {
            assert_eq!(end.refusal(), refusal, "{end}");
        }
    }
}
