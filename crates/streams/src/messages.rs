//! What both ends of streams say to each other.
//!
//! Invariant: a number that names no stream is ignored, since the stream may just have ended.
//!
//! Order: [`StreamMessage::Open`], then data and grants, then [`StreamMessage::End`] of each
//! direction, or [`StreamMessage::Reset`].

use serde::{Deserialize, Serialize};

/// Bytes that go in one message, at most.
pub const DATA_MAX: usize = 256 * 1024;

/// What the far end is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum StreamRequest {
    /// To run a command, with stream 0 as its stdin, 1 as its stdout, 2 as its stderr.
    Pipe {
        /// The program and its arguments.
        command: Vec<Vec<u8>>,
    },
    /// To forward connections of TCP.
    Forward {
        /// Which.
        forwards: Vec<ForwardSpec>,
    },
}

/// Where connections are taken, and where they go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForwardSpec {
    /// Whether the far end takes them, and the near end goes on.
    pub is_remote: bool,
    /// The address that is listened at.
    pub bind: String,
    /// Its port.
    pub port: u16,
    /// The host that the other end connects to.
    pub to_host: String,
    /// Its port.
    pub to_port: u16,
}

/// What is said of streams.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StreamMessage {
    /// A connection was taken for a forward, counted from 0.
    Open {
        /// Number of the new stream.
        id: u64,
        /// Which forward.
        forward: u32,
    },
    /// Bytes follow.
    Data {
        /// Number of the stream.
        id: u64,
        /// Its sender is short of room.
        is_short: bool,
    },
    /// Bytes up to here may be sent.
    Grant {
        /// Number of the stream.
        id: u64,
        /// Bytes from the start of the stream.
        limit: u64,
    },
    /// No more bytes follow.
    End {
        /// Number of the stream.
        id: u64,
    },
    /// The stream is broken: nothing more is sent or taken.
    Reset {
        /// Number of the stream.
        id: u64,
    },
    /// All that was asked for is ready.
    Ready,
    /// Something could not be done; it is the end if `is_fatal`.
    Problem {
        /// What.
        why: String,
        /// Whether it is the end.
        is_fatal: bool,
    },
    /// The command has ended, and so have its streams.
    Exit {
        /// Its status, 128 and the signal's number if one ended it.
        status: u8,
    },
}
