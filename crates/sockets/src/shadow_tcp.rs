//! The TCP connection that accompanies an SDP stream, or replaces it.
//!
//! It stays open and silent beside the stream: it holds the addresses, it is the entry in the
//! listener's queue, and its end reports the end of the peer's process.

use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;

use weft_os::fds::HighFd;
use weft_reactor::{Interest, Source, Token};

use crate::{rdma, sys};

/// The TCP socket, and how the engine watches it.
pub struct ShadowTcp {
    fd: HighFd,
    token: Option<Token>,
    interest: Interest,
}

impl ShadowTcp {
    /// Has the engine call `source` for `interest`.
    pub fn new(fd: HighFd, interest: Interest, source: Arc<dyn Source>) -> Self {
        let token = Some(rdma::host().reactor().add(fd.as_fd(), interest, source));
        Self { fd, token, interest }
    }

    /// The descriptor.
    pub fn raw(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }

    /// Changes what the engine watches it for.
    pub fn watch(&mut self, interest: Interest) {
        if let Some(token) = self.token
            && self.interest != interest
        {
            self.interest = interest;
            rdma::host().reactor().modify(token, interest);
        }
    }

    /// Whether the engine watches it.
    pub fn is_watched(&self) -> bool {
        self.token.is_some()
    }

    /// Ends the watch for good.
    pub fn ignore(&mut self) {
        if let Some(token) = self.token.take() {
            rdma::host().reactor().remove(token);
        }
    }

    /// Whether its connect has succeeded, or failed; none while it is in progress.
    pub fn connect_result(&self) -> Option<bool> {
        let events = sys::poll_now(self.raw(), libc::POLLOUT);
        let failed = events & (libc::POLLERR | libc::POLLHUP) != 0;
        (events != 0).then_some(!failed)
    }
}

impl Drop for ShadowTcp {
    fn drop(&mut self) {
        self.ignore();
    }
}

/// The sending half of the TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TcpHalf {
    #[default]
    Open,
    /// Shut down, as the application's half is.
    Shut,
    /// The peer has left.
    Failed,
}

/// What a connection sends by TCP where that has replaced SDP.
///
/// Invariant: bytes are taken from the application only when none are left unsent.
#[derive(Default)]
pub struct TcpRelay {
    unsent: Vec<u8>,
    half: TcpHalf,
}

impl TcpRelay {
    /// Whether the kernel has taken all bytes.
    pub fn is_flushed(&self) -> bool {
        self.unsent.is_empty()
    }

    /// The connection has failed.
    pub fn fail(&mut self) {
        self.half = TcpHalf::Failed;
    }

    /// Whether the connection has failed.
    pub fn has_failed(&self) -> bool {
        self.half == TcpHalf::Failed
    }

    /// Sends `bytes`, and keeps what the kernel does not take. A failure shows when it receives.
    pub fn send(&mut self, tcp: Option<&ShadowTcp>, bytes: &[u8]) {
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
    pub fn flush(&mut self, tcp: Option<&ShadowTcp>, has_ended: bool) {
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
            sys::shut(tcp.raw(), libc::SHUT_WR);
        }
    }

    /// Drops what was kept; the peer finds a reset when the socket is closed.
    pub fn reset(&mut self, tcp: &ShadowTcp) {
        self.unsent.clear();
        // The end of the stream would precede the reset.
        if self.half == TcpHalf::Open {
            self.half = TcpHalf::Shut;
        }
        sys::reset_at_close(tcp.raw());
    }
}
