//! Chooses SDP or TCP for each connection that an application accepts.

use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use crate::handoff::{Grants, HandoffServer};
use crate::names::SocketEnds;
use crate::registry::Registry;
use crate::report::Carrier;
use crate::strict;
use crate::sys::{self, Inode};

/// The socket that an application gets for an accepted connection.
pub enum AcceptResult {
    /// This socket in place of TCP's: the peer speaks SDP, or has the other end of a pair.
    Replaced(OwnedFd),
    /// The TCP socket as it is.
    Tcp,
    /// Nothing: the peer was turned away, and the application does not hear of it.
    Nothing,
}

/// Chooses the application's socket for `stream`, which it has accepted from `peer` at the listener
/// `fd`.
pub fn accepted(fd: RawFd, stream: RawFd, peer: SocketAddr) -> AcceptResult {
    let settings = &Registry::get().env().settings;
    match sys::inode(fd).and_then(|socket| claim(fd, socket, stream, peer)) {
        Some(theirs) => AcceptResult::Replaced(theirs),
        None if strict::turns_away(settings, fd, stream, peer) => AcceptResult::Nothing,
        None => AcceptResult::Tcp,
    }
}

fn claim(fd: RawFd, socket: Inode, stream: RawFd, peer: SocketAddr) -> Option<OwnedFd> {
    let registry = Registry::get();
    if let Some(listener) = registry.listeners.find(socket) {
        return listener.claim(stream, Some(stream), peer);
    }
    if let Some(end) = claim_inherited(socket, stream, peer) {
        return Some(end);
    }
    match HandoffServer::ask(socket, stream) {
        Ok(answer) => answer,
        Err(_nobody) => {
            registry.listeners.take_over(&registry.conns, fd, socket);
            None
        }
    }
}

/// The end of a pair that was offered to a listener of a parent process.
fn claim_inherited(socket: Inode, stream: RawFd, peer: SocketAddr) -> Option<OwnedFd> {
    let Registry { listeners, conns, .. } = Registry::get();
    let ends = SocketEnds { local: sys::local(stream).ok()?, remote: peer };
    let end = listeners.claim_inherited(socket, &ends)?;
    conns.env.reports.accepted(peer, Carrier::Pair);
    Some(end)
}
