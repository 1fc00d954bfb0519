//! The count of an id's events that the application has read and not acknowledged yet.

use weft_os::calls::sleeping;
use weft_sync::{Condvar, Mutex};

/// The events of one id that were delivered and not acknowledged: a count to wait on.
#[derive(Default)]
pub(crate) struct UnackedEvents {
    open: Mutex<u64>,
    settled: Condvar,
}

impl UnackedEvents {
    /// An event was delivered.
    pub(crate) fn add(&self) {
        *self.open.lock() += 1;
    }

    /// An event was acknowledged.
    pub(crate) fn settle(&self) {
        let mut open = self.open.lock();
        *open = open.saturating_sub(1);
        if *open == 0 {
            self.settled.notify_all();
        }
    }

    /// Sleeps until every delivered event is acknowledged.
    pub(crate) fn wait(&self) {
        sleeping(|| drop(self.settled.wait_while(self.open.lock(), |open| *open > 0)));
    }
}
