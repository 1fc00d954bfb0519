//! Parks a thread of the reactor while the process forks.
//!
//! The child of a fork has only the thread that forked: a lock that another one held is held for
//! ever there, in this library as in an allocator that does not see to it. So the thread that forks
//! has those of the reactor stay where they hold none.
//!
//! Invariant: between `wait_parked`, unless its time ran out, and `resume` the thread is not at
//! work. Order: the thread calls `leave`, then `enter` and `leave` in turn; who forks calls `park`,
//! `wait_parked`, `resume`.

use weft_os::clock::{self, Moment};
use weft_sync::{Condvar, Mutex, MutexGuard};

struct GateState {
    at_work: bool,
    /// Threads that fork just now.
    forking: usize,
}

/// Where a thread holds no locks, and may be kept.
pub(super) struct ForkGate {
    state: Mutex<GateState>,
    changed: Condvar,
}

impl ForkGate {
    /// That of a thread which has yet to start, and stays too if that is while others fork.
    pub fn new() -> Self {
        let state = GateState { at_work: false, forking: 0 };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// The thread goes to work, as soon as it may.
    pub fn leave(&self) {
        let state = self.state();
        let mut state = self.changed.wait_while(state, |s| s.forking > 0);
        state.at_work = true;
    }

    /// The thread is about to wait for events.
    pub fn enter(&self) {
        let mut state = self.state();
        state.at_work = false;
        if state.forking > 0 {
            self.changed.notify_all();
        }
    }

    /// Has the thread stay here once it has come.
    pub fn park(&self) {
        self.state().forking += 1;
    }

    /// Waits until it is here, but no longer than that: it does not come if what it is about takes
    /// long, or if who forks was interrupted by a signal while it held what the thread waits for.
    pub fn wait_parked(&self, until: Moment) {
        let limit = until.saturating_duration_since(clock::now());
        drop(self.changed.wait_timeout_while(self.state(), limit, |s| s.at_work));
    }

    /// Lets the thread go, once every other that forks has done the same.
    pub fn resume(&self) {
        let mut state = self.state();
        state.forking = state.forking.saturating_sub(1);
        drop(state);
        self.changed.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, GateState> {
        self.state.lock()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn who_is_parked_stays_until_it_may_resume() {
        let gate = ForkGate::new();
        let turns = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                gate.leave();
                for _ in 0..10_000 {
                    gate.enter();
                    gate.leave();
                    turns.fetch_add(1, Ordering::Relaxed);
                }
                gate.enter();
            });
            for _ in 0..100 {
                gate.park();
                gate.wait_parked(clock::now() + Duration::from_secs(60));
                assert!(!gate.state().at_work);
                let before = turns.load(Ordering::Relaxed);
                std::thread::yield_now();
                assert_eq!(turns.load(Ordering::Relaxed), before);
                gate.resume();
            }
        });
    }

    #[test]
    fn who_does_not_come_is_not_waited_for() {
        let gate = ForkGate::new();
        gate.leave();
        gate.park();
        gate.wait_parked(clock::now());
        assert!(gate.state().at_work);
        gate.resume();
    }
}
