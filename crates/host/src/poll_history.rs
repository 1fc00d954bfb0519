//! How an application polls, known to the holder of a slot's lock.
//!
//! A lease that does harm is refused for a while: an application that polls memory between polls of
//! its completion queue would leave arrivals unseen for a millisecond each. Once that shows, the
//! reactor watches the connection (`PollHistory::lease_backoff`).

use std::time::Duration;

use weft_os::clock::Moment;

use crate::backoff::Backoff;
use crate::lease::POLL_LOOP_NS;

/// Each arrival that nobody sees takes as long as a lease, a millisecond: one in ten at first, and
/// next to none where that is the application's habit.
const UNSEEN_BACKOFF: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(10)];
/// One acknowledgement in this time may be late by as long as a lease.
const DEFERRED_BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

/// When an application polled last, and what it must not be trusted with for a while.
pub(crate) struct PollHistory {
    /// The last empty poll of any completion queue of the process.
    last: Option<Moment>,
    /// From leases: an application that polls memory after it polled a completion queue leaves what
    /// arrives unseen while it has the lease.
    pub lease_backoff: Backoff,
    /// From having acknowledgements wait for its next call: it stays away after a completion.
    pub defer_backoff: Backoff,
}

impl PollHistory {
    /// No poll yet, and no harm done.
    pub fn new() -> Self {
        Self {
            last: None,
            lease_backoff: Backoff::forgiving(UNSEEN_BACKOFF),
            defer_backoff: Backoff::new(DEFERRED_BACKOFF),
        }
    }

    /// Notes an empty poll; whether it and the one before are a loop.
    pub fn note(&mut self, now: Moment) -> bool {
        let last = self.last.replace(now);
        let pause = Duration::from_nanos(POLL_LOOP_NS);
        last.is_some_and(|last| now.saturating_duration_since(last) < pause)
    }

    /// The next poll begins a loop at most.
    pub fn forget(&mut self) {
        self.last = None;
    }

    /// Whether there was no poll since `before`.
    pub fn is_over(&self, before: Moment) -> bool {
        self.last.is_none_or(|last| last < before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_that_follow_closely_are_a_loop_until_they_are_forgotten() {
        let (start, pause) = (weft_os::clock::now(), Duration::from_nanos(POLL_LOOP_NS));
        let mut polls = PollHistory::new();
        assert!(polls.is_over(start) && !polls.note(start));
        assert!(polls.note(start + pause / 2));
        assert!(!polls.note(start + pause * 3 / 2), "too late");
        assert!(!polls.is_over(start + pause) && polls.is_over(start + pause * 2));
        polls.forget();
        assert!(!polls.note(start + pause * 3 / 2));
    }
}
