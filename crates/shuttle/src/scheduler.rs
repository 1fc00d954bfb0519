//! Multipath scheduler: chooses paths so that the last packet arrives soonest.
//!
//! With plenty to send, every path sends what its controller allows. The end decides: the remaining
//! bytes arrive soonest if all paths finish together, so a path keeps sending only while its
//! packets arrive before that common time. Holes precede all else, so they follow the same rule by
//! themselves.

/// Forecast for a path that may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PathOutlook {
    /// Arrival time of the next packet sent on it, in nanoseconds.
    pub(crate) arrives_ns: u64,
    /// Delivery rate after that, in bits per second.
    pub(crate) rate_bps: u64,
}

/// Arrival time of the last of `octets` under the best split over the paths.
pub(crate) fn arrival_ns(outlooks: &mut [PathOutlook], octets: u64) -> u64 {
    outlooks.sort_unstable_by_key(|outlook| outlook.arrives_ns);
    let bits = octets as f64 * 8e9;
    // Sums over the first paths: rates, and bits they would have carried since time 0.
    let (mut rate, mut before, mut end) = (0.0, 0.0, f64::MAX);
    for outlook in outlooks {
        if outlook.arrives_ns as f64 >= end {
            break;
        }
        rate += outlook.rate_bps as f64;
        before += outlook.rate_bps as f64 * outlook.arrives_ns as f64;
        end = (bits + before) / f64::max(rate, 1.0);
    }
    end as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const GBIT: u64 = 1_000_000_000;

    fn outlooks() -> [PathOutlook; 2] {
        let way = |ms, gbit| PathOutlook { arrives_ns: ms * MS, rate_bps: gbit * GBIT };
        [way(50, 9), way(10, 1)]
    }

    #[test]
    fn little_takes_the_near_path_and_much_takes_both() {
        // A megabit takes a millisecond on the near path.
        assert_eq!(arrival_ns(&mut outlooks(), 125_000), 11 * MS);
        // 40 Mbit are there when the far path's first packet comes; ten more take another 1 ms.
        assert_eq!(arrival_ns(&mut outlooks(), 5_000_000), 50 * MS);
        assert_eq!(arrival_ns(&mut outlooks(), 6_250_000), 51 * MS);
    }

    #[test]
    fn nothing_has_arrived_with_the_first_packet() {
        assert_eq!(arrival_ns(&mut outlooks(), 0), 10 * MS);
        assert_eq!(arrival_ns(&mut [], 1), u64::MAX);
    }
}
