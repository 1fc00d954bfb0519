//! Probes: a little more than the path is known to carry, from the same few packets on for every
//! flow, half as much again each round until a queue shows.

use super::model::Round;
use super::{Weave, WeavePhase};
use crate::cc::rate::octets_in;

/// No probe for so many round trips after a reaction.
const CALM_RTTS: u64 = 6;
/// What the first round of a probe adds: as much for every flow, so that shares become equal.
const PROBE_PACKETS: u64 = 4;
/// A probe that adds less, as time at the rate, cannot tell that there is no more.
const PROBE_QUEUE_NS: u64 = 2_000_000;
const PROBE_ROUNDS: u32 = 3;
/// A probe ends when the queue is longer by this part of what counts as one: by less than other
/// flows of its kind answer.
const PROBE_EIGHTHS: u64 = 3;
const PROBE_GAIN: f64 = 1.01;
/// Each round adds more by this part of what the one before did, while no queue shows.
const PROBE_GROWTH_PART: u64 = 2;

/// A probe under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Probe {
    /// Octets beyond what fills the path.
    pub(super) extra: u64,
    /// Rounds so far.
    rounds: u32,
    /// The rate before.
    before_bps: u64,
    /// The queue before, as time. What others queue does not end a probe: every flow asks for
    /// the same time at the rate of the path, which is how shares become equal.
    base_ns: u64,
    /// The round before showed that the queue grows.
    is_queued: bool,
}

impl Weave {
    pub(super) fn probe(&mut self) {
        self.model.begin_cycle();
        self.is_cut = false;
        self.phase = WeavePhase::Up(Probe {
            extra: PROBE_PACKETS * u64::from(self.params.datagram_octets),
            rounds: 0,
            before_bps: self.model.bw_bps(),
            base_ns: self.above_min_ns(self.latest_rtt_ns.min(self.model.floor_rtt_ns())),
            is_queued: false,
        });
    }

    /// The queue that a reaction answered is gone: whether the reaction was too much shows soon.
    pub(super) fn probe_soon(&mut self, now_ns: u64) {
        let calm_ns = self.answered_ns + CALM_RTTS * self.smoothed_rtt_ns;
        if let WeavePhase::Cruise { probe_at_ns, .. } = &mut self.phase
            && self.is_cut
        {
            *probe_at_ns = (*probe_at_ns).min(calm_ns.max(now_ns));
        }
    }

    pub(super) fn on_probe_round(&mut self, now_ns: u64, round: &Round, probe: Probe) {
        let rounds = probe.rounds + 1;
        let above_ns = self.above_min_ns(self.latest_rtt_ns.max(round.floor_rtt_ns));
        let is_queued = above_ns > probe.base_ns + self.queue_ns() * PROBE_EIGHTHS / 8;
        let fresh = rounds.is_multiple_of(PROBE_ROUNDS);
        let bw_bps = self.model.bw_bps();
        let gains = bw_bps as f64 > probe.before_bps as f64 * PROBE_GAIN;
        let asks = self.competes || probe.extra >= octets_in(probe.before_bps, PROBE_QUEUE_NS);
        let idle = asks && fresh && !gains;
        if (probe.is_queued && is_queued && !self.competes) || idle {
            return self.end_probe(now_ns);
        }
        let more = if is_queued { 0 } else { probe.extra / PROBE_GROWTH_PART };
        let before_bps = if fresh { bw_bps } else { probe.before_bps };
        let extra = probe.extra + more;
        self.phase = WeavePhase::Up(Probe { extra, rounds, before_bps, is_queued, ..probe });
    }

    pub(super) fn end_probe(&mut self, now_ns: u64) {
        if self.competes {
            return self.cruise(now_ns);
        }
        self.phase = WeavePhase::Down { rounds: 0 };
    }
}
