//! Start-up (phases Ramp and Drain): each round sends one short flight of four times the last. If a
//! flight is sent faster than the path carries, the spacing of its arrivals, by the receiver's
//! clock, measures the rate long before the path is full. Where arrivals come in bunches, a flight
//! that is too short to show a rate is followed by one that lasts longer, up to a round trip; then
//! what a whole round delivered is the measure. After an outage, and with saved properties, the
//! same from a known rate. App-limited rounds do not count.

use super::arrival::Instant;
use super::guard::OVERLOAD_FACTOR;
use super::model::Round;
use super::{INITIAL_PACKETS, RAMP, Weave, WeavePhase};
use crate::cc::controller::Acked;
use crate::cc::rate::{bits_per_second, octets_in};
use crate::rtt::ack_interval_ns;

/// Bytes of window per byte acknowledged: fourfold each round, so that 100 Gbit/s over 70 ms take
/// seven rounds (`start`).
const RAMP_GROWTH_PER_BYTE: u64 = 3;
/// The same where a flight lasts for more than a quarter of a round trip: twofold, since what is
/// too much is too much for long.
const LONG_RAMP_GROWTH_PER_BYTE: u64 = 1;
/// Factor by which the next flight lasts longer after one that showed no rate, as the window grows.
const STRETCH_FACTOR: u64 = 4;
/// Times as long on arrival as on sending that a flight must last to show a queue of its own.
const STRETCHED_FACTOR: f64 = 1.1;
/// Longest gaps that the arrival of a flight must last to show a rate, and parts of its bytes that
/// one instant may have: otherwise chance decides (`real-paths`, `back:bunch=6ms`: a start without
/// them dropped 73 %, this one nothing).
const TRAIN_GAPS: u64 = 3;
/// The same of the most by which a delay fell.
const TRAIN_FALLS: u64 = 8;
/// Packets of a round that shows so: after an outage one may bring the answer to a probe alone.
const TELLING_PACKETS: u64 = 32;
/// Acknowledgement intervals that measure a rate. A flight lasts as many, so a run of more that
/// show a queue ends Ramp.
const TRAIN_INTERVALS: usize = 4;
/// Least pacing rate of a flight, in windows per round trip.
const RAMP_PACING_GAIN_MIN: f64 = 1.05;
/// Pacing gain of a flight below which it lasts for most of a round trip: what a whole round
/// delivered is the measure then, and flights get no longer.
const LONG_PACING_GAIN: f64 = 2.0;
/// Part of a standing queue from which an acknowledgement of Ramp is queued, and below which its
/// losses are random: a flight is short, so it ends Ramp before the queue counts (`start`).
const RAMP_QUEUE_PART: u64 = 2;
/// Part of a round by which falls of the delay may have made it longer, at most.
const FALL_ROUND_PART: u64 = 2;
/// Growth of the rate below which Ramp ends, 25 %, as in BBR.
const FULL_GROWTH_FACTOR: f64 = 1.25;
/// Rounds without that growth: a round or two may have lacked data.
const FULL_ROUNDS: u32 = 3;
/// Size of the first flight after an outage in flights at the known rate: faster than the path, so
/// that it measures the rate.
const RESUME_RATES: f64 = 3.0;
/// The most of what the path holds at the known rate that such a flight may be.
const RESUME_BDPS_MAX: f64 = 1.25;
/// Rounds in which the queue of Ramp drains, unless other flows share the path.
const DRAIN_ROUNDS: u32 = 2;
/// Part of a standing queue that shows after a round of Drain that it has not drained: half of what
/// ends Ramp.
const DRAIN_QUEUE_PART: u64 = 4;

/// Rate measurement by the acknowledgements of a flight.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Train {
    /// The first instant at which something of the flight arrived, and the newest.
    ends: Option<(Instant, Instant)>,
    /// Instants, and the longest gap between two, in nanoseconds.
    instants: u32,
    gap_ns: u64,
    /// The longest delay so far, plus an unknown constant, and the most by which one fell below it:
    /// a queue of the flight only grows, so what falls is chance. In nanoseconds.
    longest_ns: i64,
    fell_ns: u64,
    /// Bytes of the newest instant, if it is not the first.
    instant_octets: u64,
    /// Most bytes that arrived at one instant after the first.
    most_octets: u64,
    /// Consecutive acknowledgements that showed a queue.
    full: usize,
    /// Rate of sending in the round before, in bits per second.
    sent_bps: u64,
}

