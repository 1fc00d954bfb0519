//! Start-up (phases Ramp and Drain): each round sends one short flight of four times the last. If a
//! flight is sent faster than the path carries, the spacing of its arrivals, by the receiver's
//! clock, measures the rate long before the path is full. Where arrivals come in bunches, a flight
//! that is too short to show a rate is followed by one that lasts longer, up to a round trip; then
//! what a whole round delivered is the measure. After an outage, and with saved properties, the
//! same from a known rate. App-limited rounds tell no rate.

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
/// Part of the window that must have been in flight for it to grow where the application limited
/// what was sent: so it stays below five times what the application had in flight.
const FULL_WINDOW_PART: u64 = 2;
/// Growth of the rate below which Ramp ends, 25 %, as in BBR.
const FULL_GROWTH_FACTOR: f64 = 1.25;
/// Rounds without that growth: a round or two may have lacked data.
const FULL_ROUNDS: u32 = 3;
/// Round trips in which an application that fills the path again does so for the same reason: after
/// the window has fallen, flights of twice or four times the last fill it within a few.
const FILLED_RTTS: u64 = 16;
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
        let limit_ns = self.queue_ns() / RAMP_QUEUE_PART;
        let is_losing = self.loss.is_congestion(&Round::of(acked), false);
        if acked.rate.is_some_and(|sample| sample.app_limited) {
            // Who asks before sending much has a first flight that says nothing of the rate.
            let were_in_flight = acked.in_flight_octets + acked.octets + acked.lost_octets;
            let is_full = FULL_WINDOW_PART * were_in_flight >= self.window;
            if is_full && !is_losing && self.above_min_ns(self.latest_rtt_ns) <= limit_ns {
                self.grow(acked);
            }
            return;
        }
        if acked.rtt.is_some() {
            train.take(Instant::of(acked));
        }
        let is_stretched = train.is_stretched();
        let is_queued =
            acked.rtt.map(|_| is_stretched && self.above_min_ns(self.latest_rtt_ns) > limit_ns);
        train.count(if is_losing { Some(true) } else { is_queued });
        self.phase = WeavePhase::Ramp { train, full_bps, full_rounds };
        if train.full == 0 {
            self.grow(acked);
        } else if train.full > TRAIN_INTERVALS && (is_losing || train.rate_bps().is_some()) {
            self.end_ramp(acked.now_ns, train.rate_bps().unwrap_or(0));
            self.is_new = !is_losing;
        }
    }

    fn grow(&mut self, acked: &Acked) {
        let is_short = self.ramp_pacing() >= STRETCH_FACTOR as f64;
        let growth = if is_short { RAMP_GROWTH_PER_BYTE } else { LONG_RAMP_GROWTH_PER_BYTE };
        self.window = self.window.saturating_add(growth * acked.octets);
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
            return self.heed_full_path(now_ns, round);
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

    /// What an application keeps in flight may fill the path although it has no more to send: then
    /// a queue stands for the whole round. The window falls to what the path holds without it, so
    /// that it is the limit and the next flights measure the rate; if the application fills the
    /// path again and again, Ramp ends. Without this, 8 MiB of an application that waits for
    /// completions kept a queue of 46 ms on 70 ms at 600 Mbit/s.
    fn heed_full_path(&mut self, now_ns: u64, round: &Round) {
        let WeavePhase::Ramp { train, full_bps, full_rounds } = self.phase else { return };
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns();
        if !is_queued || round.acked < TELLING_PACKETS {
            return;
        }
        let since_ns = now_ns - std::mem::replace(&mut self.filled_ns, now_ns);
        let full_rounds =
            if since_ns < FILLED_RTTS * self.min_rtt_ns() { full_rounds + 1 } else { 1 };
        if full_rounds >= FULL_ROUNDS {
            return self.end_ramp(now_ns, 0);
        }
        let delivered_bps = bits_per_second(round.octets, round.lasted_ns);
        let least = INITIAL_PACKETS * u64::from(self.params.datagram_octets);
        let holds = octets_in(delivered_bps, self.min_rtt_ns()).max(least);
        self.window = self.window.min(holds);
        self.phase = WeavePhase::Ramp { train, full_bps, full_rounds };
    }

    /// Ends Ramp: the rate is known. Drain sends at most a bandwidth-delay product until a round
    /// shows this flow's share.
    pub(super) fn end_ramp(&mut self, now_ns: u64, train_bps: u64) {
        self.model.set_bw(self.model.bw_bps().max(train_bps), now_ns);
        self.answered_ns = now_ns;
        (self.is_cut, self.is_new) = (true, false);
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
            self.is_new = false;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An instant at this time of arrival and of sending, in microseconds, of a flight of packets.
    fn at(arrived_us: i64, sent_us: u64, packets: u64) -> Instant {
        Instant {
            arrived_ns: arrived_us * 1000,
            sent_ns: sent_us * 1000,
            delivered_octets: packets * 1250,
        }
    }

    /// What a flight of these arrivals tells.
    fn train(instants: &[(i64, u64, u64)]) -> Train {
        let mut train = Train::EMPTY;
        instants
            .iter()
            .for_each(|&(arrived, sent, packets)| train.take(at(arrived, sent, packets)));
        train
    }

    /// A flight that was sent at once, a packet each 100 us, with these arrivals.
    fn rate_bps(arrived_us: &[i64]) -> Option<u64> {
        let instants = arrived_us.iter().zip(0..).map(|(at_us, n)| (*at_us, 100 * n, n + 1));
        train(&instants.collect::<Vec<_>>()).rate_bps()
    }

    #[test]
    fn five_arrivals_that_last_three_gaps_show_a_rate() {
        assert_eq!(rate_bps(&[0, 1000, 2000, 3000]), None);
        assert_eq!(rate_bps(&[0, 1000, 2000, 3000, 4000]), Some(10_000_000));
        assert_eq!(rate_bps(&[0, 1000, 2000, 3000, 4500]), Some(8_888_888), "three gaps");
        assert_eq!(rate_bps(&[0, 1000, 2000, 3000, 4502]), None);
        let late = [0, 1000, 2000, 1950, 3000, 4000, 5000];
        assert_eq!(rate_bps(&late), Some(12_000_000), "one packet overtook another");
    }

    #[test]
    fn a_fall_of_the_delay_shows_that_chance_decides() {
        // Sent and arrived each millisecond, but for the second, which is late.
        let fallen = |late_us: i64| {
            let arrived_us = |n: i64| if n == 1 { 1000 + late_us } else { 1000 * n };
            let instants = (0..=8).map(|n| (arrived_us(n), 1000 * n as u64, n as u64 + 1));
            train(&instants.collect::<Vec<_>>())
        };
        assert_eq!(fallen(1000).rate_bps(), Some(10_000_000), "eight times the fall");
        assert_eq!(fallen(1001).rate_bps(), None);
        assert_eq!(fallen(1001).fell_ns, 1_001_000);
    }

    #[test]
    fn an_instant_may_have_a_third_of_a_flight() {
        let bunch = |first: u64, more: u64| {
            let mut instants = vec![(0, 0, 1)];
            instants.push((1000, 100, 1 + first));
            // Two more at the same instant count with the first.
            instants.push((1000, 200, 1 + first + more));
            (2..=5).for_each(|n| instants.push((n * 1000, 300, 1 + first + more + n as u64 - 1)));
            train(&instants)
        };
        assert_eq!(
            bunch(1, 1).rate_bps(),
            Some(12_000_000),
            "six packets in 5 ms, two at most at once"
        );
        assert_eq!(bunch(1, 1).most_octets, 2 * 1250);
        assert_eq!(bunch(2, 1).rate_bps(), None, "seven packets, three at once");
        // What came with the first is no part of what a time has brought.
        let first = train(&[
            (0, 0, 1),
            (0, 100, 4),
            (1000, 200, 5),
            (2000, 300, 6),
            (3000, 400, 7),
            (4000, 500, 8),
        ]);
        assert_eq!(first.rate_bps(), Some(10_000_000));
    }

    #[test]
    fn a_flight_queues_if_it_arrives_for_a_tenth_longer_than_it_was_sent() {
        assert!(!train(&[(0, 0, 1)]).is_stretched());
        assert!(!train(&[(0, 0, 1), (1100, 1000, 2)]).is_stretched());
        assert!(train(&[(0, 0, 1), (1101, 1000, 2)]).is_stretched());
        // Falls of the delay are allowed for.
        assert!(!train(&[(500, 0, 1), (400, 100, 2), (1300, 600, 3)]).is_stretched());
        let fell = [(500, 0, 1), (800, 500, 2), (1360, 600, 3)];
        assert!(
            !train(&fell).is_stretched()
                && train(&[fell[0], fell[1], (1361, 600, 3)]).is_stretched()
        );
    }

    #[test]
    fn an_acknowledgement_without_a_sample_leaves_the_count() {
        let mut train = Train::EMPTY;
        for (is_full, count) in [(Some(true), 1), (None, 1), (Some(true), 2), (Some(false), 0)] {
            train.count(is_full);
            assert_eq!(train.full, count);
        }
    }

    #[test]
    fn a_known_rate_is_verified_by_three_flights_of_it() {
        let mut weave =
            Weave::new(&crate::cc::Params { datagram_octets: 1250, ..Default::default() });
        // 100 Mbit/s for 64 ms are 800,000 B, of which a flight lasts for a sixteenth.
        weave.resume(100_000_000, 64_000_000);
        let pacing = pacing_over(64_000_000, 1);
        assert_eq!(weave.window, (800_000.0 * (3.0 / pacing)) as u64);
        assert_eq!((weave.saved_rtt_ns, weave.phase), (Some(64_000_000), RAMP));
        weave.stretch = 16;
        weave.resume(100_000_000, 64_000_000);
        assert_eq!(weave.window, 1_000_000, "five quarters of what the path holds");
        weave.resume(1_000_000, 64_000_000);
        assert_eq!(weave.window, INITIAL_PACKETS * 1250);
    }

    #[test]
    fn a_drain_ends_once_the_queue_is_a_quarter_of_one_that_counts() {
        let drained = |above_ns: u64, rounds: u32| {
            let mut weave =
                Weave::new(&crate::cc::Params { datagram_octets: 1250, ..Default::default() });
            weave.model.set_bw(100_000_000, 0);
            weave.model.forget_min_rtt(0, 64_000_000);
            weave.phase = WeavePhase::Drain { rounds: rounds - 1 };
            let round = Round {
                floor_rtt_ns: 64_000_000 + above_ns,
                octets: 400_000,
                lasted_ns: 64_000_000,
                ..Round::EMPTY
            };
            weave.on_drain_round(0, &round, rounds);
            (matches!(weave.phase, WeavePhase::Cruise { .. }), weave.model.bw_bps())
        };
        assert_eq!(drained(1_000_000, 2), (true, 100_000_000));
        assert_eq!(drained(1_000_001, 2), (false, 100_000_000));
        assert_eq!(drained(0, 1), (false, 100_000_000), "it still reflects Ramp");
        assert_eq!(drained(1_000_001, 3), (false, 50_000_000), "others share the path");
    }

    const RTT_NS: u64 = 64_000_000;

    /// Ramp on a path of 64 ms, where a queue of 4 ms counts, at a rate of 100 Mbit/s so far.
    fn ramping(train: Train, full_bps: u64, full_rounds: u32) -> Weave {
        let params = crate::cc::Params { datagram_octets: 1250, ..Default::default() };
        let mut weave = Weave::new(&params);
        weave.model.set_bw(100_000_000, 0);
        weave.model.forget_min_rtt(0, RTT_NS);
        weave.phase = WeavePhase::Ramp { train, full_bps, full_rounds };
        weave
    }

    /// A round of so many packets that delivered 80 Mbit/s.
    fn round(acked: u64) -> Round {
        let (octets, lasted_ns) = (640_000, RTT_NS);
        Round { acked, octets, lasted_ns, floor_rtt_ns: RTT_NS, ..Round::EMPTY }
    }

    #[test]
    fn losses_of_a_ramp_are_random_below_half_of_a_queue() {
        let learnt = |above_ns| {
            let mut weave = ramping(Train::EMPTY, 0, 0);
            let floor_rtt_ns = RTT_NS + above_ns;
            let round = Round { lost: 10, floor_rtt_ns, app_limited: true, ..round(990) };
            weave.on_ramp_round(0, &round);
            weave.loss.random()
        };
        assert_eq!((learnt(1_999_999), learnt(2_000_000)), (0.01, 0.0));
    }

    #[test]
    fn a_long_ramp_ends_once_a_quarter_more_was_sent_than_arrives() {
        let ends = |sent_bps, acked, stretch, fell_ns| {
            let mut weave = ramping(Train { sent_bps, fell_ns, ..Train::EMPTY }, 0, 0);
            weave.stretch = stretch;
            weave.on_ramp_round(0, &round(acked));
            matches!(weave.phase, WeavePhase::Drain { .. })
        };
        assert!(ends(100_000_001, 32, 16, 0) && !ends(100_000_000, 32, 16, 0));
        assert!(!ends(100_000_001, 31, 16, 0), "they are too few to tell");
        assert!(!ends(100_000_001, 32, 1, 0), "a short flight is to be sent faster");
        // Falls of the delay may have made the round longer, by half of it at most.
        assert!(!ends(133_000_000, 32, 16, RTT_NS / 4) && ends(134_000_000, 32, 16, RTT_NS / 4));
        assert!(!ends(200_000_000, 32, 16, RTT_NS) && ends(200_000_001, 32, 16, RTT_NS));
    }

    #[test]
    fn three_rounds_without_a_quarter_more_end_a_ramp() {
        let after = |full_bps, full_rounds| {
            let mut weave = ramping(Train::EMPTY, full_bps, full_rounds);
            weave.on_ramp_round(0, &round(64));
            match weave.phase {
                WeavePhase::Ramp { full_bps, full_rounds, .. } => Some((full_bps, full_rounds)),
                _ => None,
            }
        };
        assert_eq!(after(80_000_000, 2), Some((100_000_000, 0)), "it grows by a quarter");
        assert_eq!(after(80_000_001, 0), Some((80_000_001, 1)));
        assert_eq!(after(80_000_001, 1), Some((80_000_001, 2)));
        assert_eq!(after(80_000_001, 2), None);
    }

    #[test]
    fn a_round_of_a_ramp_keeps_the_rate_of_sending_for_the_next() {
        let mut weave = ramping(Train::EMPTY, 0, 0);
        weave.on_ramp_round(0, &Round { sent_octets: 800_000, ..round(64) });
        let WeavePhase::Ramp { train, .. } = weave.phase else { panic!("{:?}", weave.phase) };
        assert_eq!(train.sent_bps, 100_000_000);
    }
}
