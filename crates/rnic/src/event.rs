//! What a connection tells its owner: where a transmission stands, and what has come about.

use core::net::IpAddr;

pub use weft_shuttle::ConnectionEnd;
use weft_shuttle::{Route, Unopened};
use weft_wire::datagram::{NOTICE_LEN, Notice};
use weft_wire::shuttle::PathId;

/// What becomes of the queue pair when its peer closes the connection, over Shuttle in good order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenClosed {
    /// It fails: the connection manager tells the application.
    Fail,
    /// It stays as it is, as a queue pair does whose peer is destroyed, until a request cannot be
    /// delivered.
    Stay,
}

/// Where a transmission stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// Nothing more may leave now.
    Done,
    /// Other connections should have their turn first.
    More,
    /// The socket takes no more for now.
    Blocked,
    /// The stream is gone.
    Failed,
}

/// What the peer's answer said.
#[derive(Clone, Debug)]
pub struct Established {
    /// The peer's private data, where the handshake was not the connection manager's own.
    pub private_data: Vec<u8>,
    /// Reads and Atomics that this side may have outstanding.
    pub ord: u16,
    /// Reads and Atomics of the peer that this side serves at a time.
    pub ird: u16,
}

/// What has come about on a connection.
#[derive(Clone, Debug)]
pub enum ConnEvent {
    /// Both ends know of the connection. Of datagrams and loopback there is none.
    Established(Established),
    /// The peer answers on this route of a path, which carries data from now on (Shuttle).
    PathFound {
        /// Number of the path.
        path: PathId,
        /// Its route.
        route: Route,
    },
    /// The connection is over, or never came to be. Comes once.
    Ended {
        /// How.
        end: ConnectionEnd,
        /// What the peer said, if it refused.
        private_data: Vec<u8>,
    },
    /// A datagram was dropped that its sender may want to know of.
    Dropped(DroppedDatagram),
    /// The receiver at `from` says that it drops the datagrams of this queue pair.
    Notice {
        /// What it says.
        notice: Notice,
        /// From where.
        from: IpAddr,
    },
}

/// A datagram that was dropped because of how it is protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DroppedDatagram {
    /// Why it did not open; `None` for clear text that is not taken.
    pub unopened: Option<Unopened>,
    /// Its first bytes, which a notice to its sender repeats; none where no notice is due.
    pub head: Option<[u8; NOTICE_LEN]>,
    /// It names this queue pair, and has its queue key.
    pub names_qp: bool,
    /// From where, and to which address.
    pub route: Route,
}
