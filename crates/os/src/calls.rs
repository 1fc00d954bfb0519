//! Calls of an application into a library, and the forks of its other threads.
//!
//! The child of a fork has only the thread that forked: what another one had locked is locked there
//! for ever. So a thread that forks waits until no other is inside of a call, and calls that come
//! meanwhile wait for it, as the C library does it with its allocator.
//!
//! Invariant: between [`pause`] and [`resume`] or [`forget`] no thread but the one that forks is
//! inside of a call, unless one of the two has waited for the other for as long as it may. A thread
//! that sleeps ([`sleeping`]) is not inside.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock::{self, Moment};
use crate::thread::{Uncancelled, while_cancellable};
use crate::{forks, last_thread};

/// Longest that a call waits for a fork, which waits for calls itself at first.
const FORK_MAX: Duration = Duration::from_secs(4);

/// Threads that are inside of a call.
static RUNNING: AtomicUsize = AtomicUsize::new(0);
/// Threads that fork.
static FORKING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Calls that this thread is in, one in the other.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Forks that this thread is about.
    static FORKS: Cell<u32> = const { Cell::new(0) };
}

/// This thread is inside of a call: it is neither cancelled nor seen by the child of a fork.
#[must_use]
pub struct LibraryCall(Uncancelled);

impl LibraryCall {
    /// Begins, once no other thread forks. Calls of one thread may be one in the other.
    pub fn begin() -> Self {
        forks::notice();
        let uncancelled = Uncancelled::begin();
        let calls = CALLS.get();
        if calls == 0 {
            enter();
        }
        CALLS.set(calls + 1);
        Self(uncancelled)
    }
}

impl Drop for LibraryCall {
    fn drop(&mut self) {
        let calls = CALLS.get();
        CALLS.set(calls.saturating_sub(1));
        // A thread that was cancelled where it slept has left already.
        if calls == 1 {
            leave();
        }
    }
}

fn enter() {
    loop {
        RUNNING.fetch_add(1, Ordering::SeqCst);
        // Who forks may call from a handler of its own.
        if FORKING.load(Ordering::SeqCst) == 0 || FORKS.get() > 0 {
            return;
        }
        leave();
        let until = clock::now() + FORK_MAX;
        while FORKING.load(Ordering::SeqCst) > 0 {
            // The one that forks may wait, in a handler of the application, for what this one has.
            if clock::now() >= until {
                RUNNING.fetch_add(1, Ordering::SeqCst);
                return;
            }
            thread::yield_now();
        }
    }
}

fn leave() {
    RUNNING.fetch_sub(1, Ordering::SeqCst);
}

/// Does `sleep`, during which this thread is not inside of its call, and may be cancelled as far as
/// the application permits it. The thread must hold no lock.
pub fn sleeping<T>(sleep: impl FnOnce() -> T) -> T {
    let calls = CALLS.replace(0);
    if calls == 0 {
        return while_cancellable(sleep);
    }
    leave();
    let result = while_cancellable(sleep);
    enter();
    CALLS.set(calls);
    result
}

/// This thread is about to fork: has calls of others wait, once those that have begun are over, or
/// at `until`.
pub fn pause(until: Moment) {
    forks::notice();
    FORKS.set(FORKS.get() + 1);
    FORKING.fetch_add(1, Ordering::SeqCst);
    // It may fork in a signal handler that has interrupted a call.
    let own = usize::from(CALLS.get() > 0);
    while RUNNING.load(Ordering::SeqCst) > own && clock::now() < until {
        thread::yield_now();
    }
}

/// The fork is over, in the parent.
pub fn resume() {
    FORKS.set(FORKS.get().saturating_sub(1));
    FORKING.fetch_sub(1, Ordering::SeqCst);
}

/// The fork is over, in the child, which has no other threads.
pub fn forget() {
    FORKS.set(FORKS.get().saturating_sub(1));
    FORKING.store(FORKS.get() as usize, Ordering::SeqCst);
    RUNNING.store(usize::from(CALLS.get() > 0), Ordering::SeqCst);
    last_thread::forget();
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    /// Forks of one test would hold up the other's calls.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    fn later() -> Moment {
        clock::now() + Duration::from_secs(60)
    }

    #[test]
    fn no_other_thread_is_inside_of_a_call_while_one_forks() {
        let _alone = ONE.lock().unwrap();
        let (inside, ends) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while !ends.load(Ordering::Relaxed) {
                        let outer = LibraryCall::begin();
                        let inner = LibraryCall::begin();
                        inside.fetch_add(1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        // Who forks does not wait for a thread that sleeps.
                        sleeping(thread::yield_now);
                        drop((inner, outer));
                    }
                });
            }
            for _ in 0..1000 {
                let began = clock::now();
                pause(later());
                let is_empty = inside.load(Ordering::SeqCst) == 0;
                assert!(is_empty || began.elapsed() >= FORK_MAX);
                // What the thread that forks does itself waits for nobody.
                drop(LibraryCall::begin());
                resume();
            }
            ends.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn who_forks_may_wait_for_a_thread_that_begins_a_call() {
        let _alone = ONE.lock().unwrap();
        thread::scope(|scope| {
            let begins = scope.spawn(|| {
                while FORKING.load(Ordering::SeqCst) == 0 {
                    thread::yield_now();
                }
                drop(LibraryCall::begin());
            });
            pause(clock::now());
            // As a handler of the application does between the two, for what the thread has.
            begins.join().unwrap();
            resume();
        });
    }
}