impl Train {
    /// No acknowledgement seen.
    pub(super) const EMPTY: Self = Self {
        ends: None,
        instants: 0,
        gap_ns: 0,
        most_octets: 0,
        instant_octets: 0,
        longest_ns: i64::MIN,
        fell_ns: 0,
        full: 0,
        sent_bps: 0,
    };

    /// Adds an acknowledgement.
    fn take(&mut self, instant: Instant) {
        let delay_ns = instant.arrived_ns.saturating_sub_unsigned(instant.sent_ns);
        self.longest_ns = self.longest_ns.max(delay_ns);
        self.fell_ns = self.fell_ns.max(self.longest_ns.abs_diff(delay_ns));
        let Some((first, last)) = &mut self.ends else {
            self.ends = Some((instant, instant));
            self.instants = 1;
            return;
        };
        if instant.arrived_ns < last.arrived_ns {
            return;
        }
        let gap_ns = instant.ns_since(last);
        let octets = instant.delivered_octets - last.delivered_octets;
        if gap_ns > 0 {
            self.instants += 1;
            self.gap_ns = self.gap_ns.max(gap_ns);
            self.instant_octets = 0;
        } else if self.instants == 1 {
            *first = instant;
        }
        if self.instants > 1 {
            self.instant_octets += octets;
            self.most_octets = self.most_octets.max(self.instant_octets);
        }
        *last = instant;
    }

    /// Counts an acknowledgement that shows a queue, or none; `None` if it has no sample.
    fn count(&mut self, is_full: Option<bool>) {
        self.full = match is_full {
            Some(true) => self.full + 1,
            Some(false) => 0,
            None => self.full,
        };
    }

    /// The rate at which the flight arrived, in bits per second, if that can be told.
    pub(super) fn rate_bps(&self) -> Option<u64> {
        let (first, last) = self.ends.as_ref()?;
        let least_ns = (TRAIN_GAPS * self.gap_ns).max(TRAIN_FALLS * self.fell_ns);
        let octets = last.delivered_octets - first.delivered_octets;
        let is_long = last.ns_since(first) >= least_ns && octets >= TRAIN_GAPS * self.most_octets;
        (self.instants as usize > TRAIN_INTERVALS && is_long).then(|| last.rate_since_bps(first))
    }

    /// Whether the flight took longer to arrive than to leave.
    fn is_stretched(&self) -> bool {
        self.ends.as_ref().is_some_and(|(first, last)| {
            let chance_ns = self.fell_ns as f64;
            last.ns_since(first) as f64
                > STRETCHED_FACTOR * last.sent_since_ns(first) as f64 + chance_ns
        })
    }
}

impl Weave {
    /// Pacing gain of a flight over one window per round trip.
    pub(super) fn ramp_pacing(&self) -> f64 {
        let rtt_ns = self.model.min_rtt_ns().or(self.saved_rtt_ns);
        rtt_ns.map_or(RAMP_PACING_GAIN_MIN, |rtt_ns| pacing_over(rtt_ns, self.stretch))
    }

    pub(super) fn on_ramp_ack(&mut self, acked: &Acked) {
        let WeavePhase::Ramp { mut train, full_bps, full_rounds } = self.phase else { return };
        if acked.rate.is_some_and(|sample| sample.app_limited) {
            return;
        }
        let limit_ns = self.queue_ns() / RAMP_QUEUE_PART;
        if acked.rtt.is_some() {
            train.take(Instant::of(acked));
        }
        let is_stretched = train.is_stretched();
        let is_queued =
            acked.rtt.map(|_| is_stretched && self.above_min_ns(self.latest_rtt_ns) > limit_ns);
        let is_losing = self.loss.is_congestion(&Round::of(acked), false);
        train.count(if is_losing { Some(true) } else { is_queued });
        self.phase = WeavePhase::Ramp { train, full_bps, full_rounds };
        if train.full == 0 {
            let is_short = self.ramp_pacing() >= STRETCH_FACTOR as f64;
            let growth = if is_short { RAMP_GROWTH_PER_BYTE } else { LONG_RAMP_GROWTH_PER_BYTE };
            self.window = self.window.saturating_add(growth * acked.octets);
        } else if train.full > TRAIN_INTERVALS && (is_losing || train.rate_bps().is_some()) {
            self.end_ramp(acked.now_ns, train.rate_bps().unwrap_or(0));
        }
    }

