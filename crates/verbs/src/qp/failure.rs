//! Why a queue pair went to ERR: what the log says.

use std::fmt;

use weft_sync::Mutex;

use crate::wc::WcStatus;

/// The reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpFailure {
    /// The application moved it there.
    Modified,
    /// The application destroys it.
    Destroyed,
    /// The application ended the connection.
    Disconnected,
    /// The peer ended the connection.
    PeerClosed,
    /// The peer, or its host where nobody listens, refused the connection.
    Rejected,
    /// The peer is gone: retries exceeded.
    Unreachable,
    /// The peer posted no receive: RNR retries exceeded.
    NoReceive,
    /// A request of this side could not be carried out, with this status.
    Request(WcStatus),
    /// The peer refused a request, with the code of its Terminate.
    Refused(u16),
    /// The peer sent what this side refuses, with the code of its own Terminate.
    PeerMisbehaved(u16),
    /// Memory of this side that the peer uses went away.
    MemoryGone,
    /// The transport below failed.
    Transport,
    /// A completion queue of it is over.
    QueueOver,
    /// The device was reset.
    DeviceReset,
    /// A fault of `WEFT_FAULT`.
    Planned(WcStatus),
}

impl fmt::Display for QpFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Modified => "the application moved it there",
            Self::Destroyed => "the application destroys it",
            Self::Disconnected => "this end closed the connection",
            Self::PeerClosed => "the peer closed the connection",
            Self::Rejected => "the connection was refused",
            Self::Unreachable => "no answer from the peer, retries exceeded",
            Self::NoReceive => "the peer posted no receive, RNR retries exceeded",
            Self::Request(status) => return write!(f, "a request failed: {}", name(*status)),
            Self::Refused(code) => {
                return write!(f, "the peer refused a request, Terminate {code:#06x}");
            }
            Self::PeerMisbehaved(code) => {
                return write!(f, "the peer sent what is refused, Terminate {code:#06x}");
            }
            Self::MemoryGone => "memory that the peer uses is gone",
            Self::Transport => "the transport failed",
            Self::QueueOver => "its completion queue is over",
            Self::DeviceReset => "the device was reset",
            Self::Planned(status) => return write!(f, "a planned fault: {}", name(*status)),
        };
        f.write_str(text)
    }
}

fn name(status: WcStatus) -> &'static str {
    match status {
        WcStatus::Success => "success",
        WcStatus::LocLenErr => "local length error",
        WcStatus::LocQpOpErr => "local QP operation error",
        WcStatus::LocProtErr => "local protection error",
        WcStatus::WrFlushErr => "flushed",
        WcStatus::MwBindErr => "memory window bind error",
        WcStatus::BadRespErr => "bad response",
        WcStatus::LocAccessErr => "local access error",
        WcStatus::RemInvReqErr => "remote invalid request error",
        WcStatus::RemAccessErr => "remote access error",
        WcStatus::RemOpErr => "remote operation error",
        WcStatus::RetryExcErr => "retries exceeded",
        WcStatus::RnrRetryExcErr => "RNR retries exceeded",
        WcStatus::FatalErr => "fatal error",
    }
}

/// The first reason since the queue pair was made or reset: what follows from it is none.
#[derive(Debug, Default)]
pub struct FirstFailure(Mutex<Option<QpFailure>>);

impl FirstFailure {
    /// Notes a reason, before the state changes.
    pub fn note(&self, reason: QpFailure) {
        self.0.lock().get_or_insert(reason);
    }

    /// The reason.
    pub fn get(&self) -> Option<QpFailure> {
        *self.0.lock()
    }

    /// The queue pair begins anew.
    pub(super) fn clear(&self) {
        *self.0.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_stays_until_a_reset() {
        let first = FirstFailure::default();
        assert_eq!(first.get(), None);
        first.note(QpFailure::Unreachable);
        first.note(QpFailure::Disconnected);
        assert_eq!(first.get(), Some(QpFailure::Unreachable));
        first.clear();
        first.note(QpFailure::Request(WcStatus::LocProtErr));
        let said = first.get().map(|reason| reason.to_string());
        assert_eq!(said.as_deref(), Some("a request failed: local protection error"));
    }
}
