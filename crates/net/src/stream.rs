//! The byte stream below MPA, and what may carry a queue pair in its place.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_os::fds::HighFd;
use weft_rnic::{Batch, Written};

use crate::lane::ShmLane;
use crate::tcp::{self, Ready, Received};

/// Bytes to frame for one system call. More would have left the processor's own cache by the time
/// that the kernel copies what the CRC was computed over.
const BATCH_BYTES: usize = 512 << 10;

/// A connected TCP stream.
pub struct ByteStream(HighFd);

/// What carries a queue pair whose connection was set up by MPA.
pub enum MpaCarrier {
    /// The TCP connection.
    Tcp(ByteStream),
    /// Shared memory in its place; the TCP connection is closed.
    Lane {
        /// The lane.
        lane: Box<ShmLane>,
        /// The peer's address in the connection.
        peer: Option<SocketAddr>,
    },
}

impl MpaCarrier {
    /// `lane` in place of a connection, if there is one.
    pub fn new(tcp: TcpStream, lane: Option<ShmLane>) -> Self {
        match lane {
            Some(lane) => Self::Lane { lane: Box::new(lane), peer: tcp.peer_addr().ok() },
            None => Self::Tcp(tcp.into()),
        }
    }
}

impl<T: Into<ByteStream>> From<T> for MpaCarrier {
    fn from(tcp: T) -> Self {
        Self::Tcp(tcp.into())
    }
}

impl From<OwnedFd> for ByteStream {
    fn from(tcp: OwnedFd) -> Self {
        Self(HighFd::new(tcp))
    }
}

impl From<TcpStream> for ByteStream {
    fn from(tcp: TcpStream) -> Self {
        OwnedFd::from(tcp).into()
    }
}

impl ByteStream {
    /// What to watch.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// The peer's address, if the connection has not ended.
    pub fn peer(&self) -> Option<SocketAddr> {
        tcp::peer(self.fd())
    }

    /// Reads what is there, without waiting.
    pub fn receive(&mut self, room: &mut [u8]) -> Received {
        tcp::receive(self.fd(), room)
    }

    /// Writes what is left of a batch, without waiting.
    pub fn send(&mut self, out: &Batch<'_>) -> Written {
        tcp::send(self.fd(), out)
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        tcp::ready(self.fd())
    }

    /// Whether it is gone in both directions.
    pub fn is_broken(&self) -> bool {
        tcp::is_broken(self.fd())
    }

    /// Bytes of payload that the path carries in one segment.
    pub fn segment_bytes(&self) -> u32 {
        tcp::segment_size(self.fd())
    }

    /// Bytes to frame before they are written.
    pub fn batch_bytes(&self) -> usize {
        BATCH_BYTES
    }

    /// Whether everything sent is where the end of this process cannot keep it from the peer.
    pub fn is_delivered(&self) -> bool {
        tcp::unacknowledged(self.fd()) == 0
    }

    /// Waits up to a millisecond for bytes, for room if it is `blocked`, or for acknowledgements.
    pub fn wait(&self, blocked: bool) {
        tcp::wait(self.fd(), blocked);
    }

    /// Ends the sending half: the peer sees the end after everything written before.
    pub fn shutdown_write(&self) {
        tcp::shutdown_write(self.fd());
    }

    /// Ends both halves, also for copies of the socket that a forked child holds.
    pub fn shutdown(&self) {
        tcp::shutdown(self.fd());
    }
}
