//! `weave`: rate control for long paths that lose packets at random (docs/simulator.md has what it
//! reaches).
//!
//! It sends at the rate that the path delivers, less one part in a hundred so that queues vanish,
//! and more by what the path loses at random. From time to time it asks for a little more, until
//! the queue is a few milliseconds longer, and keeps what it gets; that is the same for every
//! flow at a bottleneck, large or small, while a queue that stands takes from each in proportion,
//! so flows of its kind converge. A queue that does not go although weave yields belongs to flows
//! that fill buffers; then it competes, and answers losses.
//!
//! Phases: Ramp -> Drain -> Cruise -> Up -> Down -> Cruise; Refresh when the smallest round
//! trip has not been seen for ten seconds. Invariant: pacing is the control, and outside
//! Ramp what is in flight is bounded by the product of rate and smallest round trip.

mod answer;
mod loss;
mod model;
mod probe;
mod share;
mod start;

use super::controller::{Acked, Controller, Ecn, Lost, Params, Saved, Sent, Spurious};
use super::rate::{SECOND_NS, bits_per_second, octets_in};
use answer::{Cut, Gap};
use loss::LossFilter;
use model::{Model, Round};
use probe::Probe;
use start::Train;

/// Less than what arrives, so that queues vanish.
const MARGIN: f64 = 0.99;
const INITIAL_PACKETS: u64 = 64;
const MIN_PACKETS: u64 = 4;
/// Round trip over which the first flight is spread before one is known.
const UNKNOWN_RTT_NS: u64 = 30_000_000;
const DOWN_GAIN: f64 = 0.8;
const DOWN_ROUNDS: u32 = 3;
const CRUISE_WINDOW: f64 = 1.25;
const CUT_WINDOW: f64 = 1.3;
const COMPETE_WINDOW: f64 = 2.25;
const COMPETE_GAIN: f64 = 1.25;
const PROBE_NS: u64 = 2 * SECOND_NS;
const PROBE_SPREAD_NS: u64 = SECOND_NS;
const PROBE_PACING: f64 = 1.05;
const REFRESH_NS: u64 = 100_000_000;
const REFRESH_WINDOW: f64 = 0.5;

#[derive(Clone, Copy, Debug, PartialEq)]
enum WeavePhase {
    /// Four times as much each round.
    Ramp { train: Train, full_bps: u64, full_rounds: u32 },
    /// The rate that the ramp found; rounds so far.
    Drain { rounds: u32 },
    /// The rate of the path; rounds so far, the first of which tells of the phase before.
    Cruise { probe_at_ns: u64, rounds: u32 },
    /// A little more.
    Up(Probe),
    /// What the probe queued goes.
    Down { rounds: u32 },
    /// Little in flight, to see the smallest round trip again.
    Refresh { end_ns: Option<u64>, floor_ns: u64 },
}

/// The controller.
#[derive(Clone, Debug)]
pub struct Weave {
    params: Params,
    model: Model,
    loss: LossFilter,
    phase: WeavePhase,
    /// The window of the ramp; in other phases it follows from the model.
    window: u64,
    latest_rtt_ns: u64,
    smoothed_rtt_ns: u64,
    /// Rounds in a row with a queue, or without.
    queued_rounds: u32,
    calm_rounds: u32,
    /// Reductions in a row that should have drained the queue.
    yields: u32,
    competes: bool,
    /// The rate before the first of the reductions that should have drained the queue.
    before_yield_bps: Option<u64>,
    /// The shortest and the longest round trips, each of a round, since it yields.
    standing_ns: Option<(u64, u64)>,
    cut: Option<Cut>,
    /// Losses of what was sent up to then have been answered.
    answered_ns: u64,
    /// No probe has followed the last reaction.
    is_cut: bool,
    is_out: bool,
    /// When the newest packet was sent that has arrived.
    arrived_sent_ns: u64,
    gap: Option<Gap>,
    /// The round trip of the connection that the first flight follows.
    saved_rtt_ns: Option<u64>,
    random: u64,
}

impl Weave {
    /// A controller that begins to ramp up.
    pub fn new(params: &Params) -> Self {
        let datagram = u64::from(params.datagram_octets);
        let wished = params.initial_rate_bps.map(|bps| octets_in(bps, UNKNOWN_RTT_NS));
        Self {
            model: Model::new(),
            loss: LossFilter::default(),
            phase: RAMP,
            window: wished.unwrap_or(0).max(INITIAL_PACKETS * datagram),
            latest_rtt_ns: 0,
            smoothed_rtt_ns: 0,
            queued_rounds: 0,
            calm_rounds: 0,
            yields: 0,
            competes: false,
            before_yield_bps: None,
            standing_ns: None,
            cut: None,
            answered_ns: 0,
            is_cut: false,
            is_out: false,
            arrived_sent_ns: 0,
            gap: None,
            saved_rtt_ns: None,
            random: params.seed ^ 0x9e37_79b9_7f4a_7c15,
            params: params.clone(),
        }
    }

