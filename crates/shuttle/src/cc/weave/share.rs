//! Sharing: weave flows drain a standing queue in proportion to their rates; if it does not drain,
//! it belongs to flows that fill buffers, and weave competes with them.

use super::model::Round;
use super::{REFRESHED_RTTS, Weave, WeavePhase};
use crate::cc::rate::SECOND_NS;

/// Reductions without effect after which weave competes: they take a third of the rate, which a
/// queue of weave's own flows would not outlive (`coexistence`).
const COMPETE_YIELDS: u32 = 4;
/// The same where rivals of late are known, or that delays vary: it is theirs, or no queue.
const KNOWN_YIELDS: u32 = 1;
/// Part of a standing queue from which the rate is reduced: in a shallow buffer other flows lose
/// packets at the whole of it (`fairness`).
const YIELD_QUEUE_PART: u64 = 2;
/// Rounds with a queue before a reduction: one may be another flow's probe.
const YIELD_ROUNDS: u32 = 2;
/// Time with a queue before a reduction, 50 ms: on short paths chance lasts for two rounds
/// (`lossy-wifi`: once a second two of 6 ms are both long).
const YIELD_NS: u64 = SECOND_NS / 20;
/// Rounds without a queue that end competing.
const PEACE_ROUNDS: u32 = 2;
/// Part of a round trip within which all stay during reductions if the path became longer, and
/// there is no queue (`rtt-step`).
const STEADY_RTT_PART: u64 = 256;
/// Part of the least excess over the smallest round trip by which excesses vary at most if that is
/// so, once in a while: packets that keep their order all wait for the slowest. What others keep up
/// comes back (`real-paths`, `70ms 1gbit jitter=3ms`; `coexistence`).
const OFFSET_ABOVE_PART: u64 = 2;
/// How long what comes back belongs to others, 10 s (the same plans).
const LENGTHENED_NS: u64 = 10 * SECOND_NS;
/// Largest reduction at a time: a queue is drained in a round trip, but by no more than 10 % of the
/// rate (`fairness`).
const YIELD_SHARE_MAX: f64 = 0.1;
/// Time until the next probe after a reduction, 0.25 s to 0.75 s: shares converge with each probe.
const SHARED_PROBE_NS: u64 = SECOND_NS / 4;
/// Random part of that time, so that flows do not probe in step.
const SHARED_PROBE_SPREAD_NS: u64 = SECOND_NS / 2;

/// A standing delay that was taken for that of a path which became longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathStep {
    pub(super) at_ns: u64,
    /// Smallest round trip before, in nanoseconds.
    pub(super) before_ns: u64,
}

impl Weave {
    /// Handles a round of Cruise: reduces the rate in proportion to a standing queue, as all weave
    /// flows do.
    pub(super) fn on_cruise_round(&mut self, now_ns: u64, round: &Round) {
        let settled_ns = self.refreshed_ns + REFRESHED_RTTS * self.smoothed_rtt_ns;
        if self.model.wander_ns() > 0 && now_ns < settled_ns {
            return;
        }
        let limit_ns = self.queue_ns() / YIELD_QUEUE_PART;
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > limit_ns;
        if !is_queued {
            (self.queued_rounds, self.queued_ns, self.yields) = (0, 0, 0);
            (self.before_yield_bps, self.standing_ns) = (None, None);
            self.calm_rounds += 1;
            self.probe_soon(now_ns);
            if self.calm_rounds >= PEACE_ROUNDS {
                self.competes = false;
            }
            return;
        }
        if self.leapt_ns.is_some_and(|floor_ns| self.lengthen(now_ns, round, floor_ns)) {
            return;
        }
        self.calm_rounds = 0;
        self.queued_rounds += 1;
        self.queued_ns += round.lasted_ns;
        if self.yields > 0 {
            let floor_ns = round.floor_rtt_ns;
            let (least_ns, most_ns) = self.standing_ns.unwrap_or((floor_ns, floor_ns));
            self.standing_ns = Some((least_ns.min(floor_ns), most_ns.max(floor_ns)));
        }
        if self.competes {
            return;
        }
        let varies = self.delays_vary();
        let knows = self.rivals.is_known(now_ns) || self.model.wander_ns() > 0 || varies;
        let most_yields = if knows { KNOWN_YIELDS } else { COMPETE_YIELDS };
        if self.yields >= most_yields && self.queued_rounds >= YIELD_ROUNDS {
            return self.end_yields(now_ns);
        }
        // One round may be another flow's probe; and a reduction shows a round later.
        if self.queued_rounds >= YIELD_ROUNDS && self.queued_ns >= YIELD_NS {
            (self.queued_rounds, self.queued_ns) = (0, 0);
            self.yields += 1;
            self.give_way(now_ns, round);
        }
    }

