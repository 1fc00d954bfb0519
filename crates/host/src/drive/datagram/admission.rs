//! Who is let in at the port of a queue pair that is asked for.

use weft_net::udp::Port;
use weft_rnic::shuttle::{Refusal, Route};
use weft_rnic::{RetryLimits, ShuttleQp};

/// Decides about the Requests that reach the port of a queue pair, until the peer is known to have
/// its answer.
pub(crate) trait Doorkeeper: Send {
    /// Binds the queue pair to who asks, if it is the peer that is waited for; again, if that has
    /// begun anew.
    fn admit(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Admission;
}

/// What a doorkeeper says to a datagram.
pub(crate) enum Admission {
    /// It is the peer's, who has a connection now.
    Granted(Box<ShuttleQp>),
    /// It seems to be the peer's, who cannot have one.
    Refused(Refusal),
    /// Nothing.
    None,
}

/// How far the connection is.
pub(super) enum Stage {
    /// The peer is to ask for it.
    Awaited,
    /// It was asked for or granted.
    Bound(Box<ShuttleQp>),
}

impl Stage {
    /// Takes a datagram. A Request that the doorkeeper grants binds the queue pair, whose requests
    /// are then as `requester` says; gives why not, if it seems to be the peer's and cannot be
    /// granted.
    pub(super) fn take(
        &mut self,
        doorkeeper: &mut Option<Box<dyn Doorkeeper>>,
        requester: Option<(u16, RetryLimits)>,
        now_ns: u64,
        (route, marked): (Route, bool),
        datagram: &mut [u8],
    ) -> Option<Refusal> {
        let admit = |keeper: &mut Box<dyn Doorkeeper>| keeper.admit(now_ns, route, datagram);
        match (doorkeeper.as_mut().map_or(Admission::None, admit), self) {
            (Admission::Granted(mut bound), stage) => {
                if let Some((ord, retry_limits)) = requester {
                    bound.set_ord(ord);
                    bound.set_retry_limits(retry_limits);
                }
                *stage = Self::Bound(bound);
            }
            (Admission::Refused(why), Self::Awaited) => return Some(why),
            (_, Self::Bound(shuttle)) => shuttle.receive(now_ns, route, marked, datagram),
            (_, Self::Awaited) => {}
        }
        None
    }
}

/// Tells who asked that there is no connection. If the socket is full, it will ask again.
pub(super) fn turn_away(port: &Port, route: &Route, why: Refusal, request: &[u8]) {
    if let Some(answer) = why.answer(request) {
        port.send_staged(route, &answer, answer.len());
    }
}
