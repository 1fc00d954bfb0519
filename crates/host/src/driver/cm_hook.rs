//! On whose behalf a connection of Shuttle is made: the connection manager, which hears how its
//! handshake ended and when it is over, each once.

use std::sync::Arc;

use weft_os::clock::{self, ns_at};
use weft_rnic::Established;
use weft_rnic::shuttle::Route;
use weft_rnic::wire::shuttle::hello::HelloKind;
use weft_rnic::wire::shuttle::{ConnectionId, Packet};

use super::watcher::{Answer, LinkWatcher, Notices};

/// The place that a connection was granted at. Whoever asks there from the address of its peer is
/// heard by the connection's own socket.
pub trait Demux: Send + Sync {
    /// Looks at a packet that may ask for a connection; whether it is the connection's own.
    fn sort(&self, now_ns: u64, route: Route, datagram: &[u8]) -> bool;
    /// The peer of this connection has shown that it knows of it.
    fn confirm(&self, cid: ConnectionId);
    /// This connection is no more.
    fn release(&self, now_ns: u64, cid: ConnectionId);
}

/// The connection manager's interest in a connection, and what it has been told.
pub struct CmHook {
    watcher: Arc<dyn LinkWatcher>,
    demux: Option<Box<dyn Demux>>,
    cid: ConnectionId,
    /// The answer that is to be told.
    answer: Option<Answer>,
    answered: bool,
    ended: bool,
}

impl CmHook {
    /// For the connection with id `cid`; with the place that it was granted at, if it was here.
    pub fn new(
        watcher: Arc<dyn LinkWatcher>,
        cid: ConnectionId,
        demux: Option<Box<dyn Demux>>,
    ) -> Self {
        Self { watcher, demux, cid, answer: None, answered: false, ended: false }
    }

    /// Whether a datagram is nothing to the connection; somebody else then has it.
    pub(crate) fn is_strange(&self, now_ns: u64, route: Route, datagram: &[u8]) -> bool {
        let Some(demux) = &self.demux else { return false };
        asks(datagram) && !demux.sort(now_ns, route, datagram)
    }

    /// Whether the connection was granted at a place that hears what comes from elsewhere.
    pub(crate) fn is_guest(&self) -> bool {
        self.demux.is_some()
    }

    /// The peer granted the connection, or knows that it was granted.
    pub(crate) fn granted(&mut self, established: Established) {
        if let Some(demux) = &self.demux {
            demux.confirm(self.cid);
        }
        self.answer(Answer::Granted(established));
    }

    /// How the handshake ended.
    pub(crate) fn answer(&mut self, answer: Answer) {
        if !self.answered {
            (self.answered, self.answer) = (true, Some(answer));
        }
    }

    /// What is to be told now; `over` if nothing follows.
    pub(crate) fn tell(&mut self, over: bool, notices: &mut Notices) {
        if let Some(answer) = self.answer.take() {
            self.ended |= !matches!(answer, Answer::Granted(_));
            notices.answered = Some((Arc::clone(&self.watcher), answer));
        }
        if over && !self.ended {
            self.ended = true;
            notices.disconnected = Some(Arc::clone(&self.watcher));
        }
    }
}

impl Drop for CmHook {
    fn drop(&mut self) {
        if let Some(demux) = &self.demux {
            demux.release(ns_at(clock::now()), self.cid);
        }
    }
}

/// Whether a datagram may ask for a connection.
pub fn requests(datagram: &[u8]) -> bool {
    matches!(Packet::parse(datagram), Ok(Packet::Hello { kind: HelloKind::Request, .. }))
}

/// Whether a datagram may ask for a connection, or whether any are granted.
pub fn asks(datagram: &[u8]) -> bool {
    match Packet::parse(datagram) {
        Ok(Packet::Hello { kind: HelloKind::Probe, to }) => to == ConnectionId(0),
        Ok(Packet::Hello { kind, .. }) => kind == HelloKind::Request,
        _ => false,
    }
}
