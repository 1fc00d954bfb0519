//! Histogram of latencies.
//!
//! Invariant: a percentile is at most one part in 1000 from a time that was recorded at that rank;
//! those below 2048 ns are exact.

use serde::Serialize;

/// Longest time that is recorded, 73 minutes; longer ones count as this.
const LIMIT_NS: u64 = (1 << 42) - 1;
/// Significant decimal digits of a recorded time.
const DIGITS: u8 = 3;

/// Histogram of times in nanoseconds.
#[derive(Clone, Debug)]
pub struct LatencyHistogram(hdrhistogram::Histogram<u64>);

/// Summary of a histogram, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many values there are.
    pub count: u64,
    /// Minimum.
    pub min_us: f64,
    /// Mean.
    pub mean_us: f64,
    /// Median.
    pub p50_us: f64,
    /// 90 %.
    pub p90_us: f64,
    /// 99 %.
    pub p99_us: f64,
    /// 99.9 %.
    #[serde(rename = "p99.9_us")]
    pub p999_us: f64,
    /// 99.99 %.
    #[serde(rename = "p99.99_us")]
    pub p9999_us: f64,
    /// Maximum.
    pub max_us: f64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        let times = hdrhistogram::Histogram::new_with_bounds(1, LIMIT_NS, DIGITS);
        Self(times.expect("these bounds and digits are possible"))
    }
}

impl LatencyHistogram {
    /// Records a time, in nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Adds all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        self.0 += &other.0;
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Summary; `None` if nothing was recorded.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let us = |share| self.0.value_at_quantile(share) as f64 / 1e3;
        (self.count() > 0).then(|| Percentiles {
            count: self.count(),
            min_us: us(0.0),
            mean_us: self.0.mean() / 1e3,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p99_us: us(0.99),
            p999_us: us(0.999),
            p9999_us: us(0.9999),
            max_us: us(1.0),
        })
    }

    /// The buckets that are not empty: the least and the greatest time in each, in nanoseconds,
    /// and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        self.0.iter_recorded().map(|bucket| {
            let (at, count) = (bucket.value_iterated_to(), bucket.count_at_value());
            (self.0.lowest_equivalent(at), self.0.highest_equivalent(at), count)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(LatencyHistogram::default().percentiles(), None);
    }

    #[test]
    fn small_values_are_exact() {
        let histogram = of(&(1..=100).collect::<Vec<_>>());
        let p = histogram.percentiles().unwrap();
        assert_eq!([p.min_us, p.p50_us, p.p90_us, p.max_us], [0.001, 0.05, 0.09, 0.1]);
        assert_eq!(p.mean_us, 0.0505);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn a_percentile_is_near_the_value_of_its_rank(
            mut values in prop::collection::vec(
                (0..42u32, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)), 1..400),
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            let exact = |share: f64| {
                let rank = (share * values.len() as f64).ceil() as usize;
                values[rank.max(1) - 1] as f64 / 1e3
            };
            let p = histogram.percentiles().unwrap();
            let found = [(0.0, p.min_us), (0.5, p.p50_us), (0.99, p.p99_us), (1.0, p.max_us)];
            for (share, found) in found {
                let exact = exact(share);
                prop_assert!((exact - found).abs() <= exact / 1000.0, "{exact} {found}");
            }
        }

        #[test]
        fn sums_are_as_if_counted_at_once(
            some in prop::collection::vec(0u64..1 << 50, 0..50),
            more in prop::collection::vec(0u64..1 << 50, 1..50),
        ) {
            let mut sum = of(&some);
            sum.add(&of(&more));
            let whole = of(&[some, more].concat());
            prop_assert_eq!(sum.percentiles(), whole.percentiles());
            prop_assert!(sum.buckets().eq(whole.buckets()));
            prop_assert_eq!(sum.buckets().map(|b| b.2).sum::<u64>(), sum.count());
        }
    }
}
