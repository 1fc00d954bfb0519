//! Path model: rate, round trip, rounds, and what counts as a queue.

use super::arrival::{ArrivalClock, Instant};
use super::wander::FloorWander;
use crate::cc::controller::{Acked, RateSample};
use crate::cc::max_filter::MaxFilter;
use crate::cc::rate::{octets_in, time_for_ns};

/// Length of the rate's maximum filter in probe cycles: the probe before the last still counts.
const BW_CYCLES: u64 = 2;
/// Part of the smallest round trip within which another one confirms it: timers and interrupts take
/// as long.
const CONFIRMS_RTT_PART: u64 = 64;
/// Age at which the smallest round trip is measured anew, 10 s, as in BBR.
const MIN_RTT_AGE_NS: u64 = 10_000_000_000;
/// Part of the smallest round trip that counts as a queue, within limits: 4.4 ms of 70 ms
/// (`fairness`, `coexistence`).
const QUEUE_RTT_PART: u64 = 16;
/// Least queue that counts, 1 ms: below it are timers and interrupts.
const QUEUE_NS_MIN: u64 = 1_000_000;
/// Least queue that counts on long paths, 8 ms: more would fill buffers for no gain.
const QUEUE_NS_MAX: u64 = 8_000_000;
/// Packets whose transmission time it is at least: the first excess of a probe is no queue.
const QUEUE_PACKETS: u64 = 4;
/// Times the path's own jitter that it is at least (`real-paths`, `bunch=10ms`).
const QUEUE_UNRESTS: u64 = 6;
/// Round trips of a round from which that is 8 ms at most: the least of as many has little jitter
/// (`real-paths`, `bunch=8ms`: 2.9 % dropped without, 0.1 % with it).
const ROUND_SAMPLES: u32 = 8;
/// Part of the jitter estimate by which a sample moves it, up or down: a median, by the samples of
/// a round or two.
const UNREST_GAIN_PART: u64 = 32;
/// Least step by which the estimate rises, 10 µs: it begins at 0.
const UNREST_STEP_NS_MIN: u64 = 10_000;
/// Lateness of acknowledgements that counts, or a round trip if that is longer: 20 ms, more than
/// one bunch of a wireless link (`matrix`, `8ms 100mbit back:bunch=15ms`).
const LATE_NS_MAX: u64 = 20_000_000;
/// Part of the lateness of acknowledgements by which it shrinks in a round with less: half of it is
/// left after 22 rounds.
const LATE_FADE_PART: u64 = 32;
/// Rounds over which the spread of round trips is averaged.
const SPREAD_GAIN_PART: u64 = 8;
/// Spreads that the window holds besides: jitter in order delays all packets by most of its span
/// (`real-paths`, `jitter=10ms` and `30ms`).
const SLACK_SPREADS: f64 = 1.5;
/// Window beyond the bandwidth-delay product for aggregated acknowledgements, 1.5 ms at the rate:
/// longer than their interval of 1 ms.
const ACK_SLACK_NS: u64 = 1_500_000;

/// Totals of a round: the time between a packet's sending and its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Round {
    /// Smallest round trip of the round: a standing queue shows even there.
    pub floor_rtt_ns: u64,
    /// Packets acknowledged.
    pub acked: u64,
    /// Packets lost, of those sent since the last reaction.
    pub lost: u64,
    /// Bytes delivered.
    pub octets: u64,
    /// Bytes sent.
    pub sent_octets: u64,
    /// Duration in nanoseconds.
    pub lasted_ns: u64,
    /// Application-limited: the totals say little about the path.
    pub app_limited: bool,
    /// Round trips: their sum in nanoseconds, and how many.
    pub rtts: (u64, u64),
}

impl Round {
    /// A round in which nothing has happened.
    pub const EMPTY: Self = Self {
        floor_rtt_ns: u64::MAX,
        acked: 0,
        lost: 0,
        octets: 0,
        sent_octets: 0,
        lasted_ns: 0,
        app_limited: false,
        rtts: (0, 0),
    };

    /// By how much the mean round trip exceeds the smallest, in nanoseconds.
    pub fn spread_ns(&self) -> u64 {
        let (sum_ns, count) = self.rtts;
        sum_ns.checked_div(count).map_or(0, |mean_ns| mean_ns.saturating_sub(self.floor_rtt_ns))
    }

    /// A round of one acknowledgement.
    pub fn of(acked: &Acked) -> Self {
        let [acked, lost] = [acked.packets, acked.lost_packets].map(u64::from);
        Self { acked, lost, ..Self::EMPTY }
    }
}

