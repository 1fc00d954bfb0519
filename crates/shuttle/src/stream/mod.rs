//! Stream: a sending and a receiving half.

mod agenda;
mod profile;
pub(crate) mod recv;
pub(crate) mod send;
pub(crate) mod set;
pub(crate) mod table;

pub use profile::Profile;
use weft_wire::ids::Msn;

use crate::cc;
use crate::pacer::Cap;
use recv::RecvStream;
use send::SendStream;

/// Placement policy: when a segment may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In order only.
    Strict,
    /// At once, except that the last segment of a tagged message waits for everything before it.
    Tail,
    /// At once, in any order.
    Loose,
}

/// Loss recovery policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// Retransmission.
    Full,
    /// Retransmission, twice where nothing else is to be sent.
    LostTwice,
    /// Retransmission; and the last segments before the stream runs dry are sent twice at once.
    TailTwice,
    /// None: the receiver is told to skip losses.
    Off,
}

/// Receiver not ready: a message arrived for which no receive is posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// Number of the last message that has a receive.
    pub limit: Msn,
    /// RNR timer for the sender, in microseconds.
    pub wait_us: u32,
}

/// State of a stream.
pub(crate) struct StreamState {
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    /// Receiver-not-ready state to report to the peer.
    pub(crate) credit: Option<Credit>,
    /// Constructor of its own controllers, if it has them.
    pub(crate) own: Option<(cc::Make, cc::Params)>,
    /// Rate limit of its profile.
    pub(crate) cap: Cap,
    /// Time under which its next query is listed in the table.
    query_listed_ns: Option<u64>,
}

impl StreamState {
    pub(crate) fn new(placement: Placement, repair: Repair, held_octets_max: usize) -> Self {
        Self {
            send: SendStream::new(1, repair),
            recv: RecvStream::new(placement, repair, held_octets_max),
            credit: None,
            own: None,
            cap: Cap::default(),
            query_listed_ns: None,
        }
    }
}
