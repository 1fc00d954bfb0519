//! Where a thread of the engine rests, and where it is kept while the process forks.
//!
//! A child of a fork has only the thread that forked: a lock that another one held is held for ever
//! there, in this library as in an allocator that does not see to it. So the thread that forks asks
//! the engine's to stay where they hold none.
//!
//! Invariant: between `keep`, unless its time ran out, and `release` the thread is not at work.
//! Order: the thread calls `enter` and `leave` in turn; who forks calls `ask`, `keep`, `release`.

use std::time::Instant;

use weft_sync::{Condvar, Mutex, MutexGuard};

use crate::clock;

struct State {
    at_work: bool,
    /// Those who fork.
    asking: usize,
}

/// A place without locks.
pub(super) struct Rest {
    state: Mutex<State>,
    changed: Condvar,
}

impl Rest {
    /// That of a thread which begins with work.
    pub fn new() -> Self {
        let state = State { at_work: true, asking: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The thread goes to work, as soon as it may.
    pub fn leave(&self) {
        let state = self.state();
        let mut state = self.changed.wait_while(state, |s| s.asking > 0);
        state.at_work = true;
    }

    /// The thread comes to rest.
    pub fn enter(&self) {
        let mut state = self.state();
        state.at_work = false;
        if state.asking > 0 {
            self.changed.notify_all();
        }
    }

    /// Asks the thread to stay here once it has come.
    pub fn ask(&self) {
        self.state().asking += 1;
    }

    /// Waits until it is here, but no longer than that: it does not come if what it is about takes
    /// long, or if who forks was interrupted by a signal while it held what the thread waits for.
    pub fn keep(&self, until: Instant) {
        let patience = until.saturating_duration_since(clock::now());
        drop(self.changed.wait_timeout_while(self.state(), patience, |s| s.at_work));
    }

    /// Lets the thread go. One that was not asked, because it had yet to start, is gone already.
    pub fn release(&self) {
        let mut state = self.state();
        state.asking = state.asking.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_was_asked_stays_until_it_is_released() {
        let rest = Rest::new();
        let turns = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    rest.enter();
                    rest.leave();
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                rest.enter();
            });
            for _ in 0..100 {
                rest.ask();
                rest.keep(clock::now() + Duration::from_secs(60));
                assert!(!rest.state().at_work);
                let before = turns.load(Ordering::Relaxed);
                std::thread::yield_now();
                assert_eq!(turns.load(Ordering::Relaxed), before);
                rest.release();
            }
        });
    }

    #[test]
    fn who_does_not_come_is_not_waited_for() {
        let rest = Rest::new();
        rest.ask();
        rest.keep(clock::now());
        assert!(rest.state().at_work);
        rest.release();
    }
}
