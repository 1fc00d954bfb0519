//! Why a connection failed.

use thiserror::Error;
use weft_verbs::Misuse;
use weft_wire::sdp::SdpError;

/// Why a connection failed. It stays failed; the caller disconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Fault {
    /// The peer broke the protocol.
    #[error("the peer broke SDP: {0}")]
    Peer(#[from] Violation),
    /// The queue pair did not take a request of ours.
    #[error("the queue pair refused: {0}")]
    Verbs(#[from] Misuse),
    /// The connection ended before both sides had said that they were done.
    #[error("the connection was reset")]
    Reset,
    /// This side has shut down what it wants to send on. The connection itself goes on.
    #[error("the stream was shut down")]
    Shut,
    /// This side gave it up.
    #[error("the connection was aborted")]
    Aborted,
}

/// What a peer did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Violation {
    /// What it sent is no message.
    #[error("{0}")]
    Format(#[from] SdpError),
    /// A message's number is not one more than that of the last one.
    #[error("message {found} instead of {expected}")]
    Sequence {
        /// The number that it has.
        found: u32,
        /// The number that it should have.
        expected: u32,
    },
    /// It acknowledges what was never sent.
    #[error("it acknowledges message {0}, which was never sent")]
    Acknowledgement(u32),
    /// It sent something after its DisConn.
    #[error("data after the end of the stream")]
    AfterEnd,
    /// A message that has no place here.
    #[error("{0}")]
    Unexpected(&'static str),
    /// Versions, sizes or counts in its Hello or HelloAck cannot be worked with.
    #[error("{0} in its Hello")]
    Hello(&'static str),
}

impl From<SdpError> for Fault {
    fn from(error: SdpError) -> Self {
        Self::Peer(error.into())
    }
}
