//! State kept after both ends have closed a connection.

use weft_wire::shuttle::{ConnectionId, Packet};

use super::{ConnectionState, ShuttleConnection};

/// Answer to repeated Closes of the peer (S-20). The peer has not received this very packet, so it
/// accepts it however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWait {
    cid: ConnectionId,
    closed: Box<[u8]>,
    forget_ns: u64,
}

impl TimeWait {
    /// Connection id of the packets to answer.
    pub fn cid(&self) -> ConnectionId {
        self.cid
    }

    /// End of the obligation, in nanoseconds of the connection's clock.
    pub fn forget_ns(&self) -> u64 {
        self.forget_ns
    }

    /// Connection id of a possible Close in `datagram`.
    pub fn cid_of(datagram: &[u8]) -> Option<ConnectionId> {
        match Packet::parse(datagram) {
            Ok(Packet::Ctrl(header)) => Some(header.cid.base()),
            _ => None,
        }
    }

    /// Answer to `datagram`, which is for this connection. Its origin is not checked: the answer
    /// repeats what the peer was told before, and is shorter than what it answers. A Close is
    /// longer; a peer that has closed at the same time keeps such an answer too, and the two would
    /// answer each other without end.
    pub fn answer(&self, datagram: &[u8]) -> Option<&[u8]> {
        (datagram.len() > self.closed.len()).then_some(&*self.closed)
    }
}

impl ShuttleConnection {
    /// The remaining obligation to a peer that has closed the connection and was answered: whoever
    /// holds this may drop the connection. `None` while the answer has yet to leave.
    pub fn time_wait(&self) -> Option<TimeWait> {
        match &self.state {
            ConnectionState::Ended { answer: None, forget_ns, closed, .. }
                if !closed.is_empty() =>
            {
                let (cid, closed) = (self.identity.cid, closed.as_slice().into());
                Some(TimeWait { cid, closed, forget_ns: *forget_ns })
            }
            _ => None,
        }
    }
}