    /// Handles a round that confirms a leap of the round trip to `floor_ns`; true if the path
    /// became longer. What loses more than by chance, and what others keep up, is a queue.
    fn lengthen(&mut self, now_ns: u64, round: &Round, floor_ns: u64) -> bool {
        let is_new = self.lengthened.is_none_or(|step| now_ns > step.at_ns + LENGTHENED_NS);
        let loses = self.loss.is_congestion(round, true);
        if self.competes || !is_new || loses || self.rivals.is_known(now_ns) {
            return false;
        }
        if let Some(bw_bps) = self.before_yield_bps.take() {
            self.model.set_bw(bw_bps, now_ns);
        }
        self.lengthened = Some(PathStep { at_ns: now_ns, before_ns: self.min_rtt_ns() });
        self.model.forget_min_rtt(now_ns, floor_ns);
        (self.queued_rounds, self.queued_ns, self.yields) = (0, 0, 0);
        self.standing_ns = None;
        true
    }

    /// Ends reductions without effect. A queue kept up by others varies, or comes back; constant
    /// round trips are those of a path that became longer, and where delays vary it was none.
    fn end_yields(&mut self, now_ns: u64) {
        if let Some(bw_bps) = self.before_yield_bps.take() {
            self.model.set_bw(bw_bps, now_ns);
        }
        let is_new = self.lengthened.is_none_or(|step| now_ns > step.at_ns + LENGTHENED_NS);
        let knows = self.rivals.is_known(now_ns);
        let min_ns = self.min_rtt_ns();
        let is_steady = |&(least_ns, most_ns): &(u64, u64)| {
            let (varies_ns, above_ns) = (most_ns - least_ns, least_ns.saturating_sub(min_ns));
            let of_path = is_new && !knows && varies_ns <= above_ns / OFFSET_ABOVE_PART;
            of_path || varies_ns <= least_ns / STEADY_RTT_PART
        };
        let standing_ns = self.standing_ns.take();
        let varies = self.delays_vary();
        if let Some((least_ns, _)) = standing_ns.filter(is_steady) {
            self.lengthened = Some(PathStep { at_ns: now_ns, before_ns: min_ns });
            self.model.forget_min_rtt(now_ns, least_ns);
            (self.queued_rounds, self.yields) = (0, 0);
        } else if let Some((_, most_ns)) = standing_ns.filter(|_| varies) {
            self.model.learn_wander(most_ns);
            (self.queued_rounds, self.yields) = (0, 0);
        } else {
            self.compete(now_ns);
        }
    }

    fn compete(&mut self, now_ns: u64) {
        self.competes = true;
        self.rivals.begin(now_ns);
    }

    /// Handles losses after a standing delay was taken for the path's: a longer path does not lose
    /// more, so it was others' after all. True if there was one of late.
    pub(super) fn shorten(&mut self, now_ns: u64) -> bool {
        let is_late = |step: &mut PathStep| now_ns < step.at_ns + LENGTHENED_NS;
        let Some(step) = self.lengthened.take_if(is_late) else { return false };
        self.model.forget_min_rtt(now_ns, step.before_ns);
        self.compete(now_ns);
        true
    }

