//! What a connection sends and receives in clear, for who captures it: before it is sealed, and
//! after it was opened and found to be authentic.

use core::net::SocketAddr;

use crate::shuttle::{CtrlHeader, DataHeader};

/// Which way something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TapDirection {
    /// This end has sent it.
    Sent,
    /// This end has received it.
    Received,
}

/// The addresses of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TapEnds {
    /// Of this end.
    pub local: SocketAddr,
    /// Of the peer.
    pub remote: SocketAddr,
}

/// What was sent or received.
#[derive(Clone, Copy, Debug)]
pub enum Tapped<'a> {
    /// The next bytes of a stream of MPA.
    Stream(&'a [u8]),
    /// A datagram of Shuttle's handshake.
    ShuttleHello(&'a [u8]),
    /// A data packet of Shuttle, without its trailer.
    ShuttleData {
        /// Its header.
        header: &'a DataHeader,
        /// Its segments, as [`crate::shuttle::segments`] says.
        body: &'a [u8],
    },
    /// A control packet of Shuttle, without its trailer.
    ShuttleCtrl {
        /// Its header.
        header: &'a CtrlHeader,
        /// Its frames.
        frames: &'a [u8],
    },
    /// An unreliable datagram: its headers, as [`crate::datagram`] says, and its payload.
    Datagram(&'a [u8]),
}

/// Looks at what a connection sends and receives. It is called for each packet, by whoever drives
/// the connection.
pub trait PacketTap: Send {
    /// Something was sent or received. A stream has the same `ends` all the time and does not say
    /// them.
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, what: Tapped<'_>);
}
