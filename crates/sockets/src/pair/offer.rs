//! A pair that is offered to a listener of this host.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use weft_os::users;

use crate::handoff::channel;
use crate::names::{self, SocketEnds};
use crate::socket_diag::LocalListener;
use crate::sys;

/// An offer that was made: the end for the application that connects. It is withdrawn when it is
/// dropped.
pub struct PairOffer(OwnedFd);

impl PairOffer {
    /// Offers a pair in place of the connection that `tcp` is about to make to `listener`.
    ///
    /// # Errors
    /// If no process of this user takes offers there, or too many wait.
    pub fn make(listener: &LocalListener, tcp: RawFd) -> io::Result<Self> {
        let end = sys::stream_socket()?;
        let raw = end.as_raw_fd();
        let name = names::of_offers(listener.inode.number(), listener.is_ipv6);
        sys::connect_name(raw, &name)?;
        if !channel::user(raw).is_some_and(users::is_own) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        sys::set_room(raw);
        channel::send(raw, Some(tcp))?;
        Ok(Self(end))
    }

    /// Commits to the pair for the connection between `ends`; gives the application's end.
    ///
    /// # Errors
    /// If the listener is served no more, or whoever accepts has stopped waiting: TCP carries the
    /// connection then.
    pub fn commit(self, ends: &SocketEnds) -> io::Result<OwnedFd> {
        sys::name_after(self.0.as_raw_fd(), ends)?;
        channel::send(self.0.as_raw_fd(), None)?;
        Ok(self.0)
    }
}
