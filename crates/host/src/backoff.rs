//! Exponential back-off from what a connection does that does not go with its application's habits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A habit of the application that does not go with a lease ends leases for this long, then for
/// twice as long, up to what the habit costs.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Exponential back-off from something that does harm. Times are nanoseconds from the making of the
/// slot.
pub(crate) struct Backoff {
    until: AtomicU64,
    /// For how long the next time, and at most.
    length: AtomicU64,
    longest: Duration,
}

impl Backoff {
    /// None yet; later ones are no longer than `longest`.
    pub fn up_to(longest: Duration) -> Self {
        let length = AtomicU64::new(BACKOFF_FIRST.as_nanos() as u64);
        Self { until: AtomicU64::new(0), length, longest }
    }

    /// Whether it lasts at this time, in nanoseconds.
    pub fn holds(&self, at: u64) -> bool {
        at < self.until.load(Ordering::Acquire)
    }

    /// Begins at this time, in nanoseconds.
    pub fn begin(&self, at: u64) {
        let length = self.length.load(Ordering::Acquire);
        self.until.store(at + length, Ordering::Release);
        self.length.store((length * 2).min(self.longest.as_nanos() as u64), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_becomes_longer_each_time_up_to_its_limit() {
        let ms = |ms: u64| ms * 1_000_000;
        let backoff = Backoff::up_to(Duration::from_millis(150));
        assert!(!backoff.holds(0));
        backoff.begin(ms(1));
        assert!(backoff.holds(ms(100)) && !backoff.holds(ms(101)));
        for at in [ms(200), ms(1000)] {
            backoff.begin(at);
            assert!(backoff.holds(at + ms(149)) && !backoff.holds(at + ms(150)));
        }
    }
}