    fn queue_ns(&self) -> u64 {
        self.model.queue_ns(self.params.datagram_octets)
    }

    fn min_rtt_ns(&self) -> u64 {
        self.model.min_rtt_ns().or(self.saved_rtt_ns).unwrap_or(UNKNOWN_RTT_NS)
    }

    /// How much longer than the smallest a round trip is.
    fn above_min_ns(&self, rtt_ns: u64) -> u64 {
        rtt_ns.saturating_sub(self.min_rtt_ns())
    }

    /// The product of rate and smallest round trip, with what is lost on the way.
    fn bdp(&self) -> u64 {
        (self.model.bdp_octets() as f64 * self.loss.inflation()) as u64
    }

    /// What every acknowledgement may end.
    fn on_ack(&mut self, acked: &Acked) {
        let now_ns = acked.now_ns;
        let queue_ns = self.queue_ns();
        let is_limited = acked.rate.is_some_and(|sample| sample.app_limited);
        let above_ns = self.above_min_ns(self.latest_rtt_ns);
        match self.phase {
            WeavePhase::Ramp { .. } => self.on_ramp_ack(acked),
            WeavePhase::Down { .. }
                if acked.in_flight_octets <= self.bdp() || above_ns < queue_ns / 8 =>
            {
                self.cruise(now_ns);
            }
            WeavePhase::Cruise { .. } if self.model.min_rtt_is_old(now_ns) => {
                self.phase = WeavePhase::Refresh { end_ns: None, floor_ns: u64::MAX };
            }
            // A probe that nothing fills would teach nothing.
            WeavePhase::Cruise { probe_at_ns, .. } if now_ns >= probe_at_ns && !is_limited => {
                self.probe();
            }
            WeavePhase::Up(_) if !self.competes && above_ns > queue_ns => self.end_probe(now_ns),
            WeavePhase::Refresh { end_ns, floor_ns } => self.refresh(acked, end_ns, floor_ns),
            _ => {}
        }
    }

    fn cruise(&mut self, now_ns: u64) {
        let wait_ns = PROBE_NS + self.draw(PROBE_SPREAD_NS);
        self.phase = WeavePhase::Cruise { probe_at_ns: now_ns + wait_ns, rounds: 0 };
    }

    fn refresh(&mut self, acked: &Acked, end_ns: Option<u64>, floor_ns: u64) {
        let now_ns = acked.now_ns;
        let few = acked.in_flight_octets <= self.window_octets();
        let end_ns = match end_ns {
            None if few => Some(now_ns + REFRESH_NS.max(self.smoothed_rtt_ns)),
            other => other,
        };
        let floor_ns = acked.rtt.map_or(floor_ns, |rtt| floor_ns.min(rtt.latest_ns));
        self.phase = WeavePhase::Refresh { end_ns, floor_ns };
        if end_ns.is_some_and(|end_ns| now_ns >= end_ns) {
            self.model.forget_min_rtt(now_ns, floor_ns);
            self.cruise(now_ns);
        }
    }

    fn on_round(&mut self, now_ns: u64, round: &Round) {
        if matches!(self.phase, WeavePhase::Ramp { .. }) {
            return self.on_ramp_round(now_ns, round);
        }
        let is_queued = self.above_min_ns(round.floor_rtt_ns) > self.queue_ns();
        let settled = !matches!(self.phase, WeavePhase::Refresh { .. });
        if settled && self.loss.is_congestion(round, is_queued) {
            return self.react(now_ns);
        }
        match self.phase {
            WeavePhase::Up(probe) => self.on_probe_round(now_ns, round, probe),
            WeavePhase::Drain { rounds } => self.on_drain_round(now_ns, round, rounds + 1),
            WeavePhase::Down { rounds } if rounds + 1 >= DOWN_ROUNDS => self.cruise(now_ns),
            WeavePhase::Down { rounds } => self.phase = WeavePhase::Down { rounds: rounds + 1 },
            WeavePhase::Cruise { probe_at_ns, rounds } => {
                self.phase = WeavePhase::Cruise { probe_at_ns, rounds: rounds + 1 };
                // Who sends little has no part in a queue.
                if rounds > 0 && !round.app_limited {
                    self.on_cruise_round(now_ns, round);
                }
            }
            _ => {}
        }
        if !is_queued
            && matches!(
                self.phase,
                WeavePhase::Drain { .. } | WeavePhase::Cruise { .. } | WeavePhase::Down { .. }
            )
        {
            self.loss.learn(round);
        }
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            WeavePhase::Down { .. } => DOWN_GAIN,
            WeavePhase::Up(_) if self.competes => COMPETE_GAIN,
            WeavePhase::Up(Probe { extra, .. }) => {
                PROBE_PACING * (1.0 + extra as f64 / self.bdp().max(1) as f64)
            }
            _ => MARGIN,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        // Marsaglia, "Xorshift RNGs", 2003.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn least_octets(&self) -> u64 {
        MIN_PACKETS * u64::from(self.params.datagram_octets)
    }
}

