//! Probes (phase Up): an excess in flight that starts at the same few packets for every flow, and
//! grows by half each round until a queue shows, or half of it is lost.

use super::model::Round;
use super::trial::TRIED_LOSS_SHARE;
use super::{Weave, WeavePhase};
use crate::cc::rate::octets_in;

/// Round trips without a probe after a reaction, and after a probe that gained (`matrix`, `2ms
/// 500mbit queue=1bdp forward:loss=0.1%`: .024 dropped with none).
const CALM_RTTS: u64 = 6;
/// First excess in packets: equal for every flow, so that shares converge.
const PROBE_PACKETS: u64 = 4;
/// Part of the bandwidth-delay product with which the first probe after Ramp begins, if that is
/// more: the rate of one flight may be a fifth too low, and 150 ms at 1 Gbit/s took 4.8 s.
const START_PROBE_PART: u64 = 64;
/// Round trip from which that is so, 100 ms: on shorter paths four packets grow soon enough, and
/// flows that come late would take more than their part (`fairness`, 70 ms: Jain's index .99 to
/// .96).
const START_PROBE_RTT_NS: u64 = 100_000_000;
/// Excess in nanoseconds at the rate from which a probe without gain may end: less could not show
/// that there is no more.
const PROBE_QUEUE_NS: u64 = 2_000_000;
/// Rounds between two checks whether the probe raised the rate.
const PROBE_ROUNDS: u32 = 3;
/// Rounds more at most where a rate spans many gaps (`real-paths`, jitter of 30 ms in order).
const LATE_ROUNDS_MAX: u64 = 3;
/// Growth of the queue that ends a probe, in eighths of a standing queue: below the threshold at
/// which other weave flows yield (`fairness`).
const PROBE_QUEUE_EIGHTHS: u64 = 3;
const EIGHTHS: u64 = 8;
/// Times the rate at the last check that keeps the probe going: 1 % more.
const PROBE_GAIN_FACTOR: f64 = 1.01;
/// Part of the excess by which it grows in a round while no queue shows.
const PROBE_GROWTH_PART: u64 = 2;
/// Times the rate before a probe from which on another follows soon: there may be more, as after
/// a start that found too little, or for a flow that came late (`fairness`, `real-paths`).
const REPEAT_GAIN_FACTOR: f64 = 1.1;

/// Part of the spread of round trips that is no queue of a probe (`real-paths`, `jitter=10ms` and
/// `30ms`).
const PROBE_SPREAD_PART: u64 = 2;

/// Part of what a probe adds whose loss ends it (`policer`; of 6,000 random paths 228 were unsafe
/// without, 139 with it).
const DROP_PART: f64 = 0.5;
/// Standard deviations of random loss beyond its mean that are chance.
const DROP_DEVIATIONS: f64 = 2.0;

/// State of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RateProbe {
    /// Excess in flight in bytes.
    pub(super) extra: u64,
    /// Rounds of this probe.
    rounds: u32,
    /// Rate at the last check, in bits per second.
    before_bps: u64,
    /// Rate at the beginning, in bits per second.
    begun_bps: u64,
    /// Queueing delay before the probe, in nanoseconds. Queues of others do not end a probe: every
    /// flow asks for the same time at the path's rate, so shares converge.
    base_ns: u64,
    /// The last round showed that the queue grows.
    is_queued: bool,
    /// The rate was reduced for a standing queue since the last probe: others are here.
    is_shared: bool,
}

impl Weave {
    pub(super) fn probe(&mut self) {
        let (extra, is_shared) = (self.first_extra(), std::mem::take(&mut self.has_shared));
        self.model.begin_cycle();
        (self.is_cut, self.is_new, self.has_gained) = (false, false, false);
        self.phase = WeavePhase::Up(RateProbe {
            extra,
            rounds: 0,
            before_bps: self.model.bw_bps(),
            begun_bps: self.model.bw_bps(),
            base_ns: self.recent_above_ns().min(self.above_min_ns(self.model.floor_rtt_ns())),
            is_queued: false,
            is_shared,
        });
    }

