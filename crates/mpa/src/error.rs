//! Errors of MPA, and their Terminate codes.

use weft_wire::mpa::StartError;
use weft_wire::terminate::TerminateCode;

/// An error of MPA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MpaError {
    /// TCP was closed, lost or reset under a connection in use.
    #[error("the TCP connection is gone")]
    Closed,
    /// An FPDU arrived with a wrong CRC.
    #[error("frame with a wrong CRC")]
    Crc,
    /// A marker contradicts the chain of lengths.
    #[error("marker and frame length disagree")]
    Marker,
    /// The start frame is malformed.
    #[error("malformed start frame: {0}")]
    Start(#[from] StartError),
    /// The start frame is of a revision that is not spoken here, or not the one that was asked
    /// for. An initiator that asked for RFC 6581 may try once more without.
    #[error("start frame of unexpected revision {0}")]
    Revision(u8),
    /// The peer will have more Reads outstanding than can be served.
    #[error("the peer needs a larger inbound read depth")]
    InsufficientIrd,
    /// The peer understands no ready-to-receive indication that can be given.
    #[error("no ready-to-receive indication in common")]
    NoRtr,
    /// The application gave more private data than [`crate::negotiate::MAX_PRIVATE_DATA`].
    #[error("{0} octets of private data are too many")]
    PrivateDataTooLong(usize),
}

impl MpaError {
    /// The code by which a Terminate names the error (RFC 5044, section 8; RFC 6581, section 8).
    /// Errors of start frames end the connection before any Terminate could be sent.
    pub fn terminate_code(self) -> TerminateCode {
        match self {
            Self::Closed => TerminateCode::LlpClosed,
            Self::Crc => TerminateCode::LlpCrc,
            Self::Marker => TerminateCode::LlpFraming,
            Self::Start(_) | Self::Revision(_) => TerminateCode::LlpInvalidFrame,
            Self::PrivateDataTooLong(_) => TerminateCode::LlpCatastrophic,
            Self::InsufficientIrd => TerminateCode::LlpInsufficientIrd,
            Self::NoRtr => TerminateCode::LlpNoRtr,
        }
    }
}

/// Cause of the end of reception: an error of MPA, or a fault found by the sink above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxFault<F> {
    /// An invalid frame.
    Mpa(MpaError),
    /// A fault of its contents.
    Sink(F),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_registry_is_reached() {
        let errors = [
            MpaError::Closed,
            MpaError::Crc,
            MpaError::Marker,
            MpaError::Start(StartError::Key),
            MpaError::PrivateDataTooLong(252),
            MpaError::InsufficientIrd,
            MpaError::NoRtr,
        ];
        for (error, code) in errors.into_iter().zip(1..) {
            assert_eq!(error.terminate_code().to_word(), 0x2000 | code);
        }
    }
}