    pub(super) fn give_way(&mut self, now_ns: u64, round: &Round) {
        let bw_bps = self.model.bw_bps();
        self.has_shared = true;
        self.before_yield_bps.get_or_insert(bw_bps);
        let share_bps = self.guard.delivered_bps(round).min(bw_bps);
        let queued = self.above_min_ns(round.floor_rtt_ns) as f64 / round.floor_rtt_ns as f64;
        let bw_bps = share_bps as f64 * (1.0 - queued.min(YIELD_SHARE_MAX));
        self.model.set_bw(bw_bps as u64, now_ns + self.smoothed_rtt_ns);
        let probe_at_ns = now_ns + SHARED_PROBE_NS + self.draw(SHARED_PROBE_SPREAD_NS);
        self.phase = WeavePhase::Cruise { probe_at_ns, rounds: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::controller::Acked;

    /// What took a delay for the path's 5 s after the beginning, which was 20 ms before.
    fn lengthened() -> Weave {
        let mut weave = Weave::new(&crate::cc::Params::default());
        let before_ns = 20_000_000;
        weave.lengthened = Some(PathStep { at_ns: 5 * SECOND_NS, before_ns });
        weave
    }

    #[test]
    fn losses_within_10_s_show_that_a_longer_path_was_others_queue() {
        let mut weave = lengthened();
        assert!(weave.shorten(15 * SECOND_NS - 1));
        assert!(weave.competes);
        assert_eq!(weave.min_rtt_ns(), 20_000_000);
        assert!(!weave.shorten(15 * SECOND_NS - 1), "once");
        let mut weave = lengthened();
        assert!(!weave.shorten(15 * SECOND_NS) && !weave.competes);
    }
    const MS: u64 = 1_000_000;
    const NOW_NS: u64 = 60 * SECOND_NS;

    /// Cruising at 100 Mbit/s over 64 ms, where a queue of 4 ms counts.
    fn cruising() -> Weave {
        let params = crate::cc::Params { datagram_octets: 1250, ..Default::default() };
        let mut weave = Weave::new(&params);
        weave.model.set_bw(100_000_000, 0);
        weave.model.forget_min_rtt(0, 64 * MS);
        weave.smoothed_rtt_ns = 64 * MS;
        weave.phase = WeavePhase::Cruise { probe_at_ns: u64::MAX, rounds: 1 };
        weave
    }

    fn round(above_ns: u64, lasted_ns: u64) -> Round {
        let (floor_rtt_ns, octets) = (64 * MS + above_ns, lasted_ns * 100 / 8000);
        Round { floor_rtt_ns, octets, lasted_ns, ..Round::EMPTY }
    }

    #[test]
    fn two_rounds_and_50_ms_above_half_a_queue_reduce_the_rate() {
        let yields = |rounds: &[(u64, u64)]| {
            let mut weave = cruising();
            rounds
                .iter()
                .for_each(|(above, lasted)| weave.on_cruise_round(NOW_NS, &round(*above, *lasted)));
            weave.yields
        };
        let more_ns = 2 * MS + 1;
        assert_eq!(yields(&[(more_ns, 25 * MS), (more_ns, 25 * MS)]), 1);
        assert_eq!(yields(&[(more_ns, 25 * MS), (more_ns, 25 * MS - 1)]), 0);
        assert_eq!(yields(&[(more_ns, 90 * MS)]), 0, "one round may be a probe");
        assert_eq!(yields(&[(2 * MS, 90 * MS), (2 * MS, 90 * MS)]), 0, "half of it is none");
        assert_eq!(yields(&[(more_ns, 40 * MS), (0, 40 * MS), (more_ns, 40 * MS)]), 0);
        assert_eq!(yields(&[(more_ns, 40 * MS); 4]), 2);
    }

    /// A round trip that leaps by 20 ms and stays, after a reduction of the rate.
    fn leapt(change: impl Fn(&mut Weave)) -> (u64, u64) {
        let mut weave = cruising();
        weave.loss.set_random(0.0);
        weave.before_yield_bps = Some(110_000_000);
        (weave.queued_rounds, weave.yields, weave.leapt_ns) = (1, 1, Some(84 * MS));
        change(&mut weave);
        let lost = if weave.is_cut { 100 } else { 0 };
        let round = Round { acked: 900, lost, ..round(20 * MS, 10 * MS) };
        weave.on_cruise_round(NOW_NS, &round);
        if weave.yields == 0 {
            assert_eq!((weave.queued_rounds, weave.before_yield_bps), (0, None));
            let step = weave.lengthened.unwrap();
            assert_eq!((step.at_ns, step.before_ns), (NOW_NS, 64 * MS));
        }
        (weave.min_rtt_ns(), weave.model.bw_bps())
    }

    #[test]
    fn a_round_trip_that_leaps_and_stays_is_the_paths() {
        let (longer, same) = ((84 * MS, 110_000_000), (64 * MS, 100_000_000));
        assert_eq!(leapt(|_| ()), longer);
        assert_eq!(leapt(|weave| weave.leapt_ns = None), same);
        assert_eq!(leapt(|weave| weave.competes = true), same);
        // `leapt` takes this for a round that loses a tenth.
        assert_eq!(leapt(|weave| weave.is_cut = true), same);
        let before = |ago_ns: u64| {
            move |weave: &mut Weave| {
                let at_ns = NOW_NS - ago_ns;
                weave.lengthened = Some(PathStep { at_ns, before_ns: 64 * MS });
            }
        };
        assert_eq!(leapt(before(LENGTHENED_NS)), same);
        assert_eq!(leapt(before(LENGTHENED_NS + 1)), longer);
    }

    #[test]
    fn only_rounds_of_cruise_without_competing_show_a_leap() {
        let shown = |change: fn(&mut Weave)| {
            let mut weave = cruising();
            let mut take = |above_ns| {
                change(&mut weave);
                weave.take_leap(&round(above_ns, 64 * MS))
            };
            take(0);
            take(20 * MS);
            take(20 * MS)
        };
        assert_eq!(shown(|_| ()), Some(84 * MS));
        assert_eq!(shown(|weave| weave.competes = true), None);
        assert_eq!(shown(|weave| weave.phase = WeavePhase::Down { rounds: 1 }), None);
    }

    #[test]
    fn two_rounds_without_a_queue_end_competing() {
        let mut weave = cruising();
        weave.competes = true;
        for (above_ns, competes) in [(0, true), (3 * MS, true), (0, true), (2 * MS, false)] {
            weave.on_cruise_round(NOW_NS, &round(above_ns, 64 * MS));
            assert_eq!(weave.competes, competes);
        }
        assert_eq!((weave.yields, weave.model.bw_bps()), (0, 100_000_000));
    }

    /// What becomes of a delay that reductions have not changed.
    fn ended(standing_ns: (u64, u64), change: impl Fn(&mut Weave)) -> (bool, u64, u64) {
        let mut weave = cruising();
        change(&mut weave);
        weave.model.set_bw(70_000_000, 0);
        (weave.before_yield_bps, weave.standing_ns) = (Some(100_000_000), Some(standing_ns));
        (weave.queued_rounds, weave.yields) = (2, 4);
        weave.end_yields(NOW_NS);
        assert_eq!(weave.model.bw_bps(), 100_000_000, "the rate before");
        assert_eq!(weave.yields, if weave.competes { 4 } else { 0 });
        (weave.competes, weave.min_rtt_ns(), weave.model.wander_ns())
    }

    #[test]
    fn a_delay_that_varies_by_half_of_itself_at_most_is_the_paths() {
        let fresh = |_: &mut Weave| ();
        assert_eq!(ended((74 * MS, 79 * MS), fresh), (false, 74 * MS, 0));
        assert_eq!(ended((74 * MS, 79 * MS + 1), fresh), (true, 64 * MS, 0));
        // Of late it was so taken before: the most that it may vary is a 256th.
        let again = |weave: &mut Weave| {
            let at_ns = NOW_NS - LENGTHENED_NS;
            weave.lengthened = Some(PathStep { at_ns, before_ns: 64 * MS });
        };
        let least_ns = 256 * 300_000;
        assert_eq!(ended((least_ns, least_ns + 300_000), again), (false, least_ns, 0));
        assert_eq!(ended((least_ns, least_ns + 300_001), again), (true, 64 * MS, 0));
        let before = |weave: &mut Weave| {
            let at_ns = NOW_NS - LENGTHENED_NS - 1;
            weave.lengthened = Some(PathStep { at_ns, before_ns: 64 * MS });
        };
        assert_eq!(ended((74 * MS, 79 * MS), before), (false, 74 * MS, 0));
    }

    #[test]
    fn four_reductions_or_one_where_delays_are_known_to_vary_are_vain() {
        let yields = |change: fn(&mut Weave)| {
            let mut weave = cruising();
            change(&mut weave);
            let mut most = 0;
            for number in 0..40 {
                // What varies too much for a path that became longer.
                weave.on_cruise_round(NOW_NS, &round((10 + number % 2 * 30) * MS, 64 * MS));
                most = most.max(weave.yields);
                if weave.competes {
                    break;
                }
            }
            (weave.competes, most)
        };
        assert_eq!(yields(|_| ()), (true, 4));
        assert_eq!(yields(|weave| weave.model.learn_wander(65 * MS)), (true, 1));
        // Delays that vary show what no reduction changes.
        fn vary(weave: &mut Weave) {
            for arrived_ms in [0, 9] {
                let one_way_ns = (arrived_ms * MS) as i64;
                let acked = Acked { one_way_ns, now_ns: 64 * MS, packets: 1, ..Acked::default() };
                weave.model.handle(&acked, Some(64 * MS), 0);
            }
            weave.model.set_unrest(MS);
        }
        assert_eq!(yields(vary), (false, 1));
        assert_eq!(
            yields(|weave| {
                vary(weave);
                weave.trial.depends = true;
            }),
            (true, 4)
        );
        // What arrives still reflects a Refresh.
        assert_eq!(
            yields(|weave| {
                weave.model.learn_wander(65 * MS);
                weave.refreshed_ns = NOW_NS - 3 * 64 * MS + 1;
            }),
            (false, 0)
        );
        assert_eq!(
            yields(|weave| {
                weave.model.learn_wander(65 * MS);
                weave.refreshed_ns = NOW_NS - 3 * 64 * MS;
            }),
            (true, 1)
        );
    }
}
