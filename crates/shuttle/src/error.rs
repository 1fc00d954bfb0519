//! What goes wrong, by whose fault.

/// The caller asked for what cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misuse {
    /// A value of the configuration is out of its range.
    #[error("configuration out of range: streams, datagram sizes, protections or packets per key")]
    Config,
    /// More private data than a handshake packet carries.
    #[error("{0} octets of private data are too many")]
    PrivateDataTooLong(usize),
    /// The credentials cannot be used: an initiator needs the peer's public key.
    #[error("credentials that do not fit")]
    Credentials,
    /// A stream that the peer does not allow.
    #[error("stream {0} is beyond what the peer allows")]
    Stream(u8),
    /// A stream that has sent cannot change whose controller it uses.
    #[error("stream {0} has sent already: its controller cannot change")]
    Started(u8),
    /// No module is common to both ends.
    #[error("no protection or placement in common with the peer")]
    NothingInCommon,
    /// The connection is not open.
    #[error("the connection is not open")]
    NotOpen,
    /// No path number is free.
    #[error("too many paths")]
    Paths,
    /// Who asked has given up, was answered before, or never was there.
    #[error("no request with this ticket waits for an answer")]
    Gone,
    /// No connection id is free.
    #[error("too many connections on one endpoint")]
    TooMany,
}

/// Why an endpoint refused a Request by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its key agreement message was made with another key, or for another one.
    #[error("the peer does not have the key that it needs")]
    Stranger,
    /// It accepts nothing that is acceptable here.
    #[error("no protection, placement or recovery in common with the peer")]
    NothingInCommon,
    /// Clear text with other hosts is not allowed at the end that was asked.
    #[error("clear text with other hosts is not allowed")]
    ClearText,
    /// Its sender speaks another version of Shuttle.
    #[error("the peer speaks another version of Shuttle")]
    Version,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum End {
    /// This end closed it and the peer knows.
    #[error("closed")]
    Local,
    /// The peer closed it, with this reason; 0 is an orderly end.
    #[error("closed by the peer, reason {0}")]
    Peer(u64),
    /// Nothing was heard for the time agreed.
    #[error("no sign of life from the peer")]
    Silence,
    /// The handshake was not answered.
    #[error("no answer to the request")]
    NoAnswer,
    /// The peer refused the connection.
    #[error("refused by the peer, reason {0}")]
    Rejected(u16),
    /// The peer cannot read the request. It has another key, or this end has another public key
    /// of it.
    #[error("the peer does not know this end's key")]
    Stranger,
    /// The peer accepts nothing of what was offered.
    #[error("no protection, placement or recovery in common with the peer")]
    NothingInCommon,
    /// The peer does not exchange clear text with other hosts.
    #[error("the peer allows no clear text with other hosts")]
    ClearText,
    /// The peer speaks another version of Shuttle.
    #[error("the peer speaks another version of Shuttle")]
    Version,
    /// The answer to the request was not one.
    #[error("the peer's answer chose what was not offered")]
    BadAnswer,
}

impl End {
    /// The refusal that ended it, if the peer's Weft refused and not its application.
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
