//! Chooses SDP or TCP for each connection that an application accepts.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{OwnedFd, RawFd};

use libc::c_int;

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
    /// This errno: the peer is reset, which may have another socket than TCP's.
    Failed(c_int),
}

/// Chooses the application's socket for `stream`, which it has accepted from `peer` at the listener
/// `fd`.
pub fn accepted(fd: RawFd, stream: RawFd, peer: SocketAddr) -> AcceptResult {
    let settings = &Registry::get().env().settings;
    let claimed = sys::inode(fd).map_or(Ok(None), |socket| claim(fd, socket, stream, peer));
    match claimed {
        Ok(Some(theirs)) => AcceptResult::Replaced(theirs),
        Ok(None) if strict::turns_away(settings, fd, stream, peer) => AcceptResult::Nothing,
        Ok(None) => AcceptResult::Tcp,
        Err(error) => AcceptResult::Failed(error.raw_os_error().unwrap_or(libc::EMFILE)),
    }
}

fn claim(fd: RawFd, socket: Inode, stream: RawFd, peer: SocketAddr) -> io::Result<Option<OwnedFd>> {
    let registry = Registry::get();
    if let Some(listener) = registry.listeners.find(socket) {
        return listener.claim(stream, Some(stream), peer);
    }
    if let Some(end) = claim_inherited(socket, stream, peer)? {
        return Ok(Some(end));
    }
    let asking = registry.listeners.spare.message_socket();
    let answer = asking.and_then(|asking| HandoffServer::ask(asking, socket, stream));
    registry.listeners.spare.keep();
    let answer = sys::unless_lacking(answer)?;
    if answer.is_none() {
        // Nobody serves it.
        registry.listeners.take_over(&registry.conns, fd, socket);
    }
    Ok(answer.flatten())
}

/// The end of a pair that was offered to a listener of a parent process.
fn claim_inherited(socket: Inode, stream: RawFd, peer: SocketAddr) -> io::Result<Option<OwnedFd>> {
    let Registry { listeners, conns, .. } = Registry::get();
    let Ok(local) = sys::local(stream) else { return Ok(None) };
    let end = listeners.claim_inherited(socket, &SocketEnds { local, remote: peer })?;
    if end.is_some() {
        conns.env.reports.accepted(peer, Carrier::Pair);
    }
    Ok(end)
}
