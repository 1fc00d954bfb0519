//! What a caller of the verbs did wrong, and the errno that says so.

use std::collections::TryReserveError;

use thiserror::Error;

/// A call that cannot be carried out as asked. Nothing has changed when it is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Misuse {
    /// An argument is out of range or does not fit the object.
    #[error("{0}")]
    Invalid(&'static str),
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// There is no memory for it.
    #[error("there is no memory for it")]
    NoMemory,
    /// The object is still in use.
    #[error("the object is still in use")]
    Busy,
    /// The device does not do this.
    #[error("the device does not offer {0}")]
    Unsupported(&'static str),
    /// No such object.
    #[error("no such object")]
    NotFound,
    /// The memory is not mapped with the rights asked for.
    #[error("the memory is not mapped with these rights")]
    Fault,
    /// It is not allowed here.
    #[error("refused: {0}")]
    Refused(&'static str),
    /// The operating system refused.
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
