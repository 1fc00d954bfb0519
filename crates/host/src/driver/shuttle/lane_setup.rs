//! How a Shuttle connection between two processes of one host gets a lane.
//!
//! Invariant: both ends know whether they have one before either sends anything of its queue pair:
//! the responder offers before its Reply, the initiator claims before it answers that.

use weft_net::lane::rendezvous::{LaneListener, LaneOffer};
use weft_rnic::ShuttleQp;

use crate::driver::lane::LaneLink;
use crate::host::Host;

/// How far a connection is with its lane.
pub(super) enum LaneSetup {
    /// There is none, or nobody has begun.
    None,
    /// The responder may offer one.
    Awaited(LaneListener),
    /// It was offered to the initiator.
    Offered(LaneOffer),
    /// Both ends use it.
    Open(LaneLink),
}

impl LaneSetup {
    /// Begins for a connection that is asked for, or was granted just now.
    pub fn begin(host: &Host, shuttle: &ShuttleQp) -> Self {
        let connection = shuttle.connection();
        let route = connection.route();
        if !host.permits_lanes() || route.local.ip() != route.remote.ip() {
            return Self::None;
        }
        let begun = connection.request_nonce().and_then(|nonce| match connection.is_initiator() {
            true => LaneListener::bind_nonce(nonce).map(Self::Awaited),
            false => LaneOffer::make_named(nonce, route.remote, route.local).map(Self::Offered),
        });
        begun.unwrap_or(Self::None)
    }

    /// The handshake is over: has the connection go on by its lane, if there is one.
    pub fn complete(&mut self, shuttle: &mut ShuttleQp, host: &Host) {
        let lane = match std::mem::replace(self, Self::None) {
            Self::Awaited(listener) => {
                let route = shuttle.connection().route();
                listener.claim_between(route.local, route.remote)
            }
            Self::Offered(offer) => offer.granted(),
            Self::None => None,
            open @ Self::Open(_) => {
                *self = open;
                return;
            }
        };
        if let Some(lane) = lane {
            shuttle.use_lane();
            *self = Self::Open(LaneLink::new(Box::new(lane), host));
        }
    }

    /// The lane that is in use.
    pub fn link(&mut self) -> Option<&mut LaneLink> {
        match self {
            Self::Open(link) => Some(link),
            _ => None,
        }
    }
}
