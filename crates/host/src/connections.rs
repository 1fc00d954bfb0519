//! Every connection that there is: for polling threads, which help with all of them, and for who
//! ends the process.
//!
//! Invariant: a connection is listed from when it is held until nothing is left of it, once.

use std::sync::Arc;
use std::time::Duration;

use weft_observe::{ConnReport, Counters};
use weft_os::clock::{self, Moment};
use weft_sync::RwLock;

use crate::device_kind::DeviceId;

/// How long a closed connection waits for the peer to close as well.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The device of a connection, what was done over it, and the rest if that was wanted.
pub(crate) type WatchedConn = (DeviceId, Counters, Option<ConnReport>);

/// A connection, as those see it who have no part in it.
pub(crate) trait DrivenConnection: Send + Sync {
    /// An application thread found a completion queue empty that is not this one's: it does the
    /// reactor's work here, unless somebody polls this connection for itself.
    fn help(&self, now: Moment);
    /// The process ends at once: acknowledges what was received, waiting no longer than `until`.
    fn flush_now(&self, until: Moment);
    /// The process ends: nobody is told of what becomes of it any more.
    fn hush(&self);
    /// What it is like, for who watches: its device, what was done over it, and all else if that is
    /// `told`. Nothing if it has ended. With a limit it waits no longer for who works on it.
    fn report(&self, told: bool, until: Option<Moment>) -> Option<WatchedConn>;
}

/// The connections of one reactor.
#[derive(Default)]
pub(crate) struct Connections(RwLock<Vec<Arc<dyn DrivenConnection>>>);

impl Connections {
    /// Adds a connection to those that a polling thread helps with.
    pub fn enlist(&self, connection: Arc<dyn DrivenConnection>) {
        let mut list = self.0.write();
        if !list.iter().any(|other| Arc::ptr_eq(other, &connection)) {
            list.push(connection);
        }
    }

    /// Takes it off again.
    pub fn strike<T: DrivenConnection>(&self, connection: &T) {
        self.0.write().retain(|other| !std::ptr::addr_eq(Arc::as_ptr(other), connection));
    }

    /// The connection whose turn it is.
    pub fn in_turn(&self, turn: usize) -> Option<Arc<dyn DrivenConnection>> {
        let list = self.0.read();
        (!list.is_empty()).then(|| Arc::clone(&list[turn % list.len()]))
    }

    /// Every connection that there is now, for work that may end one, which changes the list.
    pub fn all(&self) -> Vec<Arc<dyn DrivenConnection>> {
        self.0.read().clone()
    }

    /// Every connection, for who ends the process; none if the list is being changed until then.
    /// The work may not end one.
    pub fn each(&self, until: Moment, work: impl FnMut(&Arc<dyn DrivenConnection>)) {
        if let Some(list) = clock::retry(until, || self.0.try_read()) {
            list.iter().for_each(work);
        }
    }
}