/// The path model.
#[derive(Clone, Debug)]
pub struct Model {
    bw: MaxFilter,
    cycle: u64,
    min_rtt_ns: Option<u64>,
    min_rtt_at_ns: u64,
    /// The last two round trips, and the path's jitter: the median deviation of a round trip from a
    /// linear prediction. A queue grows or drains steadily, while jitter is erratic.
    trail_ns: [u64; 2],
    unrest_ns: u64,
    /// Round trips of the last round, and of this one.
    samples: u32,
    round_samples: u32,
    /// By how much the mean round trip exceeds the smallest, averaged over rounds.
    spread_ns: u64,
    wander: FloorWander,
    /// Smallest one-way delay plus an unknown constant, in nanoseconds.
    min_one_way_ns: Option<i64>,
    arrivals: ArrivalClock,
    /// How long acknowledgements waited on their way back: the most of late, and of this round.
    late_ns: u64,
    round_late_ns: u64,
    /// Packets sent before this do not measure the current rate.
    stale_before_ns: u64,
    round: Round,
    floor_rtt_ns: u64,
    round_began_ns: u64,
    round_end_octets: u64,
}

impl Model {
    /// A model of an unknown path.
    pub fn new() -> Self {
        Self {
            bw: MaxFilter::new(BW_CYCLES),
            cycle: 0,
            min_rtt_ns: None,
            min_rtt_at_ns: 0,
            trail_ns: [0; 2],
            unrest_ns: 0,
            samples: 0,
            round_samples: 0,
            spread_ns: 0,
            wander: FloorWander::default(),
            min_one_way_ns: None,
            arrivals: ArrivalClock::default(),
            late_ns: 0,
            round_late_ns: 0,
            stale_before_ns: 0,
            round: Round::EMPTY,
            floor_rtt_ns: u64::MAX,
            round_began_ns: 0,
            round_end_octets: 0,
        }
    }

    /// Round trip of an acknowledgement less what it was delayed on the way back, in nanoseconds:
    /// `None` if it tells none.
    ///
    /// A queue on the way there lengthens both the round trip and the one-way delay.
    /// Acknowledgements that wait lengthen the round trip alone, and clocks that drift apart the
    /// one-way delay alone. So the smaller of the two excesses counts.
    pub fn forward_rtt_ns(&mut self, acked: &Acked) -> Option<u64> {
        let rtt_ns = acked.rtt?.latest_ns;
        let min_ns = self.min_rtt_ns.map_or(rtt_ns, |min_ns| min_ns.min(rtt_ns));
        let above_ns = rtt_ns - min_ns;
        let one_way_ns = self.min_one_way_ns.get_or_insert(acked.one_way_ns);
        *one_way_ns = (*one_way_ns).min(acked.one_way_ns);
        // What is more than the round trip's excess is drift.
        *one_way_ns = (*one_way_ns).max(acked.one_way_ns.saturating_sub_unsigned(above_ns));
        let forward_ns = min_ns + acked.one_way_ns.abs_diff(*one_way_ns).min(above_ns);
        let late_ns = (acked.now_ns - acked.sent_ns).saturating_sub(forward_ns);
        self.round_late_ns = self.round_late_ns.max(late_ns);
        Some(forward_ns)
    }

    /// Handles an acknowledgement whose round trip, without the delay on the way back, is
    /// `forward_rtt_ns`; returns the round that ends with it, if one does.
    pub fn handle(
        &mut self,
        acked: &Acked,
        forward_rtt_ns: Option<u64>,
        paced_bps: u64,
    ) -> Option<Round> {
        if let Some(rtt_ns) = forward_rtt_ns {
            self.take_rtt(acked.now_ns, rtt_ns);
            let instant = Instant::of(acked);
            self.arrivals.take(instant, self.min_rtt_ns.unwrap_or(0), paced_bps);
        }
        self.round.acked += u64::from(acked.packets);
        self.round.octets += acked.octets;
        let sample = acked.rate?;
        self.round.app_limited |= sample.app_limited;
        if let Some(rate_bps) = self.rate_bps(&sample) {
            let counts = !sample.app_limited || rate_bps > self.bw.max();
            if counts && acked.sent_ns >= self.stale_before_ns {
                self.bw.add(self.cycle, rate_bps);
            }
        }
        if sample.prior_delivered_octets < self.round_end_octets {
            return None;
        }
        self.round_end_octets = acked.delivered_octets;
        Some(self.end_round(acked.now_ns))
    }

    /// Delivery rate by the receiver's clock, or, while that has seen too little of a path of which
    /// nothing is known, by the acknowledgements, which show too much where they come late.
    fn rate_bps(&self, sample: &RateSample) -> Option<u64> {
        let span_ns = self.min_rtt_ns.unwrap_or(0);
        let arrival_bps = self.arrivals.rate_bps(span_ns, self.stale_before_ns);
        let is_new = self.stale_before_ns == 0 || self.bw.max() == 0;
        arrival_bps.or_else(|| is_new.then(|| sample.rate_bps()))
    }

