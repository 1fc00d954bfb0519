//! Statistics of the router, as text and as JSON.

use serde::Serialize;

use crate::link::Counters;
use crate::spec::PathSpec;

/// Longest time that is recorded, above an hour; longer ones count as this.
const LONGEST_NS: u64 = (1 << 42) - 1;
/// Significant digits of a recorded time.
const DIGITS: u8 = 2;

/// Histogram of times in nanoseconds.
#[derive(Clone, Debug)]
pub struct DelayHistogram(hdrhistogram::Histogram<u64>);

impl Default for DelayHistogram {
    fn default() -> Self {
        let times = hdrhistogram::Histogram::new_with_bounds(1, LONGEST_NS, DIGITS);
        Self(times.expect("these bounds and digits are possible"))
    }
}

impl DelayHistogram {
    /// Records one time, in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Median, 99 % and maximum, accurate to 1 %; all 0 if nothing was recorded.
    pub fn summary(&self) -> Quantiles {
        let at = |share| self.0.value_at_quantile(share);
        Quantiles { p50_ns: at(0.5), p99_ns: at(0.99), max_ns: at(1.0) }
    }
}

/// Quantiles in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Quantiles {
    /// 50 %.
    pub p50_ns: u64,
    /// 99 %.
    pub p99_ns: u64,
    /// Maximum.
    pub max_ns: u64,
}

/// Statistics of one direction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct DirectionStats {
    /// Counters of the link.
    pub link: Counters,
    /// Bytes in the bottleneck's queue now.
    #[serde(rename = "queue_octets")]
    pub queue_bytes: u64,
    /// Rate of the bottleneck now, in bits per second; `None` without a bottleneck.
    pub rate_bps: Option<u64>,
    /// Lateness of the first segment of each bundle, in nanoseconds.
    pub late: Quantiles,
    /// Upper bound of the time that bundles waited to be read, in nanoseconds.
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
    /// Bundles dropped because the router's own memory limit was reached.
    pub overflowed: u64,
    /// CPU time of the router, with the kernel's receive work.
    pub cpu_ns: u64,
    /// Time that the router was ready to run and had no CPU.
    pub kept_waiting_ns: u64,
    /// Time of this sample, in nanoseconds since the path was made.
    pub elapsed_ns: u64,
}

/// Statistics of a path.
#[derive(Clone, Debug, Serialize)]
pub struct PathReport {
    /// Nanoseconds since the path was made.
    pub elapsed_ns: u64,
    /// From near to far.
    pub forward: DirectionStats,
    /// From far to near.
    pub back: DirectionStats,
    /// Reasons why the path was not as configured; empty if it was.
    pub complaints: Vec<String>,
    /// What failed meanwhile, such as a capture that could not be written.
    pub failures: Vec<String>,
    /// The path as it was asked for.
    pub path: PathSpec,
    /// The path beside it, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<Box<PathReport>>,
}

/// Largest lateness at which a path still counts as configured.
const LATE_NS_MAX: u64 = 1_000_000;

impl DirectionStats {
    /// Reasons why this direction was not as configured.
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
        // A router without a CPU for more than 2 % of the time falsifies delays.
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
