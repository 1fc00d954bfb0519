//! A stream: one direction of segments out, one in.

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

/// When a segment may be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// In the order of their numbers only.
    Strict,
    /// At once, but the last segment of a tagged message after everything before it.
    Tail,
    /// At once.
    Loose,
}

/// What is done about losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repair {
    /// What is lost is sent again.
    Full,
    /// So it is; and the last segments before there are no more are sent twice at once.
    TailTwice,
    /// Nothing but telling the receiver.
    Off,
}

/// A message came that has no receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The last message that has one.
    pub limit: Msn,
    /// How long its sender should wait at a time for the next one to have one too.
    pub wait_us: u32,
}

/// Both directions.
pub(crate) struct StreamState {
    pub(crate) send: SendStream,
    pub(crate) recv: RecvStream,
    /// What the peer is to hear of the receives that are posted here.
    pub(crate) credit: Option<Credit>,
    /// Makes its own controllers.
    pub(crate) own: Option<(cc::Make, cc::Params)>,
    /// What its profile allows it.
    pub(crate) cap: Cap,
    /// Where the table of streams has the next question.
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
