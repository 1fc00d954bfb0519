//! A pair that is offered to a listener of this host.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use super::name;
use crate::handoff::channel;
use crate::sys::{self, Inode};

/// An offer that was made.
pub struct PairOffer(OwnedFd);

impl PairOffer {
    /// Offers `theirs`, an end of a pair, in place of the connection that `tcp` is about to make
    /// to the listener behind `socket`.
    ///
    /// # Errors
    /// If no process of this user takes offers there, or too many wait.
    pub fn make(socket: Inode, theirs: RawFd, tcp: RawFd) -> io::Result<Self> {
        let fd = sys::message_socket()?;
        let raw = fd.as_raw_fd();
        sys::set_flags(raw, libc::O_RDWR | libc::O_NONBLOCK)?;
        sys::connect_name(raw, &name(socket))?;
        if channel::user(raw) != Some(weft_os::sys::user()) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        channel::send(raw, Some(theirs))?;
        channel::send(raw, Some(tcp))?;
        Ok(Self(fd))
    }

    /// Commits to the pair; whether it carries the connection. If not, the listener is served no
    /// more.
    pub fn commit(self) -> bool {
        channel::send(self.0.as_raw_fd(), None).is_ok() || self.is_taken()
    }

    /// Withdraws the offer; whether the pair carries the connection all the same, because it was
    /// taken before.
    pub fn withdraw(self) -> bool {
        sys::shut(self.0.as_raw_fd(), libc::SHUT_RDWR);
        self.is_taken()
    }

    fn is_taken(&self) -> bool {
        // An error of the socket is reported before what was received.
        (0..2).any(|_| matches!(channel::receive(self.0.as_raw_fd()), Ok(None)))
    }
}
