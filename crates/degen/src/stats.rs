//! What the router saw, for people and for programs.

use serde::Serialize;

use crate::link::Counters;
use crate::spec::PathSpec;

/// What takes longer, an hour and more, counts as this.
const LONGEST_NS: u64 = (1 << 42) - 1;
/// Digits of a time that are kept.
const DIGITS: u8 = 2;

/// How long things took, in nanoseconds.
#[derive(Clone, Debug)]
pub struct DelayHistogram(hdrhistogram::Histogram<u64>);

impl Default for DelayHistogram {
    fn default() -> Self {
        let times = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(times.expect("these bounds and digits are possible"))
    }
}

impl DelayHistogram {
    /// Counts one.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// The quantiles that people ask for, to a hundredth; all 0 if there is nothing.
    pub fn summary(&self) -> Quantiles {
        let at = |share| self.0.value_at_quantile(share);
        Quantiles { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0) }
    }
}

/// Half of all, almost all, and the worst.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// The median.
    pub p50_ns: u64,
    /// What one in a hundred exceeded.
    pub p99_ns: u64,
    /// The worst.
    pub max_ns: u64,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DirectionStats {
    /// What the link did.
    pub link: Counters,
    /// How many bytes wait at the bottleneck now.
    #[serde(rename = "queue_octets")]
    pub queue_bytes: u64,
    /// The rate of the bottleneck now; none: no bottleneck.
    pub rate_bps: Option<u64>,
    /// How much later than due the first segment of each bundle was handed on.
    pub late: Quantiles,
    /// How long bundles may have waited before the router read them.
    pub unread: Quantiles,
    /// Bundles read.
    pub bundles_read: u64,
    /// Bundles written.
    pub bundles_written: u64,
    /// Packets that were not IP, or damaged.
    pub damaged: u64,
    /// Bundles that the kernel of the other side did not take.
    pub refused: u64,
    /// Bundles that the kernel dropped because the router did not read them in time.
    pub overrun: u64,
    /// Bundles that were dropped because too much was on its way.
    pub overflowed: u64,
    /// Processor time of the router, with the kernel's work of receiving.
    pub cpu_ns: u64,
    /// How long the router was kept from a CPU.
    pub kept_waiting_ns: u64,
    /// When these numbers were taken.
    pub elapsed_ns: u64,
}

/// A whole path.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Nanoseconds since the path was made.
    pub elapsed_ns: u64,
    /// From near to far.
    pub forward: DirectionStats,
    /// From far to near.
    pub back: DirectionStats,
    /// Why the path was worse than it should have been; empty when it was not.
    pub complaints: Vec<String>,
    /// The path as it was asked for.
    pub path: PathSpec,
}

/// Beyond this lateness a path is not what it claims to be.
const LATE_NS_MAX: u64 = 1_000_000;

impl DirectionStats {
    /// Why this direction was not what it should have been.
    pub fn complaints(&self, name: &str) -> Vec<String> {
        let us = |ns: u64| ns / 1000;
        let mut found = Vec::new();
        if self.overrun > 0 {
            found.push(format!("{name}: {} bundles were lost before they were read", self.overrun));
        }
        if self.overflowed > 0 {
            found.push(format!("{name}: {} bundles were too many to hold", self.overflowed));
        }
        if self.damaged > 0 {
            found.push(format!("{name}: {} packets could not be understood", self.damaged));
        }
        // One part in fifty of the time is more than a path may be somewhere else.
        if self.kept_waiting_ns > (self.elapsed_ns / 50).max(10 * LATE_NS_MAX) {
            let ms = self.kept_waiting_ns / 1_000_000;
            found.push(format!("{name}: the router was kept from a processor for {ms} ms"));
        }
        if self.refused > 0 {
            found.push(format!("{name}: {} bundles were refused by the kernel", self.refused));
        }
        for (what, quantiles) in [("handed on", self.late), ("read", self.unread)] {
            if quantiles.p99_ns > LATE_NS_MAX {
                let late_us = us(quantiles.p99_ns);
                found.push(format!("{name}: one in a hundred {what} {late_us} us late or more"));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_hundredth() {
        let mut histogram = DelayHistogram::default();
        assert_eq!(histogram.summary().p50_ns, 0);
        (1..=10_000).for_each(|i| histogram.record(i * 1000));
        let Quantiles { p50_ns, p99_ns, max_ns } = histogram.summary();
        for (found, exact) in [(p50_ns, 5e6), (p99_ns, 9.9e6), (max_ns, 1e7)] {
            assert!((1.0..1.01).contains(&(found as f64 / exact)), "{exact}: {found}");
        }
        histogram.record(u64::MAX);
        assert!(histogram.summary().max_ns >= LONGEST_NS);
    }

    #[test]
    fn complaints_say_what_happened() {
        assert!(DirectionStats::default().complaints("forward").is_empty());
        let late = Quantiles { p50_ns: 0, p99_ns: 2_000_000, max_ns: 3_000_000 };
        let bad = DirectionStats { overrun: 3, late, ..DirectionStats::default() };
        let text = bad.complaints("back").join("\n");
        assert!(text.contains("back: 3 bundles") && text.contains("2000 us"), "{text}");
    }
}