    fn end_round(&mut self, now_ns: u64) -> Round {
        let lasted_ns = now_ns - self.round_began_ns;
        self.round_began_ns = now_ns;
        self.floor_rtt_ns = self.round.floor_rtt_ns;
        self.arrivals.end_round();
        self.samples = std::mem::take(&mut self.round_samples);
        self.learn_late();
        Round { lasted_ns, ..std::mem::replace(&mut self.round, Round::EMPTY) }
    }

    /// Learns how long acknowledgements waited in a round of steady sending.
    fn learn_late(&mut self) {
        let most_ns = self.floor_rtt_ns.max(LATE_NS_MAX);
        let late_ns = std::mem::take(&mut self.round_late_ns).min(most_ns);
        self.late_ns = late_ns.max(self.late_ns - self.late_ns / LATE_FADE_PART);
    }

    /// Counts what was sent.
    pub fn send(&mut self, octets: u64) {
        self.round.sent_octets += octets;
    }

    fn take_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        self.take_unrest(rtt_ns);
        self.round_samples += 1;
        self.round.floor_rtt_ns = self.round.floor_rtt_ns.min(rtt_ns);
        self.round.rtts = (self.round.rtts.0 + rtt_ns, self.round.rtts.1 + 1);
        let min_ns = self.min_rtt_ns.get_or_insert(rtt_ns);
        *min_ns = rtt_ns.min(*min_ns);
        if rtt_ns <= *min_ns + *min_ns / CONFIRMS_RTT_PART {
            self.min_rtt_at_ns = now_ns;
        }
    }

    fn take_unrest(&mut self, rtt_ns: u64) {
        let [first_ns, second_ns] = self.trail_ns;
        self.trail_ns = [second_ns, rtt_ns];
        if first_ns == 0 {
            return;
        }
        let leap_ns = (first_ns + rtt_ns).abs_diff(2 * second_ns);
        let step_ns = self.unrest_ns / UNREST_GAIN_PART;
        self.unrest_ns = match leap_ns > self.unrest_ns {
            true => self.unrest_ns + step_ns.max(UNREST_STEP_NS_MIN),
            false => self.unrest_ns - step_ns,
        };
    }

    /// Counts lost packets; `counts` is false if a reaction covers them.
    pub fn lose(&mut self, packets: u32, counts: bool) {
        self.round.lost += if counts { u64::from(packets) } else { 0 };
    }

    /// Clears the losses of the round.
    pub fn forget_losses(&mut self) {
        self.round.lost = 0;
    }

    /// Removes spurious losses from the round.
    pub fn restore(&mut self, packets: u32) {
        self.round.lost = self.round.lost.saturating_sub(u64::from(packets));
    }

    /// Begins a probe cycle; rates older than the previous cycle expire.
    pub fn begin_cycle(&mut self) {
        self.cycle += 1;
        self.bw.expire(self.cycle);
    }

    /// Sets the rate; nothing delivered of what was sent before `stale_before_ns` raises it.
    pub fn set_bw(&mut self, bw_bps: u64, stale_before_ns: u64) {
        self.bw.reset(self.cycle, bw_bps);
        self.stale_before_ns = stale_before_ns;
        self.round.lost = 0;
    }

    /// Delivery rate in bits per second: maximum of the last probe cycles.
    pub fn bw_bps(&self) -> u64 {
        self.bw.max()
    }

    /// Smallest round trip in nanoseconds, once measured.
    pub fn min_rtt_ns(&self) -> Option<u64> {
        self.min_rtt_ns
    }

    /// Smallest round trip of the last round, in nanoseconds.
    pub fn floor_rtt_ns(&self) -> u64 {
        self.floor_rtt_ns
    }

    /// Whether the smallest round trip was not confirmed for 10 s.
    pub fn min_rtt_is_old(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.min_rtt_at_ns) > MIN_RTT_AGE_NS
    }

    /// Replaces the smallest round trip by `rtt_ns`.
    pub fn forget_min_rtt(&mut self, now_ns: u64, rtt_ns: u64) {
        let shift_ns = rtt_ns as i64 - self.min_rtt_ns.unwrap_or(rtt_ns) as i64;
        self.min_one_way_ns = self.min_one_way_ns.map(|min_ns| min_ns.saturating_add(shift_ns));
        (self.min_rtt_ns, self.min_rtt_at_ns) = (Some(rtt_ns), now_ns);
    }

    /// Queueing delay in nanoseconds that counts as a standing queue.
    pub fn queue_ns(&self, datagram_octets: u16) -> u64 {
        let packets = QUEUE_PACKETS * u64::from(datagram_octets);
        let leave_ns = time_for_ns(packets, self.bw.max());
        self.usual_queue_ns().max(leave_ns).max(self.restless_ns())
    }

    fn usual_queue_ns(&self) -> u64 {
        (self.min_rtt_ns.unwrap_or(0) / QUEUE_RTT_PART).clamp(QUEUE_NS_MIN, QUEUE_NS_MAX)
    }

    /// Allowance for jitter in nanoseconds; 0 if it is below what counts as a queue anyway.
    pub fn restless_ns(&self) -> u64 {
        let most_ns = if self.samples < ROUND_SAMPLES { u64::MAX } else { QUEUE_NS_MAX };
        let unrest_ns = (QUEUE_UNRESTS * self.unrest_ns).min(most_ns);
        if unrest_ns > self.usual_queue_ns() { unrest_ns } else { 0 }
    }

    /// How long acknowledgements waited on their way back, in nanoseconds: the most of late.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Learns how unlike round trips are from a round of steady sending.
    pub fn learn_spread(&mut self, round: &Round) {
        self.spread_ns =
            ((SPREAD_GAIN_PART - 1) * self.spread_ns + round.spread_ns()) / SPREAD_GAIN_PART;
    }

    /// By how much the mean round trip exceeds the smallest of its round, in nanoseconds; 0 if it
    /// is below what counts as a queue anyway, as queues of this size are shared, unless delays
    /// are known to vary.
    pub fn spread_ns(&self) -> u64 {
        let counts = self.wander.ns() > 0 || self.spread_ns > self.usual_queue_ns();
        if counts { self.spread_ns } else { 0 }
    }

    /// How far the smallest round trip of a round wanders without a queue, in nanoseconds.
    pub fn wander_ns(&self) -> u64 {
        self.wander.ns()
    }

    /// Whether the path's delays vary, for packets of `datagram_octets`. Of a short path this is
    /// not asked: the least queue that counts is more than chance there.
    pub fn varies(&self, datagram_octets: u16) -> bool {
        let usual_ns = self.usual_queue_ns();
        let leave_ns = time_for_ns(QUEUE_PACKETS * u64::from(datagram_octets), self.bw.max());
        let leaps = QUEUE_UNRESTS * self.unrest_ns > usual_ns;
        usual_ns > QUEUE_NS_MIN && leaps && self.gap_ns() > usual_ns.max(leave_ns)
    }

    /// Learns from a delay that reductions have not changed.
    pub fn learn_wander(&mut self, floor_ns: u64) {
        let min_ns = self.min_rtt_ns.unwrap_or(0);
        self.wander.learn(floor_ns.saturating_sub(min_ns), min_ns);
    }

    /// Forgets that delays vary.
    pub fn forget_wander(&mut self) {
        self.wander = FloorWander::default();
    }

    /// Handles a round for the wander; `is_steady` if neither a probe nor others change the queue.
    pub fn wander_round(&mut self, round: &Round, is_steady: bool, datagram_octets: u16) {
        let (min_ns, varies) = (self.min_rtt_ns.unwrap_or(0), self.varies(datagram_octets));
        self.wander.take_round(round.floor_rtt_ns, min_ns, is_steady, varies);
    }

    /// Time over which rates are measured, or a round trip if that is longer, in nanoseconds.
    pub fn rate_span_ns(&self) -> u64 {
        self.arrivals.span_ns()
    }

    /// Longest gap between arrivals of late, in nanoseconds.
    pub fn gap_ns(&self) -> u64 {
        self.arrivals.gap_ns()
    }

    /// Bandwidth-delay product in bytes.
    pub fn bdp_octets(&self) -> u64 {
        octets_in(self.bw.max(), self.min_rtt_ns.unwrap_or(0))
    }

    /// Window in bytes beyond the bandwidth-delay product, for aggregated acknowledgements and
    /// jitter.
    pub fn slack_octets(&self) -> u64 {
        let late_ns = self.late_ns + self.arrivals.gap_ns();
        let spread_ns = (SLACK_SPREADS * self.spread_ns() as f64) as u64;
        let jitter_ns = self.restless_ns().max(late_ns) + spread_ns + self.wander_ns();
        octets_in(self.bw.max(), ACK_SLACK_NS + jitter_ns)
    }
}

#[cfg(test)]
impl Model {
    /// Delays vary by so much from one packet to the next.
    pub fn set_unrest(&mut self, unrest_ns: u64) {
        self.unrest_ns = unrest_ns;
    }
}

#[cfg(test)]
mod tests;
