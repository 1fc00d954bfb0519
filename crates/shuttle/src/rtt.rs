//! Round trip times of a path (RFC 6298's estimator, without its rounding to seconds),
//! and the interval of acknowledgements that follows from them.

use crate::cc::controller::Rtt;

/// An acknowledgement is owed within this, or a part of the round trip if that is longer.
const ACK_INTERVAL_NS: u64 = 1_000_000;
/// On the shortest paths it is this.
const ACK_INTERVAL_NS_MIN: u64 = 20_000;
const ACK_RTT_DIVISOR: u64 = 64;

/// What is known of the round trip of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimate {
    now: Rtt,
    sampled: bool,
}

impl RttEstimate {
    /// No sample yet; `initial_ns` stands in.
    pub(crate) fn new(initial_ns: u64) -> Self {
        let now = Rtt {
            latest_ns: initial_ns,
            smoothed_ns: initial_ns,
            var_ns: initial_ns / 2,
            min_ns: initial_ns,
        };
        Self { now, sampled: false }
    }

    /// A packet came back after `elapsed_ns`, of which the peer says that it kept it `delay_ns`.
    pub(crate) fn sample(&mut self, elapsed_ns: u64, delay_ns: u64) {
        let Self { now, sampled } = self;
        let elapsed_ns = elapsed_ns.max(1);
        if !std::mem::replace(sampled, true) {
            *now = Rtt {
                latest_ns: elapsed_ns,
                smoothed_ns: elapsed_ns,
                var_ns: elapsed_ns / 2,
                min_ns: elapsed_ns,
            };
        }
        // A delay is believed as far as it leaves the smallest round trip.
        let latest = elapsed_ns.saturating_sub(delay_ns).max(now.min_ns.min(elapsed_ns));
        now.min_ns = now.min_ns.min(latest);
        now.var_ns = (3 * now.var_ns + now.smoothed_ns.abs_diff(latest)) / 4;
        now.smoothed_ns = (7 * now.smoothed_ns + latest) / 8;
        now.latest_ns = latest;
    }

    pub(crate) fn get(&self) -> Rtt {
        self.now
    }
}

/// Longest time for which a receiver gathers packets before it acknowledges them (S-40): no longer
/// than a round trip, or senders on short paths would wait for nothing else.
pub(crate) fn ack_interval_ns(smoothed_ns: u64) -> u64 {
    smoothed_ns.clamp(ACK_INTERVAL_NS_MIN, ACK_INTERVAL_NS).max(smoothed_ns / ACK_RTT_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_replaces_the_guess() {
        let mut rtt = RttEstimate::new(250);
        rtt.sample(80, 0);
        assert_eq!(rtt.get(), Rtt { latest_ns: 80, smoothed_ns: 80, var_ns: 30, min_ns: 80 });
    }

    #[test]
    fn a_claimed_delay_never_makes_the_path_shorter() {
        let mut rtt = RttEstimate::new(250);
        rtt.sample(80, 0);
        rtt.sample(100, 90);
        assert_eq!((rtt.get().latest_ns, rtt.get().min_ns), (80, 80));
        rtt.sample(100, 10);
        assert_eq!(rtt.get().latest_ns, 90);
    }
}
