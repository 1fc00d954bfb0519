//! Who learns what becomes of a connection.

use std::fmt;
use std::sync::Arc;

use weft_rnic::{ConnectionEnd, Established};

/// Learns what becomes of a connection.
pub trait LinkWatcher: Send + Sync {
    /// The first message of the peer arrived; at once for an initiator. Over TCP only.
    fn established(&self);
    /// How the handshake ended. Over Shuttle only.
    fn answered(&self, _answer: Answer) {}
    /// The connection is over, after it was established. Called once.
    fn disconnected(&self);
}

/// How the handshake of a connection over Shuttle ended.
#[derive(Clone, Debug)]
pub enum Answer {
    /// The peer granted the connection, or has shown that it knows that it was granted.
    Granted(Established),
    /// The peer refused it.
    Refused {
        /// Why.
        reason: u16,
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer's host says that nobody takes Requests there.
    Nobody,
    /// It came to nothing.
    None(ConnectionEnd),
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted(_) => f.write_str("established"),
            Self::Refused { reason, .. } => write!(f, "refused by the peer, reason {reason}"),
            Self::Nobody => f.write_str("the peer's host says that nobody is there"),
            Self::None(end) => write!(f, "{end}"),
        }
    }
}

/// What to tell the watcher once the lock is gone, in this order.
#[derive(Default)]
pub(crate) struct Notices {
    pub established: Option<Arc<dyn LinkWatcher>>,
    pub answered: Option<(Arc<dyn LinkWatcher>, Answer)>,
    pub disconnected: Option<Arc<dyn LinkWatcher>>,
}

impl Notices {
    pub fn are_none(&self) -> bool {
        let Self { established, answered, disconnected } = self;
        established.is_none() && answered.is_none() && disconnected.is_none()
    }

    /// Tells them.
    pub fn tell(self) {
        if let Some(watcher) = self.established {
            watcher.established();
        }
        if let Some((watcher, answer)) = self.answered {
            watcher.answered(answer);
        }
        if let Some(watcher) = self.disconnected {
            watcher.disconnected();
        }
    }
}