    /// Handles the end of a round of Ramp, before the acknowledgement that ended it.
    pub(super) fn on_ramp_round(&mut self, now_ns: u64, round: &Round) {
        let WeavePhase::Ramp { train, full_bps, full_rounds } = self.phase else { return };
        let train_bps = train.rate_bps();
        if self.loss.is_congestion(round, false) {
            return self.end_ramp(now_ns, train_bps.unwrap_or(0));
        }
        if self.above_min_ns(round.floor_rtt_ns) < self.queue_ns() / RAMP_QUEUE_PART {
            self.loss.learn(round);
        }
        if round.app_limited {
            return;
        }
        let sure_ns = round.lasted_ns - train.fell_ns.min(round.lasted_ns / FALL_ROUND_PART);
        let delivered_bps = bits_per_second(round.octets, sure_ns);
        let sent_bps = bits_per_second(round.sent_octets, round.lasted_ns);
        let is_long = self.ramp_pacing() < LONG_PACING_GAIN;
        let tells = round.acked >= TELLING_PACKETS;
        if is_long && tells && train.sent_bps as f64 > OVERLOAD_FACTOR * delivered_bps as f64 {
            return self.end_ramp(now_ns, 0);
        }
        if train_bps.is_none() && train.ends.is_some() && !is_long {
            self.stretch = self.stretch.saturating_mul(STRETCH_FACTOR);
        }
        let train = Train { sent_bps, ..Train::EMPTY };
        let bw_bps = self.model.bw_bps();
        let grows = bw_bps as f64 >= full_bps as f64 * FULL_GROWTH_FACTOR;
        if !grows && full_rounds + 1 >= FULL_ROUNDS {
            return self.end_ramp(now_ns, train_bps.unwrap_or(0));
        }
        self.phase = match grows {
            true => WeavePhase::Ramp { train, full_bps: bw_bps, full_rounds: 0 },
            false => WeavePhase::Ramp { train, full_bps, full_rounds: full_rounds + 1 },
        };
    }

    /// Ends Ramp: the rate is known. Drain sends at most a bandwidth-delay product until a round
    /// shows this flow's share.
    pub(super) fn end_ramp(&mut self, now_ns: u64, train_bps: u64) {
        self.model.set_bw(self.model.bw_bps().max(train_bps), now_ns);
        self.answered_ns = now_ns;
        self.is_cut = true;
        self.phase = WeavePhase::Drain { rounds: 0 };
    }

    /// Handles a round of Drain; the first still reflects Ramp. A standing queue shows other flows
    /// on the path.
    pub(super) fn on_drain_round(&mut self, now_ns: u64, round: &Round, rounds: u32) {
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns() / DRAIN_QUEUE_PART;
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
        let rates = (RESUME_RATES / pacing_over(rtt_ns, self.stretch)).min(RESUME_BDPS_MAX);
        let flight = octets_in(rate_bps, rtt_ns) as f64 * rates;
        self.window = (flight as u64).max(least);
        self.saved_rtt_ns = Some(rtt_ns);
        self.phase = RAMP;
    }
}

/// Pacing gain of a flight on a path of this round trip that lasts `stretch` times as long as
/// usual.
fn pacing_over(rtt_ns: u64, stretch: u64) -> f64 {
    let flight_ns = (TRAIN_INTERVALS as u64 * ack_interval_ns(rtt_ns)).saturating_mul(stretch);
    (rtt_ns as f64 / flight_ns as f64).max(RAMP_PACING_GAIN_MIN)
}