const RAMP: WeavePhase = WeavePhase::Ramp { train: Train::EMPTY, full_bps: 0, full_rounds: 0 };

impl Controller for Weave {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, acked: &Acked) {
        if let Some(rtt) = acked.rtt {
            (self.latest_rtt_ns, self.smoothed_rtt_ns) = (rtt.latest_ns, rtt.smoothed_ns);
        }
        if std::mem::take(&mut self.is_out) {
            let (bw_bps, rtt_ns) = (self.model.bw_bps(), self.min_rtt_ns());
            self.model.set_bw(0, acked.now_ns);
            self.resume(bw_bps, rtt_ns);
        }
        self.pass_gap(acked);
        let round = self.model.handle(acked);
        self.on_ack(acked);
        if let Some(round) = round {
            self.on_round(acked.now_ns, &round);
        }
    }

    fn on_lost(&mut self, lost: &Lost) {
        self.model.lose(lost.packets, lost.sent_ns > self.answered_ns);
        self.widen_gap(lost);
    }

    fn on_spurious(&mut self, spurious: &Spurious) {
        self.model.restore(spurious.packets);
        self.take_back(spurious);
    }

    fn on_ecn(&mut self, ecn: &Ecn) {
        self.on_mark(ecn);
    }

    fn on_outage(&mut self, _: u64) {
        self.is_out = true;
    }

    fn on_path_changed(&mut self, _: u64, saved: Option<Saved>) {
        *self = Self::new(&self.params);
        if let Some(saved) = saved {
            self.resume(saved.rate_bps, saved.min_rtt_ns);
        }
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        self.params.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        let rate_bps = match self.phase {
            WeavePhase::Ramp { .. } => {
                bits_per_second(self.window, self.min_rtt_ns()) as f64 * self.ramp_pacing()
            }
            _ => self.model.bw_bps() as f64 * self.pacing_gain() * self.loss.inflation(),
        };
        (rate_bps as u64).min(self.params.max_rate_bps).max(self.params.min_rate_bps)
    }

    fn window_octets(&self) -> u64 {
        let (bdp, slack) = (self.bdp() as f64, self.model.slack_octets());
        let window = match self.phase {
            WeavePhase::Ramp { .. } => self.window,
            WeavePhase::Drain { .. } => (bdp as u64).saturating_add(slack),
            WeavePhase::Refresh { .. } => (bdp * REFRESH_WINDOW) as u64,
            _ if self.competes && self.is_cut => (bdp * CUT_WINDOW) as u64,
            _ if self.competes => (bdp * COMPETE_WINDOW) as u64,
            WeavePhase::Up(Probe { extra, .. }) => (bdp as u64).saturating_add(extra + slack),
            _ => ((bdp * CRUISE_WINDOW) as u64).saturating_add(slack),
        };
        window.max(self.least_octets())
    }

    fn saved(&self) -> Option<Saved> {
        let min_rtt_ns = self.model.min_rtt_ns()?;
        let rate_bps = self.model.bw_bps();
        (rate_bps > 0).then_some(Saved { rate_bps, min_rtt_ns })
    }

    fn name(&self) -> &'static str {
        "weave"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::controller::{RateSample, Rtt};

    const RTT_NS: u64 = 70_000_000;
    const RATE_BPS: u64 = 100_000_000;

    /// A controller and a path of [`RATE_BPS`] that answers once a round trip.
    struct Path {
        weave: Weave,
        now_ns: u64,
        delivered: u64,
    }

    impl Path {
        fn new() -> Self {
            let params = Params { datagram_octets: 1250, seed: 3, ..Params::default() };
            Self { weave: Weave::new(&params), now_ns: SECOND_NS, delivered: 0 }
        }

        /// A round trip of a flow that is paced evenly; `queue_ns` of it were spent waiting.
        fn round(&mut self, queue_ns: u64) {
            let rate_bps = self.weave.pacing_rate_bps().min(RATE_BPS);
            let octets = octets_in(rate_bps, RTT_NS).min(self.weave.window_octets());
            let prior = self.delivered;
            self.now_ns += RTT_NS;
            self.acknowledge(octets, prior, queue_ns);
        }

        /// A round trip of a ramp: its flight arrives as fast as it was sent or as the path
        /// carries, an acknowledgement every millisecond.
        fn flight(&mut self) {
            let (window, prior) = (self.weave.window_octets(), self.delivered);
            let sent_bps = self.weave.pacing_rate_bps();
            let step = octets_in(sent_bps.min(RATE_BPS), 1_000_000);
            self.now_ns += RTT_NS;
            let began_ns = self.now_ns;
            while self.delivered < prior + window
                && matches!(self.weave.phase, WeavePhase::Ramp { .. })
            {
                self.now_ns += 1_000_000;
                let arrived_ns = self.now_ns - began_ns;
                let late = 1.0 - RATE_BPS as f64 / sent_bps.max(RATE_BPS) as f64;
                let queue_ns = (arrived_ns as f64 * late) as u64;
                self.acknowledge(step.min(prior + window - self.delivered), prior, queue_ns);
            }
        }

        /// One message of `octets` and its acknowledgement, with nothing else to say.
        fn say(&mut self, octets: u64) {
            let prior = self.delivered;
            self.now_ns += RTT_NS;
            self.tell(octets, prior, 0, true);
        }

        fn mark(&mut self) {
            self.weave.on_ecn(&Ecn { now_ns: self.now_ns, packets: 1, sent_ns: self.now_ns });
        }

        fn acknowledge(&mut self, octets: u64, prior: u64, queue_ns: u64) {
            self.tell(octets, prior, queue_ns, false);
        }

        fn tell(&mut self, octets: u64, prior: u64, queue_ns: u64, app_limited: bool) {
            let rtt_ns = RTT_NS + queue_ns;
            self.delivered += octets;
            self.weave.on_acked(&Acked {
                now_ns: self.now_ns,
                packets: (octets / 1250) as u32,
                octets,
                lost_packets: 0,
                lost_octets: 0,
                sent_ns: self.now_ns - rtt_ns,
                rtt: Some(Rtt {
                    latest_ns: rtt_ns,
                    smoothed_ns: rtt_ns,
                    var_ns: 0,
                    min_ns: RTT_NS,
                }),
                one_way_ns: 0,
                rate: Some(RateSample {
                    delivered_octets: self.delivered - prior,
                    interval_ns: RTT_NS,
                    prior_delivered_octets: prior,
                    app_limited,
                }),
                delivered_octets: self.delivered,
                in_flight_octets: octets,
            });
        }

        fn lose(&mut self, packets: u32) {
            self.weave.on_lost(&Lost {
                now_ns: self.now_ns,
                sent_ns: self.now_ns,
                packets,
                octets: u64::from(packets) * 1250,
                prior_delivered_octets: 0,
                in_flight_octets: 0,
            });
        }

        /// A path that cruises at its rate.
        fn cruising() -> Self {
            let mut path = Self::new();
            (0..5).for_each(|_| path.flight());
            (0..4).for_each(|_| path.round(0));
            assert!(
                matches!(path.weave.phase, WeavePhase::Cruise { .. }),
                "{:?}",
                path.weave.phase
            );
            path
        }
    }

    #[test]
    fn a_flight_that_queues_tells_the_rate_at_once() {
        let mut path = Path::new();
        path.flight();
        assert_eq!(path.weave.window_octets(), 4 * INITIAL_PACKETS * 1250);
        while matches!(path.weave.phase, WeavePhase::Ramp { .. }) {
            path.flight();
        }
        assert!(path.delivered < octets_in(RATE_BPS, RTT_NS), "{}", path.delivered);
        let bw_bps = path.weave.model.bw_bps();
        assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps}");
    }

    #[test]
    fn cruising_stays_below_the_rate_and_makes_up_for_random_loss() {
        let mut path = Path::cruising();
        assert!(path.weave.pacing_rate_bps() < RATE_BPS);
        for _ in 0..20 {
            path.lose(10);
            path.round(0);
        }
        assert!(path.weave.cut.is_none());
        assert!(path.weave.pacing_rate_bps() > RATE_BPS, "{}", path.weave.pacing_rate_bps());
    }

    #[test]
    fn losses_with_a_queue_are_answered_and_taken_back_if_there_were_none() {
        let mut path = Path::cruising();
        let before = path.weave.model.bw_bps();
        path.lose(60);
        path.round(20_000_000);
        let after = path.weave.model.bw_bps();
        assert_eq!(after, (before as f64 * answer::BETA) as u64);
        let spurious =
            Spurious { now_ns: 0, sent_ns: SECOND_NS, packets: 60, octets: 0, all: true };
        path.weave.on_spurious(&spurious);
        assert_eq!(path.weave.model.bw_bps(), before);
    }

    #[test]
    fn a_queue_that_will_not_go_means_competition_and_peace_follows() {
        let mut path = Path::cruising();
        for round in 0..30 {
            path.round(30_000_000 + round % 3 * 2_000_000);
        }
        assert!(path.weave.competes);
        for _ in 0..80 {
            path.round(0);
        }
        assert!(!path.weave.competes, "{:?}", path.weave);
    }

    #[test]
    fn round_trips_that_became_longer_and_stay_the_same_are_no_queue() {
        let mut path = Path::cruising();
        let before_bps = path.weave.model.bw_bps();
        for _ in 0..20 {
            path.round(30_000_000);
        }
        assert!(!path.weave.competes);
        assert_eq!(path.weave.model.min_rtt_ns(), Some(RTT_NS + 30_000_000));
        assert!(path.weave.model.bw_bps() >= before_bps / 10 * 9, "{:?}", path.weave);
    }

    #[test]
    fn round_trips_that_leap_are_no_queue() {
        let mut path = Path::cruising();
        let before_bps = path.weave.model.bw_bps();
        for round in 0..200 {
            path.round([0, 12, 3, 9, 15, 1][round % 6] * 1_000_000);
        }
        assert!(path.weave.model.bw_bps() > before_bps / 10 * 9, "{:?}", path.weave);
    }

    #[test]
    fn an_outage_that_is_over_soon_is_no_congestion() {
        let mut path = Path::cruising();
        let before_bps = path.weave.model.bw_bps();
        for _ in 0..50 {
            path.now_ns += 1_000_000;
            path.lose(10);
        }
        path.round(0);
        path.round(0);
        assert_eq!(path.weave.model.bw_bps(), before_bps);
    }

    #[test]
    fn who_says_little_keeps_on_ramping_when_there_is_more() {
        let mut path = Path::new();
        for _ in 0..100 {
            path.say(100);
        }
        assert!(matches!(path.weave.phase, WeavePhase::Ramp { .. }), "{:?}", path.weave.phase);
        assert_eq!(path.weave.window_octets(), INITIAL_PACKETS * 1250);
        (0..5).for_each(|_| path.flight());
        let bw_bps = path.weave.model.bw_bps();
        assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps}");
    }

    #[test]
    fn marks_end_a_probe_and_take_a_fifth_once_otherwise() {
        let mut path = Path::cruising();
        let before_bps = path.weave.model.bw_bps();
        path.weave.probe();
        path.mark();
        assert!(matches!(path.weave.phase, WeavePhase::Down { .. }), "{:?}", path.weave.phase);
        assert_eq!(path.weave.model.bw_bps(), before_bps);
        (0..4).for_each(|_| path.round(0));
        path.mark();
        path.now_ns += 1_000_000;
        path.mark();
        assert_eq!(path.weave.model.bw_bps(), (before_bps as f64 * answer::BETA) as u64);
    }

    #[test]
    fn after_an_outage_a_flight_finds_the_rate_again() {
        let mut path = Path::cruising();
        path.weave.on_outage(path.now_ns);
        path.now_ns += 2 * SECOND_NS;
        path.round(0);
        assert!(matches!(path.weave.phase, WeavePhase::Ramp { .. }));
        path.flight();
        let bw_bps = path.weave.model.bw_bps();
        assert!(bw_bps.abs_diff(RATE_BPS) < RATE_BPS / 100, "{bw_bps} {:?}", path.weave);
    }

    #[test]
    fn a_probe_counts_what_it_queues_itself() {
        let mut path = Path::cruising();
        let stands_ns = path.weave.queue_ns() / 2;
        path.round(stands_ns);
        path.weave.probe();
        (0..4).for_each(|_| path.round(stands_ns));
        assert!(matches!(path.weave.phase, WeavePhase::Up(_)), "{:?}", path.weave.phase);
        (0..2).for_each(|_| path.round(2 * stands_ns + 100_000));
        assert!(!matches!(path.weave.phase, WeavePhase::Up(_)), "{:?}", path.weave.phase);
    }
}
