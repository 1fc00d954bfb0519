//! Errors of the caller, and their errno.

use std::collections::TryReserveError;

use thiserror::Error;

/// Error of a call; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misuse {
    /// An argument is out of range or does not fit the object.
    #[error("{0}")]
    Invalid(&'static str),
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// Out of memory.
    #[error("there is no memory for it")]
    NoMemory,
    /// The object is still in use.
    #[error("the object is still in use")]
    Busy,
    /// Not supported by the device.
    #[error("the device does not offer {0}")]
    Unsupported(&'static str),
    /// There is no such object.
    #[error("no such object")]
    NotFound,
    /// The memory is not mapped with the rights asked for.
    #[error("the memory is not mapped with these rights")]
    Fault,
    /// Refused by policy.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// Error of a system call: its errno.
    #[error("the system refused: errno {0}")]
    System(i32),
}

impl Misuse {
    /// The errno that rdma-core's callers expect, positive.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) => 22,
            Self::Full | Self::NoMemory => 12,
            Self::Busy => 16,
            Self::Unsupported(_) => 95,
            Self::NotFound => 2,
            Self::Fault => 14,
            Self::Refused(_) => 13,
            Self::System(errno) => *errno,
        }
    }
}

impl From<TryReserveError> for Misuse {
    fn from(_: TryReserveError) -> Self {
        Self::NoMemory
    }
}
