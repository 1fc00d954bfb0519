//! Completion channels: events of armed completion queues.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_sync::Mutex;

/// Wake-up of a waiter outside this crate: one more event is queued.
pub trait Wake: Send + Sync {
    /// Called once for each queued event.
    fn wake(&self);
}

/// A queue of completion events, each the cookie of the queue that fired.
pub struct CompChannel {
    events: Mutex<VecDeque<u64>>,
    wake: Box<dyn Wake>,
}

impl CompChannel {
    /// A channel that calls `wake` for each event queued.
    pub fn new(wake: Box<dyn Wake>) -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), wake })
    }

    /// Takes the oldest event: the cookie of its completion queue.
    pub fn pop(&self) -> Option<u64> {
        self.events.lock().pop_front()
    }

    /// Whether an event waits to be taken.
    pub fn has_events(&self) -> bool {
        !self.events.lock().is_empty()
    }

    /// Drops the events of a completion queue that is destroyed; returns how many there were.
    pub fn forget(&self, cookie: u64) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|c| *c != cookie);
        before - events.len()
    }

    pub(crate) fn is_unlocked(&self) -> bool {
        self.events.try_lock().is_some()
    }

    pub(crate) fn push(&self, cookie: u64) {
        self.events.lock().push_back(cookie);
        self.wake.wake();
    }
}