    /// The excess with which a probe begins, in bytes.
    fn first_extra(&self) -> u64 {
        let packets = PROBE_PACKETS * u64::from(self.params.datagram_octets);
        let is_long = self.min_rtt_ns() >= START_PROBE_RTT_NS;
        match self.is_new && is_long && !self.delays_vary() {
            true => packets.max(self.model.bdp_octets() / START_PROBE_PART),
            false => packets,
        }
    }

    /// Probes soon: the queue that caused a reaction is gone, and the reaction may have been too
    /// strong; or the last probe has found much.
    pub(super) fn probe_soon(&mut self, now_ns: u64) {
        let calm_ns = self.answered_ns + CALM_RTTS * self.smoothed_rtt_ns;
        // What a policer's bucket let through is no rate.
        let has_gained = self.has_gained && !self.trial.depends;
        if let WeavePhase::Cruise { probe_at_ns, .. } = &mut self.phase
            && (self.is_cut || has_gained)
        {
            *probe_at_ns = (*probe_at_ns).min(calm_ns.max(now_ns));
        }
    }

    /// Whether the excess of a probe is enough to cause the queue that ends it: a longer delay is
    /// not its own.
    pub(super) fn may_queue(&self, probe: &RateProbe) -> bool {
        probe.extra >= octets_in(self.model.bw_bps(), self.grown_queue_ns())
    }

    /// Growth of the delay that shows that the queue of a probe grows.
    fn grown_queue_ns(&self) -> u64 {
        let least_ns = self.queue_ns() * PROBE_QUEUE_EIGHTHS / EIGHTHS;
        self.model.restless_ns().max(least_ns) + self.probe_spread_ns()
    }

    /// What of a delay is no queue of a probe where round trips are unlike.
    pub(super) fn probe_spread_ns(&self) -> u64 {
        self.model.spread_ns() / PROBE_SPREAD_PART
    }

    /// Whether a probe adds its excess only, and no part of the rate: that would give most of what
    /// is free to the flow that has most already. So it is where others are, unless there is much.
    pub(super) fn is_modest(&self, probe: &RateProbe) -> bool {
        let enough_bps = probe.begun_bps as f64 * REPEAT_GAIN_FACTOR;
        probe.is_shared && (self.model.bw_bps() as f64) < enough_bps
    }

    pub(super) fn on_probe_round(&mut self, now_ns: u64, round: &Round, probe: RateProbe) {
        let rounds = probe.rounds + 1;
        let above_ns = self.recent_above_ns().max(self.above_min_ns(round.floor_rtt_ns));
        let is_queued = above_ns > probe.base_ns + self.grown_queue_ns() && self.may_queue(&probe);
        let fresh = rounds.is_multiple_of(PROBE_ROUNDS + self.late_rounds());
        let bw_bps = self.model.bw_bps();
        let gains = bw_bps as f64 > probe.before_bps as f64 * PROBE_GAIN_FACTOR;
        let shows_ns = PROBE_QUEUE_NS.max(self.model.restless_ns()).max(self.model.spread_ns());
        let asks = self.competes || probe.extra >= octets_in(probe.before_bps, shows_ns);
        let idle = asks && fresh && !gains;
        let is_over = (probe.is_queued && is_queued) || self.is_dropped(round, &probe);
        if (is_over && !self.competes) || idle {
            return self.end_probe(now_ns);
        }
        let more = if is_queued { 0 } else { probe.extra / PROBE_GROWTH_PART };
        let before_bps = if fresh { bw_bps } else { probe.before_bps };
        let extra = probe.extra + more;
        self.phase = WeavePhase::Up(RateProbe { extra, rounds, before_bps, is_queued, ..probe });
    }

