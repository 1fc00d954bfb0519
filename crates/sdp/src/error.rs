//! Faults of a connection.

use thiserror::Error;
use weft_verbs::Misuse;
use weft_wire::sdp::SdpError;

/// Cause of a connection's failure. It is permanent; the caller disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SdpFault {
    /// Protocol error of the peer.
    #[error("the peer broke SDP: {0}")]
    Peer(#[from] Violation),
    /// The queue pair refused a request of this side.
    #[error("the queue pair refused: {0}")]
    Verbs(#[from] Misuse),
    /// The connection ended before both sides had said that they were done.
    #[error("the connection was reset")]
    Reset,
    /// This side has shut down its sending half. The connection continues.
    #[error("the stream was shut down")]
    Shut,
    /// Aborted by this side.
    #[error("the connection was aborted")]
    Aborted,
}

/// Protocol error of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// Malformed message.
    #[error("{0}")]
    Format(#[from] SdpError),
    /// A message's number is not one more than that of the last one.
    #[error("message {found} instead of {expected}")]
    Sequence {
        /// Its number.
        found: u32,
        /// The expected number.
        expected: u32,
    },
    /// It acknowledges a message that was never sent.
    #[error("it acknowledges message {0}, which was never sent")]
    Acknowledgement(u32),
    /// Data after its DisConn.
    #[error("data after the end of the stream")]
    AfterEnd,
    /// Unexpected message.
    #[error("{0}")]
    Unexpected(&'static str),
    /// Versions, sizes or counts in its Hello or HelloAck cannot be worked with.
    #[error("{0} in its Hello")]
    Hello(&'static str),
}

impl From<SdpError> for SdpFault {
    fn from(error: SdpError) -> Self {
        Self::Peer(error.into())
    }
}
