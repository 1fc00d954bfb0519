//! Start-up (phases Ramp and Drain): each round sends one short flight of four times the last. If a
//! flight is sent faster than the path carries, the spacing of its acknowledgements measures the
//! rate long before the path is full. After an outage, and with saved properties, the same from a
//! known rate. App-limited rounds do not count.

use super::model::Round;
use super::{INITIAL_PACKETS, RAMP, Weave, WeavePhase};
use crate::cc::controller::Acked;
use crate::cc::rate::{bits_per_second, octets_in};
use crate::rtt::ack_interval_ns;

/// Window growth per byte acknowledged: fourfold each round.
const RAMP_GROWTH: u64 = 3;
/// Acknowledgement intervals that measure a rate. A flight lasts as many, so a run of more that
/// show a queue ends Ramp.
const TRAIN: usize = 4;
/// Least pacing rate of a flight, in windows per round trip.
const RAMP_PACING_MIN: f64 = 1.05;
/// Growth of the rate below which Ramp ends, 25 %, as in BBR.
const FULL_GROWTH: f64 = 1.25;
/// Rounds without that growth: a round or two may have lacked data.
const FULL_ROUNDS: u32 = 3;
/// Size of the first flight after an outage in flights at the known rate: faster than the path, so
/// that it measures the rate.
const RESUME_RATES: f64 = 3.0;
/// Rounds in which the queue of Ramp drains, unless other flows share the path.
const DRAIN_ROUNDS: u32 = 2;

/// Rate measurement by the newest acknowledgements of Ramp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// Arrival time, sending time of the newest packet covered, and bytes delivered, of each.
    seen: [(u64, u64, u64); TRAIN + 1],
    /// Consecutive acknowledgements that showed a queue.
    full: usize,
    /// Largest delivery rate over all of `seen`, in bits per second.
    fastest_bps: u64,
}

impl Train {
    /// No acknowledgement seen.
    pub(super) const EMPTY: Self = Self { seen: [(0, 0, 0); TRAIN + 1], full: 0, fastest_bps: 0 };

    /// Adds an acknowledgement; `is_full` if it shows a queue, `None` if it has no sample.
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
        // Aggregated acknowledgements cannot show a higher rate than that of sending.
        let interval_ns = (acked.now_ns - acked_ns).max(acked.sent_ns.saturating_sub(sent_ns));
        let rate_bps = bits_per_second(acked.delivered_octets - delivered_octets, interval_ns);
        self.fastest_bps = self.fastest_bps.max(rate_bps);
    }
}

impl Weave {
    /// Pacing gain of a flight over one window per round trip.
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

    /// Ends Ramp: the rate is known. Drain sends at most a bandwidth-delay product until a round
    /// shows this flow's share.
    pub(super) fn end_ramp(&mut self, now_ns: u64, train: &Train) {
        self.model.set_bw(self.model.bw_bps().max(train.fastest_bps), now_ns);
        self.answered_ns = now_ns;
        self.is_cut = true;
        self.phase = WeavePhase::Drain { rounds: 0 };
    }

    /// Handles a round of Drain; the first still reflects Ramp. A standing queue shows other flows
    /// on the path.
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

    /// Restarts with a flight that verifies a known rate.
    pub(super) fn resume(&mut self, rate_bps: u64, rtt_ns: u64) {
        let least = INITIAL_PACKETS * u64::from(self.params.datagram_octets);
        let flight = octets_in(rate_bps, rtt_ns) as f64 * RESUME_RATES / pacing_over(rtt_ns);
        self.window = (flight as u64).max(least);
        self.saved_rtt_ns = Some(rtt_ns);
        self.phase = RAMP;
    }
}

/// Pacing gain of a flight on a path of this round trip.
fn pacing_over(rtt_ns: u64) -> f64 {
    let flight_ns = TRAIN as u64 * ack_interval_ns(rtt_ns);
    (rtt_ns as f64 / flight_ns as f64).max(RAMP_PACING_MIN)
}
