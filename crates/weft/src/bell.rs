//! Threads and tasks that sleep for a completion, an event of rdma-cm or one of a device.
//!
//! The bell is rung by whoever drives a connection, once that has let go of its locks
//! ([`weft_host::PostponingGuard`]): a waker may wait for a lock whose holder drops handles. Wakers
//! are called there, but dropped only by threads of the application: the last handle of a task may
//! own queue pairs, whose end takes longer than a thread should need that drives others too.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use weft_sync::{Condvar, Mutex};
use weft_verbs::Wake;

#[derive(Default)]
struct BellState {
    /// How often it was rung.
    rung: u64,
    /// Tasks that sleep, by their tokens.
    sleeping: Vec<(u64, Waker)>,
    /// Wakers that were called, to be dropped.
    called: Vec<(u64, Waker)>,
    next_token: u64,
}

/// Wakes all that sleep for the same queue.
#[derive(Default)]
pub(crate) struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

impl Bell {
    /// How often it was rung until now.
    pub fn rung(&self) -> u64 {
        self.state.lock().rung
    }

    /// Sleeps until it was rung more often than `seen` times, or for `limit`.
    pub fn wait(&self, seen: u64, limit: Duration) {
        let state = self.state.lock();
        drop(self.changed.wait_timeout_while(state, limit, |state| state.rung == seen));
    }

    /// Has `waker` called when it is rung next; gives a token for [`Bell::leave`].
    pub fn enlist(&self, waker: Waker) -> u64 {
        let (token, called) = {
            let mut state = self.state.lock();
            state.next_token += 1;
            let token = state.next_token;
            state.sleeping.push((token, waker));
            (token, std::mem::take(&mut state.called))
        };
        drop(called);
        token
    }

    /// Forgets the waker of a token.
    pub fn leave(&self, token: u64) {
        let left = {
            let mut state = self.state.lock();
            let at = state.sleeping.iter().position(|(known, _)| *known == token);
            let left = at.map(|at| state.sleeping.swap_remove(at));
            (left, std::mem::take(&mut state.called))
        };
        drop(left);
    }
}

/// Rings a bell for a queue of the layers below.
pub(crate) struct Rope(pub Arc<Bell>);

impl Wake for Rope {
    fn wake(&self) {
        self.0.ring();
    }
}

impl Bell {
    /// Wakes all that sleep.
    pub fn ring(&self) {
        let sleeping = {
            let mut state = self.state.lock();
            state.rung += 1;
            std::mem::take(&mut state.sleeping)
        };
        self.changed.notify_all();
        for (_, waker) in &sleeping {
            waker.wake_by_ref();
        }
        self.state.lock().called.extend(sleeping);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn each_waker_is_called_once_and_dropped_by_the_application() {
        let (bell, count) = (Bell::default(), Arc::new(Count::default()));
        let first = bell.enlist(Waker::from(Arc::clone(&count)));
        let second = bell.enlist(Waker::from(Arc::clone(&count)));
        bell.leave(second);
        bell.ring();
        bell.ring();
        assert_eq!((count.0.load(Ordering::Relaxed), bell.rung()), (1, 2));
        assert_eq!(Arc::strong_count(&count), 2, "who rings drops nothing");
        bell.leave(first);
        assert_eq!(Arc::strong_count(&count), 1);
    }

    #[test]
    fn who_has_missed_a_ring_does_not_sleep() {
        let bell = Bell::default();
        let seen = bell.rung();
        bell.ring();
        bell.wait(seen, Duration::MAX / 4);
        bell.wait(bell.rung(), Duration::ZERO);
    }
}
