//! The byte stream below MPA: a TCP connection, or the lane that has taken its place.

use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_os::fds::HighFd;
use weft_rnic::{Batch, Written};

use crate::lane::{self, ShmLane};
use crate::tcp::{self, Ready, Received};

/// Bytes of payload that a lane carries as one frame at most, in place of TCP's segment size.
const LANE_SEGMENT_BYTES: u32 = 64 << 10;
/// Bytes framed for one write to a lane, after which another frame may follow: three of them fit.
const LANE_BATCH_BYTES: usize = lane::RING_BYTES / 3 - LANE_SEGMENT_BYTES as usize;
/// The same for one system call. More would have left the processor's own cache by the time that
/// the kernel copies what the CRC was computed over.
const TCP_BATCH_BYTES: usize = 512 << 10;

/// A connected byte stream.
pub enum ByteStream {
    /// A TCP connection.
    Tcp(HighFd),
    /// What has taken the place of one, which is closed.
    Lane {
        /// The lane.
        lane: Box<ShmLane>,
        /// The peer's address in the connection.
        peer: Option<SocketAddr>,
    },
}

impl From<OwnedFd> for ByteStream {
    fn from(tcp: OwnedFd) -> Self {
        Self::Tcp(HighFd::new(tcp))
    }
}

impl From<TcpStream> for ByteStream {
    fn from(tcp: TcpStream) -> Self {
        OwnedFd::from(tcp).into()
    }
}

impl ByteStream {
    /// A connection that goes on over `lane`, if there is one.
    pub fn with_lane(tcp: TcpStream, lane: Option<ShmLane>) -> Self {
        match lane {
            Some(lane) => Self::Lane { lane: Box::new(lane), peer: tcp.peer_addr().ok() },
            None => tcp.into(),
        }
    }

    /// Whether it goes through shared memory: nothing alters a byte there, and the kernel neither
    /// takes nor announces any.
    pub fn is_lane(&self) -> bool {
        matches!(self, Self::Lane { .. })
    }

    /// What to watch.
    pub fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Lane { lane, .. } => lane.bell(),
        }
    }

    /// The TCP connection, if it is one.
    pub fn tcp(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Tcp(tcp) => Some(tcp.as_fd()),
            Self::Lane { .. } => None,
        }
    }

    /// The peer's address, if the connection has not ended.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(tcp) => tcp::peer(tcp.as_fd()),
            Self::Lane { peer, .. } => *peer,
        }
    }

    /// Reads what is there, without waiting.
    pub fn receive(&mut self, room: &mut [u8]) -> Received {
        match self {
            Self::Lane { lane, .. } => lane.receive(room),
            Self::Tcp(tcp) => tcp::receive(tcp.as_fd(), room),
        }
    }

    /// Whether a receive may bring something; without a system call.
    pub fn may_have_arrivals(&mut self) -> bool {
        match self {
            Self::Tcp(_) => true,
            Self::Lane { lane, .. } => lane.poll(),
        }
    }

    /// Writes what is left of a batch, without waiting.
    pub fn send(&mut self, out: &Batch<'_>) -> Written {
        match self {
            Self::Lane { lane, .. } => lane.send(out),
            Self::Tcp(tcp) => tcp::send(tcp.as_fd(), out),
        }
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        match self {
            Self::Lane { lane, .. } => lane.ready(),
            Self::Tcp(tcp) => tcp::ready(tcp.as_fd()),
        }
    }

    /// Whether it is gone in both directions.
    pub fn is_broken(&self) -> bool {
        tcp::is_broken(self.fd())
    }

    /// Bytes of payload that the path carries in one segment.
    pub fn segment_bytes(&self) -> u32 {
        match self {
            Self::Lane { .. } => LANE_SEGMENT_BYTES,
            Self::Tcp(tcp) => tcp::segment_size(tcp.as_fd()),
        }
    }

    /// Bytes to frame before they are written.
    pub fn batch_bytes(&self) -> usize {
        match self {
            Self::Lane { .. } => LANE_BATCH_BYTES,
            Self::Tcp(_) => TCP_BATCH_BYTES,
        }
    }

    /// Whether everything sent is where the end of this process cannot keep it from the peer.
    pub fn is_delivered(&self) -> bool {
        self.tcp().is_none_or(|tcp| tcp::unacknowledged(tcp) == 0)
    }

    /// Says that this side sleeps until what it watches is readable; whether there is something to
    /// do already, so that it should not. `blocked`: it waits for room too.
    pub fn sleep(&mut self, blocked: bool) -> bool {
        match self {
            Self::Tcp(_) => false,
            Self::Lane { lane, .. } => lane.sleep(blocked),
        }
    }

    /// Says that this side polls.
    pub fn wake(&mut self) {
        if let Self::Lane { lane, .. } = self {
            lane.wake();
        }
    }

    /// Waits up to a millisecond for bytes, for room if it is `blocked`, or for acknowledgements.
    pub fn wait(&mut self, blocked: bool) {
        match self {
            Self::Lane { lane, .. } => lane.wait(blocked),
            Self::Tcp(tcp) => tcp::wait(tcp.as_fd(), blocked),
        }
    }

    /// Ends the sending half: the peer sees the end after everything written before.
    pub fn shutdown_write(&mut self) {
        match self {
            Self::Lane { lane, .. } => lane.shutdown_write(),
            Self::Tcp(tcp) => tcp::shutdown_write(tcp.as_fd()),
        }
    }

    /// Ends both halves, also for copies of the sockets that a forked child holds.
    pub fn shutdown(&self) {
        tcp::shutdown(self.fd());
    }
}