    /// Whether a round lost half of what the probe added, beyond random loss, while losses may
    /// depend on the rate: a policer, or a buffer too short to show a queue, has no more. This does
    /// not count where chance may lose as much: of 580,000 packets and 1 % it ended each probe, and
    /// a connection at 100 Gbit/s stayed at .67 of its path (`streams`).
    fn is_dropped(&self, round: &Round, probe: &RateProbe) -> bool {
        let random = self.loss.random().min(TRIED_LOSS_SHARE);
        let expected = random * (round.acked + round.lost) as f64;
        let added = probe.extra as f64 / f64::from(self.params.datagram_octets);
        let (chance, dropped) = (DROP_DEVIATIONS * expected.sqrt(), DROP_PART * added);
        self.losses_may_depend()
            && dropped >= chance
            && round.lost as f64 > expected + chance + dropped
    }

    /// Round trips, beyond the first, before a rate reflects what is sent.
    fn late_rounds(&self) -> u32 {
        let rounds = self.model.rate_span_ns() / self.min_rtt_ns().max(1);
        rounds.min(LATE_ROUNDS_MAX) as u32
    }

    pub(super) fn end_probe(&mut self, now_ns: u64) {
        if let WeavePhase::Up(probe) = self.phase {
            let enough_bps = probe.begun_bps as f64 * REPEAT_GAIN_FACTOR;
            self.has_gained = self.model.bw_bps() as f64 >= enough_bps;
        }
        if self.competes {
            return self.cruise(now_ns);
        }
        // What was sent until now may meet the queue of the probe, or what is full: its end answers
        // these losses.
        self.answered_ns = now_ns;
        self.phase = WeavePhase::Down { rounds: 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::weave::trial::RateTrial;

    const RTT_NS: u64 = 10_000_000;
    const NOW_NS: u64 = 1_000_000_000;

    /// A probe that adds twelve packets to a hundred, and of which a round lost so many.
    fn after_round(lost: u64, change: fn(&mut Weave)) -> Weave {
        after_round_of(100, 12, lost, change)
    }

    fn after_round_of(packets: u64, added: u64, lost: u64, change: fn(&mut Weave)) -> Weave {
        let params = crate::cc::Params { datagram_octets: 1250, ..Default::default() };
        let mut weave = Weave::new(&params);
        weave.model.set_bw(100_000_000, 0);
        weave.model.forget_min_rtt(0, RTT_NS);
        weave.smoothed_rtt_ns = RTT_NS;
        weave.probe();
        change(&mut weave);
        let WeavePhase::Up(probe) = weave.phase else { panic!("a probe") };
        let probe = RateProbe { extra: added * 1250, ..probe };
        let acked = packets - lost;
        let round = Round { acked, lost, floor_rtt_ns: RTT_NS, lasted_ns: RTT_NS, ..Round::EMPTY };
        weave.on_probe_round(NOW_NS, &round, probe);
        weave
    }

    fn is_over(lost: u64, change: fn(&mut Weave)) -> bool {
        !matches!(after_round(lost, change).phase, WeavePhase::Up(_))
    }

    #[test]
    fn a_probe_is_over_when_half_of_what_it_adds_is_lost() {
        assert!(!is_over(6, |_| ()) && is_over(7, |_| ()));
        // Of a hundred packets one is lost at random, and two more by chance.
        let one_percent: fn(&mut Weave) = |weave| weave.loss.set_random(0.01);
        assert!(!is_over(9, one_percent) && is_over(10, one_percent));
        // No more is taken for random than what is tried: 1.5, and 2.4 by chance.
        let unlearnt: fn(&mut Weave) = |weave| weave.loss.set_random(0.2);
        assert!(!is_over(9, unlearnt) && is_over(10, unlearnt));
        assert!(!is_over(100, |weave| weave.competes = true));
        assert!(!is_over(100, |weave| weave.trial = RateTrial::found_random()));
    }

    #[test]
    fn the_first_probe_after_a_start_without_losses_begins_with_a_part_of_the_path() {
        let extras = |change: fn(&mut Weave)| {
            let mut weave = after_round(0, |weave| weave.is_new = true);
            // 1 Gbit/s for 100 ms are 12,500,000 bytes.
            weave.model.set_bw(1_000_000_000, 0);
            weave.model.forget_min_rtt(0, START_PROBE_RTT_NS);
            change(&mut weave);
            [(); 2].map(|()| {
                weave.probe();
                let WeavePhase::Up(probe) = weave.phase else { panic!("a probe") };
                probe.extra
            })
        };
        assert_eq!(extras(|_| ()), [12_500_000 / 64, 5000]);
        let short: fn(&mut Weave) = |weave| weave.model.forget_min_rtt(0, START_PROBE_RTT_NS - 1);
        assert_eq!(extras(short), [5000; 2]);
        assert_eq!(extras(|weave| weave.react(NOW_NS)), [5000; 2], "the rate was reduced");
        assert_eq!(extras(|weave| weave.model.set_bw(20_000_000, 0)), [5000; 2], "four packets");
    }

    #[test]
    fn a_probe_goes_on_that_adds_less_than_chance_may_lose() {
        let is_over = |added, lost| {
            let one_percent: fn(&mut Weave) = |weave| weave.loss.set_random(0.01);
            let ended = after_round_of(100_000, added, lost, one_percent);
            !matches!(ended.phase, WeavePhase::Up(_))
        };
        // A thousand are expected, and 63 by chance.
        assert!(!is_over(12, 1200) && !is_over(126, 1200));
        assert!(!is_over(128, 1127) && is_over(128, 1128));
    }

    /// `docs/shuttle.md`, "Weave": small flows catch up with large ones.
    #[test]
    fn a_probe_where_others_are_adds_a_part_of_the_rate_only_if_there_is_much() {
        let modest = |has_shared, found_bps| {
            let mut weave = after_round(0, |_| ());
            weave.model.set_bw(100_000_000, 0);
            weave.has_shared = has_shared;
            weave.probe();
            let WeavePhase::Up(probe) = weave.phase else { panic!("a probe") };
            assert!(!weave.has_shared, "once");
            weave.model.set_bw(found_bps, 0);
            weave.is_modest(&probe)
        };
        assert!(modest(true, 100_000_000) && modest(true, 109_999_999));
        assert!(!modest(true, 110_000_001) && !modest(false, 100_000_000));
        let mut weave = Weave::new(&crate::cc::Params::default());
        weave.give_way(NOW_NS, &Round { floor_rtt_ns: RTT_NS, ..Round::EMPTY });
        assert!(weave.has_shared);
    }

    #[test]
    fn the_end_of_a_probe_answers_the_losses_of_what_was_sent_before() {
        let ended = after_round(7, |_| ());
        assert_eq!((ended.phase, ended.answered_ns), (WeavePhase::Down { rounds: 0 }, NOW_NS));
        let mut competes = after_round(0, |weave| weave.competes = true);
        competes.end_probe(NOW_NS);
        assert_eq!(competes.answered_ns, 0, "its queue is not its own");
    }

    #[test]
    fn a_reaction_is_followed_by_a_probe_after_six_round_trips() {
        let soon = |is_cut, now_ns| {
            let mut weave = Weave::new(&crate::cc::Params::default());
            (weave.answered_ns, weave.smoothed_rtt_ns, weave.is_cut) = (1000, 50, is_cut);
            weave.phase = WeavePhase::Cruise { probe_at_ns: 5000, rounds: 1 };
            weave.probe_soon(now_ns);
            match weave.phase {
                WeavePhase::Cruise { probe_at_ns, .. } => probe_at_ns,
                _ => 0,
            }
        };
        assert_eq!(soon(true, 1100), 1300);
        assert_eq!(soon(true, 1400), 1400);
        assert_eq!(soon(true, 9000), 5000, "it was due before");
        assert_eq!(soon(false, 1100), 5000, "there was no reaction");
    }
}
