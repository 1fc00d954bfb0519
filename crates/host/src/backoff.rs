//! Exponential back-off from what a connection does that does not go with its application's habits.

use std::time::{Duration, Instant};

/// A habit of the application that does not go with a lease ends leases for this long, then for
/// twice as long, up to what the habit costs.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);

/// Exponential back-off from something that does harm.
pub(crate) struct Backoff {
    until: Option<Instant>,
    /// For how long the next time, and at most.
    length: Duration,
    longest: Duration,
}

impl Backoff {
    /// None yet; later ones are no longer than `longest`.
    pub fn up_to(longest: Duration) -> Self {
        Self { until: None, length: BACKOFF_FIRST, longest }
    }

    /// Whether it lasts at this time.
    pub fn holds(&self, at: Instant) -> bool {
        self.until.is_some_and(|until| at < until)
    }

    /// Begins at this time.
    pub fn begin(&mut self, at: Instant) {
        self.until = Some(at + self.length);
        self.length = (self.length * 2).min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backoff_becomes_longer_each_time_up_to_its_limit() {
        let start = weft_os::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut backoff = Backoff::up_to(Duration::from_millis(150));
        assert!(!backoff.holds(at(0)));
        backoff.begin(at(1));
        assert!(backoff.holds(at(100)) && !backoff.holds(at(101)));
        for ms in [200, 1000] {
            backoff.begin(at(ms));
            assert!(backoff.holds(at(ms + 149)) && !backoff.holds(at(ms + 150)));
        }
    }
}
