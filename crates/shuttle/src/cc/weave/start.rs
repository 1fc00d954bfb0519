//! The start: four times as much each round, each time as one short flight. Where a flight is
//! sent faster than the path carries, its acknowledgements tell how fast that is, long before
//! there is enough under way to fill the path; then the rate is known at once. The same again
//! from a rate that once was. Rounds without enough to send teach nothing: the ramp waits.

use super::model::Round;
use super::{INITIAL_PACKETS, RAMP, Weave, WeavePhase};
use crate::cc::controller::Acked;
use crate::cc::rate::{bits_per_second, octets_in};
use crate::rtt::ack_interval_ns;

/// Added to the window for each octet acknowledged: four times as much each round.
const RAMP_GROWTH: u64 = 3;
/// Intervals between acknowledgements that measure a rate. A flight lasts as many, so more than
/// as many in a row that show a queue end the ramp.
const TRAIN: usize = 4;
/// A flight is sent no slower than this, in windows a round trip.
const RAMP_PACING_MIN: f64 = 1.05;
/// The ramp ends when the rate grows by less than this in so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// What the first flight after an outage is sent at, in rates that once were.
const RESUME_RATES: f64 = 3.0;
/// Rounds in which what the ramp queued goes, unless others have their part of the path.
const DRAIN_ROUNDS: u32 = 2;

/// The newest acknowledgements of a ramp, and what they tell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// When each arrived, when what it told of was sent, and octets delivered by then.
    seen: [(u64, u64, u64); TRAIN + 1],
    /// How many in a row showed that more was sent than the path carries.
    full: usize,
    /// The fastest delivery over all of `seen`.
    fastest_bps: u64,
}

impl Train {
    pub(super) const EMPTY: Self = Self { seen: [(0, 0, 0); TRAIN + 1], full: 0, fastest_bps: 0 };

    /// Takes an acknowledgement; `is_full` unless it cannot tell.
    fn take(&mut self, acked: &Acked, is_full: Option<bool>) {
        self.full = match is_full {
            Some(true) => self.full + 1,
            Some(false) => 0,
            None => self.full,
        };
        self.seen.rotate_left(1);
        self.seen[TRAIN] = (acked.now_ns, acked.sent_ns, acked.delivered_octets);
        let (acked_ns, sent_ns, delivered_octets) = self.seen[0];
        if acked_ns == 0 {
            return;
        }
        // Acknowledgements that bunch do not make the path faster than packets were sent.
        let interval_ns = (acked.now_ns - acked_ns).max(acked.sent_ns.saturating_sub(sent_ns));
        let rate_bps = bits_per_second(acked.delivered_octets - delivered_octets, interval_ns);
        self.fastest_bps = self.fastest_bps.max(rate_bps);
    }
}

impl Weave {
    /// How much faster a flight is sent than its window once a round trip.
    pub(super) fn ramp_pacing(&self) -> f64 {
        self.model.min_rtt_ns().or(self.saved_rtt_ns).map_or(RAMP_PACING_MIN, pacing_over)
    }

    pub(super) fn on_ramp_ack(&mut self, acked: &Acked) {
        let WeavePhase::Ramp { mut train, full_bps, full_rounds } = self.phase else { return };
        if acked.rate.is_some_and(|sample| sample.app_limited) {
            return;
        }
        let limit_ns = self.queue_ns() / 2;
        let is_queued = acked.rtt.map(|rtt| self.above_min_ns(rtt.latest_ns) > limit_ns);
        let is_losing = self.loss.is_congestion(&Round::of(acked), false);
        train.take(acked, if is_losing { Some(true) } else { is_queued });
        self.phase = WeavePhase::Ramp { train, full_bps, full_rounds };
        if train.full == 0 {
            self.window = self.window.saturating_add(RAMP_GROWTH * acked.octets);
        } else if train.full > TRAIN {
            self.end_ramp(acked.now_ns, &train);
        }
    }

    pub(super) fn on_ramp_round(&mut self, now_ns: u64, round: &Round) {
        let WeavePhase::Ramp { train, full_bps, full_rounds } = self.phase else { return };
        if self.loss.is_congestion(round, false) {
            return self.end_ramp(now_ns, &train);
        }
        if self.above_min_ns(round.floor_rtt_ns) < self.queue_ns() / 2 {
            self.loss.learn(round);
        }
        if round.app_limited {
            return;
        }
        let bw_bps = self.model.bw_bps();
        let grows = bw_bps as f64 >= full_bps as f64 * FULL_GROWTH;
        if !grows && full_rounds + 1 >= FULL_ROUNDS {
            return self.end_ramp(now_ns, &train);
        }
        self.phase = match grows {
            true => WeavePhase::Ramp { train, full_bps: bw_bps, full_rounds: 0 },
            false => WeavePhase::Ramp { train, full_bps, full_rounds: full_rounds + 1 },
        };
    }

    /// The rate is known. No more than fills the path leaves until a round shows what of it is
    /// this flow's.
    pub(super) fn end_ramp(&mut self, now_ns: u64, train: &Train) {
        self.model.set_bw(self.model.bw_bps().max(train.fastest_bps), now_ns);
        self.answered_ns = now_ns;
        self.is_cut = true;
        self.phase = WeavePhase::Drain { rounds: 0 };
    }

    /// A round at the rate that the ramp found; the first still tells of the ramp. If a queue
    /// stands then others have a part of the path.
    pub(super) fn on_drain_round(&mut self, now_ns: u64, round: &Round, rounds: u32) {
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns() / 4;
        if rounds > 1 && !is_queued {
            return self.cruise(now_ns);
        }
        self.phase = WeavePhase::Drain { rounds };
        if round.app_limited {
            return self.cruise(now_ns);
        }
        if rounds > DRAIN_ROUNDS {
            let share_bps = bits_per_second(round.octets, round.lasted_ns);
            let bw_bps = self.model.bw_bps().min(share_bps);
            self.model.set_bw(bw_bps, now_ns + self.smoothed_rtt_ns);
            self.end_probe(now_ns);
        }
    }

    /// Begins again with a flight that shows whether the rate is what it once was.
    pub(super) fn resume(&mut self, rate_bps: u64, rtt_ns: u64) {
        let least = INITIAL_PACKETS * u64::from(self.params.datagram_octets);
        let flight = octets_in(rate_bps, rtt_ns) as f64 * RESUME_RATES / pacing_over(rtt_ns);
        self.window = (flight as u64).max(least);
        self.saved_rtt_ns = Some(rtt_ns);
        self.phase = RAMP;
    }
}

/// The pacing of a flight over a path of this round trip.
fn pacing_over(rtt_ns: u64) -> f64 {
    let flight_ns = TRAIN as u64 * ack_interval_ns(rtt_ns);
    (rtt_ns as f64 / flight_ns as f64).max(RAMP_PACING_MIN)
}
