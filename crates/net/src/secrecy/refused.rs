//! Why a peer is not spoken to: the one list of reasons, each with what is said of it and what to
//! do about it.

use std::net::IpAddr;

use weft_rnic::shuttle::{KeyName, Refusal, Unopened};
use weft_verbs::Misuse;

/// A reason for which this host and a peer do not exchange anything. [`super::Secrecy::decide`]
/// finds those that follow from addresses and settings; the handshake and the receiver of
/// datagrams find the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// `WEFT_KEY` is set and cannot be used.
    KeyUnusable,
    /// Clear text with another host, and neither a key nor `WEFT_INSECURE=1` is set.
    ClearText,
    /// iWARP with another host although there is a key: iWARP cannot encrypt.
    StreamUnderKey,
    /// A socket with another host that does not go by SDP, where all must.
    PlainSocket,
    /// The peer has another key.
    OtherKey,
    /// The peer has a key and this host has none.
    KeyMissing,
    /// This host has a key and the peer has none.
    PeerWithoutKey,
    /// The peer does not exchange clear text with other hosts.
    PeerRefusesClearText,
    /// The peer speaks another version of Shuttle.
    OtherVersion,
    /// The peer seals datagrams as another version of Weft does.
    OtherSeal,
    /// A sealed datagram was not sent just now, by this host's clock.
    Untimely,
}

impl Refused {
    /// The line for stderr: what happened, with whom, and what to do. `key` is the name of this
    /// host's key.
    pub(super) fn line(self, peer: IpAddr, key: Option<KeyName>) -> String {
        const KEYS: &str = "both hosts need the same WEFT_KEY";
        const CLEAR: &str = "set WEFT_KEY to the same key on both hosts (`weft key new` makes \
            one), or WEFT_INSECURE=1 if clear text is meant";
        const SAME: &str = "both hosts need the same version of Weft";
        let own = key.map_or("none".to_owned(), |name| name.to_string());
        match self {
            Self::KeyUnusable => {
                format!("refused to speak to {peer}: the key of WEFT_KEY cannot be used")
            }
            Self::ClearText => format!("refused to exchange clear text with {peer}: {CLEAR}"),
            Self::StreamUnderKey => format!(
                "refused to exchange clear text with {peer}: there is a WEFT_KEY, but weft_iw0 \
                 cannot encrypt; use weft0, or set WEFT_INSECURE=1 as well if clear text is meant"
            ),
            Self::PlainSocket => format!(
                "refused a connection of {peer} by clear TCP: run the caller by `weft run \
                 --sockets` with the same WEFT_KEY, or permit TCP by WEFT_SOCKETS=prefer or a rule \
                 in WEFT_SOCKETS_RULES"
            ),
            Self::OtherKey => {
                format!("{peer} has another key than {own}, which this host has: {KEYS}")
            }
            Self::KeyMissing => format!("{peer} has a key, and this host has none: {KEYS}"),
            Self::PeerWithoutKey => {
                format!("{peer} has no key, and this host has {own}: {KEYS}")
            }
            Self::PeerRefusesClearText => {
                format!("{peer} refuses to exchange clear text with this host: {CLEAR}")
            }
            Self::OtherVersion => format!("{peer} speaks another version of Shuttle: {SAME}"),
            Self::OtherSeal => {
                format!("datagrams from {peer} are dropped: another version sealed them; {SAME}")
            }
            Self::Untimely => format!(
                "datagrams from {peer} are dropped: by this host's clock they were not sent just \
                 now; either they were recorded, or the clocks of the two hosts differ"
            ),
        }
    }

    /// What the call that is refused fails with.
    pub fn misuse(self) -> Misuse {
        Misuse::Refused(match self {
            Self::KeyUnusable => "the key cannot be used",
            Self::ClearText
            | Self::StreamUnderKey
            | Self::PlainSocket
            | Self::PeerRefusesClearText => "clear text with another host",
            Self::OtherVersion | Self::OtherSeal => "a peer of another version",
            Self::OtherKey | Self::KeyMissing | Self::PeerWithoutKey => "a peer without the key",
            Self::Untimely => "a datagram that was not sent just now",
        })
    }

    /// Why Shuttle has no connection with a peer; `keyed` says that this host has a key.
    pub(super) fn of_connection(why: Refusal, keyed: bool) -> Self {
        match why {
            Refusal::Stranger if keyed => Self::OtherKey,
            // A peer that has a key takes what is sealed.
            Refusal::NothingInCommon | Refusal::ClearText if keyed => Self::PeerWithoutKey,
            Refusal::Stranger | Refusal::NothingInCommon => Self::KeyMissing,
            Refusal::ClearText => Self::PeerRefusesClearText,
            Refusal::Version => Self::OtherVersion,
        }
    }

    /// Why a datagram is dropped; `None` if nobody can do anything about it.
    pub(super) fn of_datagram(why: Unopened, keyed: bool) -> Option<Self> {
        Some(match why {
            Unopened::Stale => return None,
            Unopened::Untimely => Self::Untimely,
            Unopened::Version => Self::OtherSeal,
            Unopened::Clear | Unopened::Foreign if !keyed => Self::KeyMissing,
            Unopened::Clear => Self::PeerWithoutKey,
            Unopened::Foreign => Self::OtherKey,
        })
    }
}
