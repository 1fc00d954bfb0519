//! Who is let in at the port of a queue pair that is asked for.

use weft_net::udp::UdpPort;
use weft_rnic::ShuttleQp;
use weft_rnic::shuttle::{Refusal, Route};

/// Decides about the Requests that reach the port of a queue pair, until the peer is known to have
/// its answer.
pub(crate) trait Doorkeeper: Send {
    /// Binds the queue pair to who asks, if it is the peer that is waited for; again, if that has
    /// begun anew.
    fn admit(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> HelloAdmission;
}

/// What a doorkeeper says to a datagram.
pub(crate) enum HelloAdmission {
    /// It is the peer's, who has a connection now.
    Granted(Box<ShuttleQp>),
    /// It seems to be the peer's, who cannot have one.
    Refused(Refusal),
    /// Nothing.
    None,
}

/// Tells who asked that there is no connection. If the socket is full, it will ask again.
pub(super) fn turn_away(port: &UdpPort, route: &Route, why: Refusal, request: &[u8]) {
    if let Some(answer) = why.answer(request) {
        port.send_staged(route, &answer, answer.len());
    }
}
