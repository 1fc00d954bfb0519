//! How far the smallest round trip of a round wanders above the smallest of all without a queue: on
//! a path whose delays vary in order, packets wait for the slowest before them, so under load no
//! round trip is as short as the shortest.
//!
//! Invariant: it is 0 until a path has shown that its delays vary, and never more than a quarter of
//! the smallest round trip.

/// Rounds over which it is averaged how far they leave the line through the two before.
const ERRATIC_GAIN_PART: u64 = 8;
/// Part of the wander by which it shrinks in a round that stays below half of it (`matrix`, jitter
/// of 30 ms in order).
const FADE_ROUND_PART: u64 = 64;
/// Part of the wander below which a round shows that it is less.
const FADE_BELOW_PART: u64 = 2;
/// Part of the smallest round trip that it is at most: more may be the queues of others (`matrix`,
/// jitter of 30 ms in order).
const MOST_RTT_PART: u64 = 4;

/// The wander of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FloorWander {
    /// In nanoseconds.
    ns: u64,
    /// Smallest round trips of the last two rounds of steady sending.
    floors_ns: [u64; 2],
    /// Average deviation of a round's smallest round trip from the line through the two before,
    /// halved: a queue grows or drains steadily.
    erratic_ns: u64,
}

impl FloorWander {
    /// The wander in nanoseconds.
    pub fn ns(self) -> u64 {
        self.ns
    }

    /// Learns that a delay of `above_ns` over `min_rtt_ns` is no queue.
    pub fn learn(&mut self, above_ns: u64, min_rtt_ns: u64) {
        self.ns = self.ns.max(above_ns.min(min_rtt_ns / MOST_RTT_PART));
    }

    /// Handles a round whose smallest round trip is `floor_ns`. `is_steady` if neither a probe nor
    /// others change the queue; `varies` if the path's delays do.
    pub fn take_round(&mut self, floor_ns: u64, min_rtt_ns: u64, is_steady: bool, varies: bool) {
        // No round trip was measured in it.
        if floor_ns == u64::MAX {
            return;
        }
        if floor_ns.saturating_sub(min_rtt_ns) < self.ns / FADE_BELOW_PART {
            self.ns -= self.ns / FADE_ROUND_PART;
        }
        if !is_steady {
            self.floors_ns = [0; 2];
            return;
        }
        let [first_ns, second_ns] = self.floors_ns;
        self.floors_ns = [second_ns, floor_ns];
        if first_ns == 0 {
            return;
        }
        let leap_ns = (first_ns + floor_ns).abs_diff(2 * second_ns) / 2;
        self.erratic_ns = ((ERRATIC_GAIN_PART - 1) * self.erratic_ns + leap_ns) / ERRATIC_GAIN_PART;
        if varies {
            self.learn(self.erratic_ns, min_rtt_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN_NS: u64 = 64_000_000;

    #[test]
    fn a_queue_that_grows_steadily_is_no_wander_and_what_leaps_is() {
        let mut wander = FloorWander::default();
        for round in 0..50 {
            wander.take_round(MIN_NS + round * 500_000, MIN_NS, true, true);
        }
        assert_eq!(wander.ns(), 0);
        for round in 0..50 {
            wander.take_round(MIN_NS + (round % 2) * 6_000_000, MIN_NS, true, true);
        }
        assert!((4_000_000..=6_000_000).contains(&wander.ns()), "{}", wander.ns());
    }

    #[test]
    fn rounds_without_a_round_trip_are_left_out() {
        let mut wander = FloorWander::default();
        for round in 0..50 {
            let floor_ns = if round % 3 == 0 { u64::MAX } else { MIN_NS };
            wander.take_round(floor_ns, MIN_NS, true, true);
        }
        assert_eq!(wander.ns(), 0);
    }

    #[test]
    fn it_is_bounded_and_fades() {
        let mut wander = FloorWander::default();
        wander.learn(MIN_NS, MIN_NS);
        assert_eq!(wander.ns(), MIN_NS / 4);
        wander.take_round(MIN_NS + MIN_NS / 8, MIN_NS, false, false);
        assert_eq!(wander.ns(), MIN_NS / 4);
        wander.take_round(MIN_NS, MIN_NS, false, false);
        assert_eq!(wander.ns(), MIN_NS / 4 - MIN_NS / 256);
    }

    #[test]
    fn a_path_whose_delays_do_not_vary_has_none() {
        let mut wander = FloorWander::default();
        for round in 0..50 {
            wander.take_round(MIN_NS + (round % 2) * 6_000_000, MIN_NS, true, false);
        }
        assert_eq!(wander.ns(), 0);
    }
    #[test]
    fn it_fades_in_rounds_below_half_of_it() {
        let fades = |above_ns, is_steady| {
            let mut wander = FloorWander::default();
            wander.learn(6_400_000, MIN_NS);
            wander.take_round(MIN_NS + above_ns, MIN_NS, is_steady, false);
            wander.ns() == 6_300_000
        };
        assert!(fades(3_199_999, true) && fades(3_199_999, false));
        assert!(!fades(3_200_000, true));
    }

    #[test]
    fn a_third_round_of_steady_sending_leaves_the_line_through_two() {
        let mut wander = FloorWander::default();
        let rounds = [(0, true), (0, true), (9, false), (0, true), (0, true), (16, true)];
        for (above_ms, is_steady) in rounds {
            wander.take_round(MIN_NS + above_ms * 1_000_000, MIN_NS, is_steady, true);
        }
        // The probe begins a new line, which the last left by 16 ms.
        assert_eq!(wander.ns(), 1_000_000, "half of it, and an eighth of that");
        wander.take_round(MIN_NS + 32_000_000, MIN_NS, true, true);
        assert_eq!(wander.erratic_ns, 875_000, "it is on the line");
        assert_eq!(wander.ns(), 1_000_000, "the most that it was");
    }
}
