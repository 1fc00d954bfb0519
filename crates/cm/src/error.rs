//! Errors by origin: [`CmMisuse`] is the caller's and becomes an errno at once; [`Failure`] is the
//! network's or the peer's and becomes the status of an event.

use thiserror::Error;

use crate::event::EventKind;
use crate::param::CmConvention;
use crate::state::{CmCommand, CmState};

/// Error of the caller; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CmMisuse {
    /// The command does not fit the state of the id.
    #[error("{command:?} does not fit an id that is {state:?}")]
    WrongState {
        /// Value asked for.
        command: CmCommand,
        /// State of the id.
        state: CmState,
    },
    /// More private data than every peer can take.
    #[error("{0} octets of private data, of which 251 can be sent")]
    PrivateDataTooLong(usize),
    /// A read depth above what the device offers, and not the value that means "all".
    #[error("a read depth of {asked} on a device that offers {device}")]
    DepthTooLarge {
        /// Value asked for.
        asked: u8,
        /// Limit of the device.
        device: u16,
    },
}

impl CmMisuse {
    /// The errno of the call that failed.
    pub fn errno(&self) -> i32 {
        EINVAL
    }
}

/// Cause of a failed connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Failure {
    /// Refused: nobody listens at the port, or the peer's host refused.
    #[error("connection refused")]
    Refused,
    /// The peer reset or closed the stream before it answered.
    #[error("connection reset by the peer")]
    Reset,
    /// No answer in time.
    #[error("timed out")]
    TimedOut,
    /// The peer's answer was no answer (RFC 5044, section 7.1.2: improperly formatted).
    #[error("the peer broke the protocol")]
    Protocol,
    /// Given up by the application of this side.
    #[error("given up by this side")]
    Aborted,
    /// Error of a system call: a positive errno.
    #[error("system error {0}")]
    Os(i32),
}

impl Failure {
    /// Sorts an errno of a socket call.
    pub fn from_errno(errno: i32) -> Failure {
        match errno {
            ECONNREFUSED => Failure::Refused,
            ECONNRESET | EPIPE => Failure::Reset,
            ETIMEDOUT => Failure::TimedOut,
            EPROTO => Failure::Protocol,
            ECONNABORTED => Failure::Aborted,
            other => Failure::Os(other),
        }
    }

    /// The positive errno.
    pub fn errno(self) -> i32 {
        match self {
            Failure::Refused => ECONNREFUSED,
            Failure::Reset => ECONNRESET,
            Failure::TimedOut => ETIMEDOUT,
            Failure::Protocol => EPROTO,
            Failure::Aborted => ECONNABORTED,
            Failure::Os(errno) => errno,
        }
    }

    /// The status of the event: a negative errno, as the kernel's iWARP connection manager has it.
    /// (Positive statuses are InfiniBand's reasons for a rejection.)
    pub fn status(self) -> i32 {
        -self.errno()
    }

    /// The event that reports this failure of a connection attempt, and its status: InfiniBand
    /// has one for a peer where nobody listens, and for one that has given up.
    pub(crate) fn reported(self, manner: CmConvention) -> (EventKind, i32) {
        match (manner, self) {
            (CmConvention::InfiniBand, Failure::Refused) => {
                (EventKind::Rejected, REASON_NOBODY_LISTENS)
            }
            (CmConvention::InfiniBand, Failure::Reset) => (EventKind::Rejected, REASON_GIVEN_UP),
            (CmConvention::Datagrams, Failure::Refused) => {
                (EventKind::Unreachable, SIDR_UNSUPPORTED)
            }
            _ => (self.event_kind(), self.status()),
        }
    }

    /// The event that reports this failure of a connection attempt.
    pub(crate) fn event_kind(self) -> EventKind {
        match self {
            Failure::Refused | Failure::Reset => EventKind::Rejected,
            Failure::TimedOut => EventKind::Unreachable,
            Failure::Protocol | Failure::Aborted | Failure::Os(_) => EventKind::ConnectError,
        }
    }
}

/// The event that reports a rejection by the peer's application, and its status.
pub(crate) fn rejection(manner: CmConvention) -> (EventKind, i32) {
    match manner {
        CmConvention::Iwarp => (EventKind::Rejected, Failure::Refused.status()),
        CmConvention::InfiniBand => (EventKind::Rejected, REASON_CONSUMER),
        CmConvention::Datagrams => (EventKind::Unreachable, SIDR_REJECTED),
    }
}

/// InfiniBand architecture, volume 1, table 106: timeout, which Linux says as well when it gives up
/// an attempt; invalid service id; and rejected by the consumer.
const REASON_GIVEN_UP: i32 = 4;
const REASON_NOBODY_LISTENS: i32 = 8;
const REASON_CONSUMER: i32 = 28;

/// The same, status of a service ID resolution: service id not supported, and rejected by the
/// service.
const SIDR_UNSUPPORTED: i32 = 1;
const SIDR_REJECTED: i32 = 2;

const EINVAL: i32 = 22;
const EPIPE: i32 = 32;
const EPROTO: i32 = 71;
const ECONNABORTED: i32 = 103;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_has_its_event_and_a_negative_status() {
        let table = [
            (Failure::Refused, EventKind::Rejected, -111),
            (Failure::Reset, EventKind::Rejected, -104),
            (Failure::TimedOut, EventKind::Unreachable, -110),
            (Failure::Protocol, EventKind::ConnectError, -71),
            (Failure::Aborted, EventKind::ConnectError, -103),
            (Failure::Os(113), EventKind::ConnectError, -113),
        ];
        for (failure, kind, status) in table {
            assert_eq!(failure.event_kind(), kind, "{failure}");
            assert_eq!(failure.status(), status, "{failure}");
            assert_eq!(Failure::from_errno(failure.errno()), failure);
        }
    }

    #[test]
    fn infiniband_has_reasons_for_a_peer_that_is_not_there_or_gave_up() {
        for (failure, reason) in [(Failure::Refused, 8), (Failure::Reset, 4)] {
            let reported = failure.reported(CmConvention::InfiniBand);
            assert_eq!(reported, (EventKind::Rejected, reason), "{failure}");
        }
        let reported = Failure::Reset.reported(CmConvention::Iwarp);
        assert_eq!(reported, (EventKind::Rejected, -104));
    }

    #[test]
    fn a_broken_pipe_is_a_reset() {
        assert_eq!(Failure::from_errno(EPIPE), Failure::Reset);
    }
}
