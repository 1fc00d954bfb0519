//! Errors of the calls of this module; failures of the network are events instead.

use std::io;

use thiserror::Error;
use weft_rnic::cm;

/// Why a call failed. Nothing has changed unless the call says otherwise.
#[derive(Debug, Error)]
pub enum CmError {
    /// The call does not fit the state of the id, or its parameters the device.
    #[error(transparent)]
    Cm(#[from] cm::CmMisuse),
    /// The queue pair cannot be connected.
    #[error(transparent)]
    Verbs(#[from] weft_verbs::Misuse),
    /// The operating system refused; or the peer is gone.
    #[error(transparent)]
    System(#[from] io::Error),
    /// Not with ids of this port space.
    #[error("not offered in this port space")]
    PortSpace,
    /// Source and destination are of different address families.
    #[error("source and destination are of different address families")]
    Family,
}

impl CmError {
    /// The errno of the call, positive.
    pub fn errno(&self) -> i32 {
        match self {
            CmError::Cm(misuse) => misuse.errno(),
            CmError::Verbs(misuse) => misuse.errno(),
            CmError::System(error) => error.raw_os_error().unwrap_or(libc::EIO),
            CmError::PortSpace => libc::EOPNOTSUPP,
            CmError::Family => libc::EINVAL,
        }
    }
}
