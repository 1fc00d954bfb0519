//! A histogram of times with buckets that grow with the time: linear within each power of two.
//!
//! Invariant: a value that is asked for is at most one part in 256 from one that was recorded at
//! that rank; values below 128 are exact, as are the least, the greatest and the mean.

use serde::Serialize;

/// Buckets for each power of two, and of one unit each below that.
const LINEAR: u64 = 1 << LINEAR_BITS;
const LINEAR_BITS: u32 = 7;
/// Values from here on, some 73 minutes in nanoseconds, share the last bucket.
const LIMIT_BITS: u32 = 42;
const BUCKETS: usize = ((LIMIT_BITS - LINEAR_BITS + 1) as usize) << LINEAR_BITS;

/// How often which times were seen, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// What a histogram comes to, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// How many values there are.
    pub count: u64,
    /// The least.
    pub min_us: f64,
    /// The mean.
    pub mean_us: f64,
    /// The value that half of them do not exceed, and so on.
    pub p50_us: f64,
    /// Nine in ten.
    pub p90_us: f64,
    /// 99 in 100.
    pub p99_us: f64,
    /// 999 in 1000.
    #[serde(rename = "p99.9_us")]
    pub p999_us: f64,
    /// 9999 in 10,000.
    #[serde(rename = "p99.99_us")]
    pub p9999_us: f64,
    /// The greatest.
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        let counts = vec![0; BUCKETS].into_boxed_slice();
        Self { counts, count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts a time.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.count += 1;
        self.sum += u128::from(ns);
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds all that `other` has counted.
    pub fn add(&mut self, other: &Self) {
        for (own, more) in self.counts.iter_mut().zip(&other.counts) {
            *own += more;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// How many times were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The time that a share of all, 0 to 1, does not exceed; nothing if there is none.
    pub fn value_at(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        if rank == self.count {
            return (self.count > 0).then_some(self.max);
        }
        let mut seen = 0;
        let at = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(at).clamp(self.min, self.max))
    }

    /// The usual figures; nothing if nothing was counted.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let us = |share| Some(self.value_at(share)? as f64 / 1e3);
        Some(Percentiles {
            count: self.count,
            min_us: us(0.0).map(|_| self.min as f64 / 1e3)?,
            mean_us: self.sum as f64 / self.count as f64 / 1e3,
            p50_us: us(0.5)?,
            p90_us: us(0.9)?,
            p99_us: us(0.99)?,
            p999_us: us(0.999)?,
            p9999_us: us(0.9999)?,
            max_us: us(1.0)?,
        })
    }

    /// The buckets that are not empty: the least and the greatest time in each, in nanoseconds,
    /// and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64, u64)> + '_ {
        let filled = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(at, &count)| (least(at), least(at + 1) - 1, count))
    }
}

fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << LIMIT_BITS) - 1);
    if ns < LINEAR {
        return ns as usize;
    }
    let shift = ns.ilog2() - LINEAR_BITS;
    ((shift as usize + 1) << LINEAR_BITS) + ((ns >> shift) - LINEAR) as usize
}

/// The least value of a bucket.
fn least(bucket: usize) -> u64 {
    let (row, column) = (bucket >> LINEAR_BITS, bucket as u64 & (LINEAR - 1));
    if row == 0 { column } else { (LINEAR + column) << (row - 1) }
}

fn middle(bucket: usize) -> u64 {
    least(bucket).midpoint(least(bucket + 1) - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        values.iter().for_each(|&value| histogram.record(value));
        histogram
    }

    #[test]
    fn buckets_lie_side_by_side() {
        for at in 0..BUCKETS {
            assert_eq!(bucket(least(at)), at);
            assert_eq!(bucket(least(at + 1) - 1), at);
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Histogram::default().percentiles(), None);
    }

    #[test]
    fn small_values_are_exact() {
        let histogram = of(&(1..=100).collect::<Vec<_>>());
        let at = [0.0, 0.5, 0.9, 0.99, 1.0].map(|share| histogram.value_at(share).unwrap());
        assert_eq!(at, [1, 50, 90, 99, 100]);
        assert_eq!(histogram.percentiles().unwrap().mean_us, 0.0505);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

        #[test]
        fn a_percentile_is_near_the_value_of_its_rank(
            mut values in prop::collection::vec(
                (0..LIMIT_BITS, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)), 1..400),
            share in 0.0f64..=1.0,
        ) {
            let histogram = of(&values);
            values.sort_unstable();
            let rank = ((share * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let (exact, found) = (values[rank - 1], histogram.value_at(share).unwrap());
            prop_assert!(exact.abs_diff(found) <= exact / 256, "{exact} {found}");
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
