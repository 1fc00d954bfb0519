//! Exponential back-off from what a connection does that does not go with its application's habits.

use std::time::Duration;

use weft_os::clock::Moment;

/// Exponential back-off from something that does harm.
pub(crate) struct Backoff {
    until: Option<Moment>,
    /// For how long the next time, and at least and at most.
    length: Duration,
    shortest: Duration,
    longest: Duration,
    forgives: bool,
}

impl Backoff {
    /// None yet. The first lasts `shortest`, and each that follows soon twice as long as the one
    /// before, up to `longest`.
    pub fn new([shortest, longest]: [Duration; 2]) -> Self {
        Self { until: None, length: shortest, shortest, longest, forgives: false }
    }

    /// Whether it lasts at this time.
    pub fn holds(&self, at: Moment) -> bool {
        self.until.is_some_and(|until| at < until)
    }

    /// The same, but one lasts the shortest time again if nothing did harm before it for as long as
    /// it would last: that was no habit, but a thread that waited for a processor.
    pub fn forgiving(range: [Duration; 2]) -> Self {
        Self { forgives: true, ..Self::new(range) }
    }

    /// Begins at this time.
    pub fn begin(&mut self, at: Moment) {
        let fine = self.until.map(|until| at.saturating_duration_since(until));
        if self.forgives && fine.is_some_and(|fine| fine >= self.length) {
            self.length = self.shortest;
        }
        self.until = Some(at + self.length);
        self.length = (self.length * 2).min(self.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long those last that begin at these times, in milliseconds.
    fn lengths_ms(mut backoff: Backoff, begin_ms: &[u64]) -> Vec<u64> {
        let start = weft_os::clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut length_ms = |begins: &u64| {
            backoff.begin(at(*begins));
            (0..).find(|ms| !backoff.holds(at(begins + ms))).unwrap_or_default()
        };
        begin_ms.iter().map(&mut length_ms).collect()
    }

    #[test]
    fn a_backoff_becomes_longer_each_time_up_to_its_limit() {
        let range = [100, 150].map(Duration::from_millis);
        let begin_ms = [1, 200, 499, 799, 1000];
        assert_eq!(lengths_ms(Backoff::new(range), &begin_ms), [100, 150, 150, 150, 150]);
        assert_eq!(lengths_ms(Backoff::forgiving(range), &begin_ms), [100, 150, 150, 100, 150]);
    }
}
