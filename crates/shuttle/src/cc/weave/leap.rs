//! A path that becomes longer at once: the smallest round trip of a round leaps, and stays.
//!
//! A queue grows from round to round, and drains while weave sends a hundredth less than the path
//! carries. So a round trip that leaps where there was no queue, and is the same a round later, is
//! that of another path (`rtt-step`).

/// Part of a round trip within which it stays after a leap: a queue drains by more in a round.
const STEADY_RTT_PART: u64 = 256;
/// Rounds after that of the leap of which one has to confirm it: the first may be that of a probe.
const CONFIRM_ROUNDS: u32 = 2;
/// Part of a standing queue below which there was none before.
const BEFORE_QUEUE_PART: u64 = 2;

/// Part of the smallest round trip that a leap is at least: competitors make queues that leap by
/// less (`matrix`, `20ms 100mbit queue=0.1bdp forward:loss=1%`).
const LEAST_MIN_RTT_PART: u64 = 4;

/// The smallest round trips of the last rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RttLeap {
    /// That of the round before, in nanoseconds; 0 before the first.
    floor_ns: u64,
    /// That of the round that leapt, and the rounds since.
    leapt: Option<(u64, u32)>,
}

impl RttLeap {
    /// Takes the smallest round trip of a round on a path whose smallest is `min_ns`, where a queue
    /// of `queue_ns` counts. Returns the new one of the path, if the round confirms a leap.
    pub(super) fn take_round(&mut self, floor_ns: u64, min_ns: u64, queue_ns: u64) -> Option<u64> {
        // No round trip was measured in it.
        if floor_ns == u64::MAX {
            return None;
        }
        let before_ns = std::mem::replace(&mut self.floor_ns, floor_ns);
        let had_queue = before_ns >= min_ns.saturating_add(queue_ns / BEFORE_QUEUE_PART);
        let least_ns = before_ns.saturating_add(queue_ns.max(min_ns / LEAST_MIN_RTT_PART));
        if before_ns > 0 && !had_queue && floor_ns > least_ns {
            self.leapt = Some((floor_ns, 0));
            return None;
        }
        let (leapt_ns, rounds) = self.leapt.take()?;
        self.leapt = Some((leapt_ns, rounds + 1)).filter(|_| rounds + 1 < CONFIRM_ROUNDS);
        let least_ns = floor_ns.min(leapt_ns);
        (floor_ns.abs_diff(leapt_ns) <= least_ns / STEADY_RTT_PART).then_some(least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a path of 64 ms, where 4 ms count, what each of these rounds confirms.
    fn confirmed(floors_us: &[u64]) -> Vec<Option<u64>> {
        let mut leap = RttLeap::default();
        let take = |us: &u64| leap.take_round(us * 1000, 64_000_000, 4_000_000);
        floors_us.iter().map(take).map(|ns| ns.map(|ns| ns / 1000)).collect()
    }

    #[test]
    fn a_round_trip_that_leaps_and_stays_is_the_paths() {
        assert_eq!(confirmed(&[64_000, 90_000, 90_100]), [None, None, Some(90_000)]);
        assert_eq!(confirmed(&[64_000, 90_000, 89_900])[2], Some(89_900));
        // A 256th of 102,400 is 400.
        assert_eq!(confirmed(&[64_000, 102_400, 102_800])[2], Some(102_400));
        assert_eq!(confirmed(&[64_000, 102_400, 102_801])[2], None);
        assert_eq!(confirmed(&[90_000, 90_000]), [None, None], "no round is known before");
    }

    #[test]
    fn a_leap_is_more_than_a_quarter_and_than_counts_as_a_queue_and_begins_without_one() {
        assert_eq!(confirmed(&[64_000, 80_000, 80_000])[2], None);
        assert_eq!(confirmed(&[64_000, 80_001, 80_001])[2], Some(80_001));
        let mut leap = RttLeap::default();
        assert_eq!([8, 12, 12].map(|ns| leap.take_round(ns, 8, 4)), [None; 3]);
        assert_eq!([8, 13, 13].map(|ns| leap.take_round(ns, 8, 4)), [None, None, Some(13)]);
        assert_eq!(confirmed(&[65_999, 90_000, 90_000])[2], Some(90_000));
        assert_eq!(confirmed(&[66_000, 90_000, 90_000])[2], None);
    }

    #[test]
    fn rounds_without_a_round_trip_are_left_out() {
        let mut leap = RttLeap::default();
        for (floor_ns, confirmed) in
            [(64, None), (u64::MAX, None), (90, None), (u64::MAX, None), (90, Some(90))]
        {
            assert_eq!(leap.take_round(floor_ns, 64, 4), confirmed);
        }
    }

    #[test]
    fn two_rounds_may_confirm_it() {
        let once = confirmed(&[64_000, 90_000, 92_000, 90_000, 90_000]);
        assert_eq!(once, [None, None, None, Some(90_000), None]);
        assert_eq!(confirmed(&[64_000, 90_000, 92_000, 92_000, 90_000])[4], None);
    }
}
