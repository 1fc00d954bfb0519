//! The TCP connection that accompanies an SDP stream, or replaces it.
//!
//! It stays open and silent beside the stream: it holds the addresses, it is the entry in the
//! listener's queue, and its end reports the end of the peer's process.

use std::io::ErrorKind;

use crate::sys;
use crate::watched_fd::WatchedFd;

/// Whether the connect of `tcp` has succeeded, or failed; none while it is in progress.
pub fn connect_result(tcp: &WatchedFd) -> Option<bool> {
    let events = sys::poll_now(tcp.raw(), libc::POLLOUT);
    let failed = events & (libc::POLLERR | libc::POLLHUP) != 0;
    (events != 0).then_some(!failed)
}

/// The sending half of the TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TcpHalf {
    #[default]
    Open,
    /// Shut down, as the application's half is.
    Shut,
    /// The peer has closed or reset the connection.
    Failed,
}

/// The sending side of a connection whose data TCP carries instead of SDP.
///
/// Invariant: bytes are taken from the application only when none are left unsent. Until all of
/// the application's are sent, the end of this process resets the connection: the peer does not
/// take a part for the whole.
#[derive(Default)]
pub struct TcpRelay {
    unsent: Vec<u8>,
    half: TcpHalf,
}

impl TcpRelay {
    /// Takes the place of SDP, before anything is sent.
    pub fn begin(tcp: &WatchedFd) {
        sys::keep_urgent_inline(tcp.raw());
        sys::set_reset_at_close(tcp.raw(), true);
    }

    /// Whether the kernel has taken all bytes.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Marks the connection as failed; nothing more is sent.
    pub fn fail(&mut self) {
        self.unsent.clear();
        self.half = TcpHalf::Failed;
    }

    /// Whether the connection has failed.
    pub fn has_failed(&self) -> bool {
        self.half == TcpHalf::Failed
    }

    /// Sends `bytes`, and keeps what the kernel does not take. A failure shows when it receives.
    pub fn send(&mut self, tcp: Option<&WatchedFd>, bytes: &[u8]) {
        let sent = tcp.map(|tcp| sys::send(tcp.raw(), bytes, 0));
        let count = match sent {
            Some(Ok(count)) => count,
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => 0,
            _ => bytes.len(),
        };
        self.unsent.extend_from_slice(&bytes[count..]);
    }

    /// Sends what was kept, and the end of the stream behind it if the application `has_ended` its
    /// half.
    pub fn flush(&mut self, tcp: Option<&WatchedFd>, has_ended: bool) {
        let Some(tcp) = tcp else { return };
        while !self.unsent.is_empty() {
            match sys::send(tcp.raw(), &self.unsent, 0) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.unsent.clear(),
            }
        }
        if has_ended && self.half == TcpHalf::Open {
            self.half = TcpHalf::Shut;
            sys::set_reset_at_close(tcp.raw(), false);
            sys::shut(tcp.raw(), libc::SHUT_WR);
        }
    }

    /// Drops what was kept; the peer finds a reset when the socket is closed.
    pub fn reset(&mut self, tcp: &WatchedFd) {
        self.unsent.clear();
        // The end of the stream would precede the reset.
        if self.half == TcpHalf::Open {
            self.half = TcpHalf::Shut;
        }
        sys::set_reset_at_close(tcp.raw(), true);
    }
}
