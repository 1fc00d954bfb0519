//! What is left of a connection when both ends have closed it.

use weft_wire::shuttle::{ConnectionId, Packet};

use super::{Connection, State};

/// What a connection that its peer has closed still owes it (S-20): an answer to a Close that comes
/// again. The peer has not had this very packet, so it takes it, however often it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeWait {
    cid: ConnectionId,
    closed: Box<[u8]>,
    forget_ns: u64,
}

impl TimeWait {
    /// The id that packets to the connection carry.
    pub fn cid(&self) -> ConnectionId {
        self.cid
    }

    /// Until when it is owed, in nanoseconds of the connection's clock.
    pub fn forget_ns(&self) -> u64 {
        self.forget_ns
    }

    /// The id of the connection that `datagram` may be a Close of.
    pub fn cid_of(datagram: &[u8]) -> Option<ConnectionId> {
        match Packet::parse(datagram) {
            Ok(Packet::Ctrl(header)) => Some(header.cid.base()),
            _ => None,
        }
    }

    /// The answer to `datagram`, which is for this connection. Nobody checks who sent it: the
    /// answer says only what the peer was told before, and is not longer than what it answers.
    pub fn answer(&self, datagram: &[u8]) -> Option<&[u8]> {
        (datagram.len() >= self.closed.len()).then_some(&*self.closed)
    }
}

impl Connection {
    /// What is left to be done for a peer that has closed the connection and has been answered:
    /// whoever holds this may drop the connection. `None` while the answer has yet to leave.
    pub fn time_wait(&self) -> Option<TimeWait> {
        match &self.state {
            State::Ended { answer: None, forget_ns, closed } if !closed.is_empty() => {
                let (cid, closed) = (self.identity.cid, closed.as_slice().into());
                Some(TimeWait { cid, closed, forget_ns: *forget_ns })
            }
            _ => None,
        }
    }
}
