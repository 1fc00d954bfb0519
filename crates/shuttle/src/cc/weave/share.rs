//! Living with others: a queue that stands is drained by all in proportion; one that will not go
//! belongs to flows that fill buffers, and weave competes with those.

use super::model::Round;
use super::{Weave, WeavePhase};
use crate::cc::rate::{SECOND_NS, bits_per_second};

/// Reductions in a row that did not drain the queue: others keep it up.
const COMPETE_YIELDS: u32 = 4;
/// Rounds in a row with a queue that are no other flow's probe.
const YIELD_ROUNDS: u32 = 2;
/// Rounds in a row without one.
const PEACE_ROUNDS: u32 = 2;
/// Round trips that differ by less than this part while weave yields stay the same.
const STEADY_PART: u64 = 256;
/// Yielding drains the queue in a round trip, but takes no more than this at once.
const YIELD_MAX: f64 = 0.1;
/// Sooner where others are, so that shares become equal.
const SHARED_PROBE_NS: u64 = SECOND_NS / 4;
const SHARED_PROBE_SPREAD_NS: u64 = SECOND_NS / 2;

impl Weave {
    /// A queue that stands while cruising is answered by all flows alike, in proportion.
    pub(super) fn on_cruise_round(&mut self, now_ns: u64, round: &Round) {
        // Sooner than it counts as congestion: in a shallow buffer others lose packets by then.
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns() / 2;
        if !is_queued {
            (self.queued_rounds, self.yields) = (0, 0);
            (self.before_yield_bps, self.standing_ns) = (None, None);
            self.calm_rounds += 1;
            self.probe_soon(now_ns);
            if self.calm_rounds >= PEACE_ROUNDS {
                self.competes = false;
            }
            return;
        }
        self.calm_rounds = 0;
        self.queued_rounds += 1;
        if self.yields > 0 {
            let floor_ns = round.floor_rtt_ns;
            let (least_ns, most_ns) = self.standing_ns.unwrap_or((floor_ns, floor_ns));
            self.standing_ns = Some((least_ns.min(floor_ns), most_ns.max(floor_ns)));
        }
        if self.competes {
            return;
        }
        if self.yields >= COMPETE_YIELDS && self.queued_rounds >= YIELD_ROUNDS {
            return self.end_yields(now_ns);
        }
        // One round may be another's probe; and what a reaction does shows a round later.
        if self.queued_rounds >= YIELD_ROUNDS {
            self.queued_rounds = 0;
            self.yields += 1;
            self.give_way(now_ns, round);
        }
    }

    /// Yielding does not help. A queue that others keep up would move meanwhile; round trips that
    /// stay the same are those of a path that became longer.
    fn end_yields(&mut self, now_ns: u64) {
        if let Some(bw_bps) = self.before_yield_bps.take() {
            self.model.set_bw(bw_bps, now_ns);
        }
        let is_steady = |&(least_ns, most_ns): &_| most_ns - least_ns <= least_ns / STEADY_PART;
        if let Some((least_ns, _)) = self.standing_ns.take().filter(is_steady) {
            self.model.forget_min_rtt(now_ns, least_ns);
            (self.queued_rounds, self.yields) = (0, 0);
        } else {
            self.competes = true;
        }
    }

    pub(super) fn give_way(&mut self, now_ns: u64, round: &Round) {
        let bw_bps = self.model.bw_bps();
        self.before_yield_bps.get_or_insert(bw_bps);
        let share_bps = bits_per_second(round.octets, round.lasted_ns).min(bw_bps);
        let queued = self.above_min_ns(round.floor_rtt_ns) as f64 / round.floor_rtt_ns as f64;
        let bw_bps = share_bps as f64 * (1.0 - queued.min(YIELD_MAX));
        self.model.set_bw(bw_bps as u64, now_ns + self.smoothed_rtt_ns);
        let probe_at_ns = now_ns + SHARED_PROBE_NS + self.draw(SHARED_PROBE_SPREAD_NS);
        self.phase = WeavePhase::Cruise { probe_at_ns, rounds: 0 };
    }
}
