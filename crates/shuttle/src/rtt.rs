//! Round trip estimation (RFC 6298, without rounding to seconds), and the acknowledgement interval
//! derived from it.

use crate::cc::controller::Rtt;

/// Acknowledgement interval of paths up to 64 ms: 1000 acknowledgements a second bound the cost.
const ACK_INTERVAL_NS: u64 = 1_000_000;
/// Shortest acknowledgement interval, 20 µs: at most 50,000 acknowledgements a second on loopback.
const ACK_INTERVAL_NS_MIN: u64 = 20_000;
/// Acknowledgements per round trip on paths above 64 ms.
const ACK_RTT_DIVISOR: u64 = 64;

/// Most that late acknowledgements add to the probe timeout, 25 ms (the default of max_ack_delay in
/// RFC 9000). A loss at the end of a message is only found after this timeout.
pub(crate) const HOST_NS_MAX: u64 = 25_000_000;

/// Mean and mean deviation of a time, as TCP smooths its round trips.
#[derive(Clone, Copy, Debug, Default)]
struct Smoothed {
    mean_ns: u64,
    var_ns: u64,
}

impl Smoothed {
    fn first(ns: u64) -> Self {
        Self { mean_ns: ns, var_ns: ns / 2 }
    }

    fn sample(&mut self, ns: u64) {
        self.var_ns = (3 * self.var_ns + self.mean_ns.abs_diff(ns)) / 4;
        self.mean_ns = (7 * self.mean_ns + ns) / 8;
    }
}

/// Round trip estimate of a path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RttEstimate {
    now: Rtt,
    /// From sending to acknowledgement, the peer's own delay included.
    answer: Smoothed,
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
        Self { now, answer: Smoothed::first(initial_ns), sampled: false }
    }

    /// Takes a sample: `elapsed_ns` from sending to acknowledgement, of which the peer claims
    /// `delay_ns` as its own delay.
    pub(crate) fn sample(&mut self, elapsed_ns: u64, delay_ns: u64) {
        let Self { now, answer, sampled } = self;
        let elapsed_ns = elapsed_ns.max(1);
        if !std::mem::replace(sampled, true) {
            let first = Smoothed::first(elapsed_ns);
            *now = Rtt {
                latest_ns: elapsed_ns,
                smoothed_ns: first.mean_ns,
                var_ns: first.var_ns,
                min_ns: elapsed_ns,
            };
            *answer = first;
        }
        // The claimed delay is limited so that the sample is not below the smallest round trip.
        let latest = elapsed_ns.saturating_sub(delay_ns).max(now.min_ns.min(elapsed_ns));
        now.min_ns = now.min_ns.min(latest);
        let mut smoothed = Smoothed { mean_ns: now.smoothed_ns, var_ns: now.var_ns };
        smoothed.sample(latest);
        (now.smoothed_ns, now.var_ns) = (smoothed.mean_ns, smoothed.var_ns);
        now.latest_ns = latest;
        answer.sample(elapsed_ns.min(now.smoothed_ns + HOST_NS_MAX));
    }

    /// Smoothed time to an acknowledgement + max(4 deviations, `jitter_ns`).
    pub(crate) fn answer_ns(&self, jitter_ns: u64) -> u64 {
        self.answer.mean_ns + (4 * self.answer.var_ns).max(jitter_ns)
    }

    /// The next sample replaces the estimate: the route is another.
    pub(crate) fn begin_anew(&mut self) {
        self.sampled = false;
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
