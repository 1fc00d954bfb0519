//! Asynchronous events of a device context.

use std::collections::VecDeque;
use std::sync::Arc;

use weft_sync::Mutex;

use crate::channel::Wake;

/// Kind of event; the values of `enum ibv_event_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum AsyncKind {
    /// A completion queue overflowed.
    CqErr = 0,
    /// The stream of a queue pair failed.
    QpFatal = 1,
    /// The peer sent an invalid request.
    QpReqErr = 2,
    /// The peer accessed memory without the right.
    QpAccessErr = 3,
    /// The first message arrived before the connection was established.
    CommEst = 4,
    /// A draining send queue is empty.
    SqDrained = 5,
    /// The device is reset: what was made with it is of no use any more.
    DeviceFatal = 8,
    /// The port is up again.
    PortActive = 9,
    /// The port is down.
    PortErr = 10,
    /// The local identifier of the port changed.
    LidChange = 11,
    /// The table of partition keys changed.
    PkeyChange = 12,
    /// A shared receive queue failed.
    SrqErr = 14,
    /// A shared receive queue fell below its limit.
    SrqLimitReached = 15,
    /// A queue pair in error has taken its last entry from a shared receive queue.
    QpLastWqeReached = 16,
    /// The table of GIDs changed.
    GidChange = 18,
}

/// An event and the object it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AsyncEvent {
    /// Kind of event.
    pub kind: AsyncKind,
    /// Cookie of the object.
    pub cookie: u64,
}

/// Event queue of one context.
pub struct AsyncQueue {
    events: Mutex<VecDeque<AsyncEvent>>,
    wake: Box<dyn Wake>,
}

impl AsyncQueue {
    /// A queue that calls `wake` for each event queued.
    pub fn new(wake: Box<dyn Wake>) -> Arc<Self> {
        Arc::new(Self { events: Mutex::default(), wake })
    }

    /// Queues an event.
    pub fn push(&self, kind: AsyncKind, cookie: u64) {
        self.events.lock().push_back(AsyncEvent { kind, cookie });
        self.wake.wake();
    }

    /// Queues an event if `wanted` says so. It is asked while [`AsyncQueue::forget`] waits: an
    /// object that is unwanted from before `forget` on has no event after it.
    pub fn push_if(&self, kind: AsyncKind, cookie: u64, wanted: impl FnOnce() -> bool) {
        let mut events = self.events.lock();
        if wanted() {
            events.push_back(AsyncEvent { kind, cookie });
            drop(events);
            self.wake.wake();
        }
    }

    /// Takes the oldest event.
    pub fn pop(&self) -> Option<AsyncEvent> {
        self.events.lock().pop_front()
    }

    /// Whether no thread has it locked just now.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.events.try_lock().is_some()
    }

    /// Drops the events of an object that is destroyed; returns how many there were.
    pub fn forget(&self, cookie: u64) -> usize {
        let mut events = self.events.lock();
        let before = events.len();
        events.retain(|e| e.cookie != cookie);
        before - events.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;
    impl Wake for Nobody {
        fn wake(&self) {}
    }

    #[test]
    fn whether_an_event_is_wanted_is_asked_while_nothing_is_forgotten() {
        let queue = AsyncQueue::new(Box::new(Nobody));
        for wanted in [false, true] {
            queue.push_if(AsyncKind::QpFatal, 7, || queue.events.try_lock().is_none() && wanted);
            assert_eq!(queue.pop().is_some(), wanted);
        }
    }
}
