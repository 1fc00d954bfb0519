//! Round trip estimation (RFC 6298, without rounding to seconds), and the acknowledgement interval
//! derived from it.

use crate::cc::controller::Rtt;

/// Acknowledgement interval of paths up to 64 ms: 1000 acknowledgements a second bound the cost.
const ACK_INTERVAL_NS: u64 = 1_000_000;
/// Shortest acknowledgement interval, 20 µs: at most 50,000 acknowledgements a second on loopback.
const ACK_INTERVAL_NS_MIN: u64 = 20_000;
/// Acknowledgements per round trip on paths above 64 ms.
const ACK_RTT_DIVISOR: u64 = 64;

/// Round trip estimate of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimate {
    now: Rtt,
    sampled: bool,
}

impl RttEstimate {
    /// An estimate of `initial_ns` until the first sample.
    pub(crate) fn new(initial_ns: u64) -> Self {
        let now = Rtt {
            latest_ns: initial_ns,
            smoothed_ns: initial_ns,
            var_ns: initial_ns / 2,
            min_ns: initial_ns,
        };
        Self { now, sampled: false }
    }

    /// Takes a sample: `elapsed_ns` from sending to acknowledgement, of which the peer claims
    /// `delay_ns` as its own delay.
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
        // The claimed delay is limited so that the sample is not below the smallest round trip.
        let latest = elapsed_ns.saturating_sub(delay_ns).max(now.min_ns.min(elapsed_ns));
        now.min_ns = now.min_ns.min(latest);
        now.var_ns = (3 * now.var_ns + now.smoothed_ns.abs_diff(latest)) / 4;
        now.smoothed_ns = (7 * now.smoothed_ns + latest) / 8;
        now.latest_ns = latest;
    }

    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled
    }

    pub(crate) fn get(&self) -> Rtt {
        self.now
    }
}

/// Longest time for which a receiver delays an acknowledgement (S-40): a round trip between 20 µs
/// and 1 ms, 1 ms up to 64 ms, 1/64 of the round trip above. Senders on short paths wait for
/// nothing else, so it is no longer than a round trip.
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
