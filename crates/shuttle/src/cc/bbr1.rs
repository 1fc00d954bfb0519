//! `bbr1`: rate from the measured bandwidth, window from the measured round trip
//! (draft-cardwell-iccrg-bbr-congestion-control-00). As published, for comparison: losses have no
//! effect.

use std::collections::VecDeque;

use super::controller::{Acked, Controller, Lost, Params, Saved, Sent, Spurious};
use super::rate::{SECOND_NS, bits_per_second, octets_in};

/// 2/ln 2: doubles the rate in each round (section 4.1.1).
const HIGH_GAIN: f64 = 2.885;
/// Pacing gains of ProbeBW, one a round trip (section 4.3.4).
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window in bandwidth-delay products (section 4.2.3).
const WINDOW_GAIN: f64 = 2.0;
/// Length of the bandwidth filter in round trips (section 4.1.1).
const BANDWIDTH_ROUNDS: u64 = 10;
/// Memory of the smallest round trip, 10 s (section 4.3.5).
const MIN_RTT_NS: u64 = 10 * SECOND_NS;
/// Length of ProbeRTT, 200 ms (section 4.3.5).
const PROBE_RTT_NS: u64 = 200_000_000;
/// Least window in datagrams, and that of ProbeRTT (section 4.2.3).
const MIN_DATAGRAMS: u64 = 4;
/// Initial window in datagrams (RFC 6928).
const INITIAL_DATAGRAMS: u64 = 10;
/// Start-up ends when the bandwidth grew by less than 25 % in this many rounds.
const FULL_GROWTH: f64 = 1.25;
/// Rounds without that growth: a round or two may have lacked data.
const FULL_ROUNDS: u32 = 3;
/// Assumed round trip before one is known, 1 ms (section 4.2.1).
const UNKNOWN_RTT_NS: u64 = 1_000_000;

#[derive(Clone, Copy, Debug, PartialEq)]
enum BbrMode {
    Startup,
    Drain,
    ProbeBw,
    /// Ends at this time, once it is known.
    ProbeRtt(Option<u64>),
}

/// The BBR controller, version 1.
#[derive(Debug)]
pub struct Bbr1 {
    mode: BbrMode,
    /// Largest rates of recent rounds in falling order, in bits per second, each with its round.
    bandwidths: VecDeque<(u64, u64)>,
    round: u64,
    round_ends_at: u64,
    min_rtt_ns: Option<u64>,
    min_rtt_at_ns: u64,
    full_bps: f64,
    full_rounds: u32,
    is_full: bool,
    phase: usize,
    phase_at_ns: u64,
    window: u64,
    window_before_probe: u64,
    lost_in_phase: bool,
    random: u64,
    params: Params,
}

impl Bbr1 {
    /// A controller at start-up.
    pub fn new(params: &Params) -> Self {
        Self {
            mode: BbrMode::Startup,
            bandwidths: VecDeque::new(),
            round: 0,
            round_ends_at: 0,
            min_rtt_ns: None,
            min_rtt_at_ns: 0,
            full_bps: 0.0,
            full_rounds: 0,
            is_full: false,
            phase: 0,
            phase_at_ns: 0,
            window: INITIAL_DATAGRAMS * u64::from(params.datagram_octets),
            window_before_probe: 0,
            lost_in_phase: false,
            random: params.seed,
            params: params.clone(),
        }
    }

    fn bandwidth_bps(&self) -> u64 {
        let measured = self.bandwidths.front().map(|(_, rate_bps)| *rate_bps);
        measured.or(self.params.initial_rate_bps).unwrap_or_else(|| {
            bits_per_second(self.window, self.min_rtt_ns.unwrap_or(UNKNOWN_RTT_NS))
        })
    }

    /// Bandwidth-delay product times `gain`, in bytes.
    fn bdp(&self, gain: f64) -> u64 {
        let Some(min_rtt_ns) = self.min_rtt_ns.filter(|_| !self.bandwidths.is_empty()) else {
            return INITIAL_DATAGRAMS * u64::from(self.params.datagram_octets);
        };
        (octets_in(self.bandwidth_bps(), min_rtt_ns) as f64 * gain) as u64
    }

    fn gains(&self) -> (f64, f64) {
        match self.mode {
            BbrMode::Startup => (HIGH_GAIN, HIGH_GAIN),
            BbrMode::Drain => (1.0 / HIGH_GAIN, HIGH_GAIN),
            BbrMode::ProbeBw => (CYCLE[self.phase], WINDOW_GAIN),
            BbrMode::ProbeRtt(_) => (1.0, 1.0),
        }
    }

    /// Updates the model by a sample; returns whether a round ended.
    fn measure(&mut self, acked: &Acked) -> bool {
        let Some(rate) = acked.rate else { return false };
        let new_round = rate.prior_delivered_octets >= self.round_ends_at;
        if new_round {
            self.round += 1;
            self.round_ends_at = acked.delivered_octets;
        }
        let rate_bps = rate.rate_bps();
        if !rate.app_limited || rate_bps >= self.bandwidth_bps() {
            while self.bandwidths.back().is_some_and(|(_, older)| *older <= rate_bps) {
                self.bandwidths.pop_back();
            }
            self.bandwidths.push_back((self.round, rate_bps));
        }
        let oldest = self.round.saturating_sub(BANDWIDTH_ROUNDS);
        while self.bandwidths.len() > 1 && self.bandwidths[0].0 < oldest {
            self.bandwidths.pop_front();
        }
        if new_round && !self.is_full && !rate.app_limited {
            self.check_full();
        }
        new_round
    }

    fn check_full(&mut self) {
        let now_bps = self.bandwidth_bps() as f64;
        if now_bps >= self.full_bps * FULL_GROWTH {
            (self.full_bps, self.full_rounds) = (now_bps, 0);
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn change_mode(&mut self, acked: &Acked, new_round: bool) {
        let in_flight = acked.in_flight_octets;
        match self.mode {
            BbrMode::Startup if self.is_full => self.mode = BbrMode::Drain,
            BbrMode::Drain if in_flight <= self.bdp(1.0) => self.begin_cycle(acked.now_ns),
            BbrMode::ProbeBw => self.next_phase(acked),
            BbrMode::ProbeRtt(until) => self.probe_rtt(acked, until, new_round),
            _ => {}
        }
    }

    /// Starts the gain cycle at a random phase other than draining (section 4.3.4.3).
    fn begin_cycle(&mut self, now_ns: u64) {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.mode = BbrMode::ProbeBw;
        self.phase = [0, 2, 3, 4, 5, 6, 7][(self.random >> 33) as usize % 7];
        self.phase_at_ns = now_ns;
        self.lost_in_phase = false;
    }

    fn next_phase(&mut self, acked: &Acked) {
        let elapsed = acked.now_ns - self.phase_at_ns > self.min_rtt_ns.unwrap_or(UNKNOWN_RTT_NS);
        let gain = CYCLE[self.phase];
        let before = acked.in_flight_octets + acked.octets;
        let over = if gain > 1.0 {
            elapsed && (self.lost_in_phase || before >= self.bdp(gain))
        } else if gain < 1.0 {
            elapsed || before <= self.bdp(1.0)
        } else {
            elapsed
        };
        if over {
            self.phase = (self.phase + 1) % CYCLE.len();
            self.phase_at_ns = acked.now_ns;
            self.lost_in_phase = false;
        }
    }

    /// Holds the window at four packets for 200 ms, then returns (section 4.3.5).
    fn probe_rtt(&mut self, acked: &Acked, until: Option<u64>, new_round: bool) {
        let small = self.min_window();
        match until {
            None if acked.in_flight_octets <= small => {
                self.mode = BbrMode::ProbeRtt(Some(acked.now_ns + PROBE_RTT_NS));
            }
            Some(until_ns) if acked.now_ns >= until_ns && new_round => {
                self.min_rtt_at_ns = acked.now_ns;
                self.window = self.window.max(self.window_before_probe);
                if self.is_full {
                    self.begin_cycle(acked.now_ns);
                } else {
                    self.mode = BbrMode::Startup;
                }
            }
            _ => {}
        }
    }

    fn update_min_rtt(&mut self, acked: &Acked) {
        let Some(rtt) = acked.rtt else { return };
        let expired = acked.now_ns > self.min_rtt_at_ns + MIN_RTT_NS;
        if expired || self.min_rtt_ns.is_none_or(|min_ns| rtt.latest_ns <= min_ns) {
            self.min_rtt_ns = Some(rtt.latest_ns);
            self.min_rtt_at_ns = acked.now_ns;
        }
        if expired && !matches!(self.mode, BbrMode::ProbeRtt(_)) {
            self.window_before_probe = self.window;
            self.mode = BbrMode::ProbeRtt(None);
        }
    }

    fn min_window(&self) -> u64 {
        MIN_DATAGRAMS * u64::from(self.params.datagram_octets)
    }

    /// Window (section 4.2.3). Three bursts are added for bursts and aggregated acknowledgements.
    fn update_window(&mut self, acked: &Acked) {
        // A burst of the pacer: what leaves in a millisecond, and no more than one call takes.
        let quantum = octets_in(self.pacing_rate_bps(), 1_000_000).min(64_000);
        let target = self.bdp(self.gains().1) + 3 * quantum;
        if self.is_full {
            self.window = (self.window + acked.octets).min(target);
        } else if self.window < target || acked.delivered_octets < self.window {
            self.window += acked.octets;
        }
        self.window = self.window.max(self.min_window());
    }
}

impl Controller for Bbr1 {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, acked: &Acked) {
        let new_round = self.measure(acked);
        self.change_mode(acked, new_round);
        self.update_min_rtt(acked);
        self.update_window(acked);
    }

    fn on_lost(&mut self, _: &Lost) {
        self.lost_in_phase = true;
    }

    fn on_spurious(&mut self, _: &Spurious) {}

    fn on_path_changed(&mut self, _: u64, saved: Option<Saved>) {
        let mut params = self.params.clone();
        params.seed = self.random;
        params.initial_rate_bps = saved.map(|saved| saved.rate_bps / 2);
        *self = Self::new(&params);
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        self.params.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        let rate = (self.bandwidth_bps() as f64 * self.gains().0) as u64;
        rate.clamp(self.params.min_rate_bps, self.params.max_rate_bps)
    }

    fn window_octets(&self) -> u64 {
        match self.mode {
            BbrMode::ProbeRtt(_) => self.min_window(),
            _ => self.window,
        }
    }

    fn saved(&self) -> Option<Saved> {
        let (_, rate_bps) = *self.bandwidths.front().filter(|_| self.is_full)?;
        Some(Saved { rate_bps, min_rtt_ns: self.min_rtt_ns? })
    }

    fn name(&self) -> &'static str {
        "bbr1"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::controller::{RateSample, Rtt};

    const RTT_NS: u64 = 40_000_000;
    const RATE_BPS: u64 = 100_000_000;
    const BDP: u64 = RATE_BPS / 8 / 25;

    /// A controller and a path, of which each round brings one acknowledgement.
    struct Path {
        bbr: Bbr1,
        now_ns: u64,
        delivered: u64,
        in_flight: u64,
    }

    impl Path {
        fn new() -> Self {
            let params = Params { datagram_octets: 1250, seed: 7, ..Params::default() };
            Self { bbr: Bbr1::new(&params), now_ns: SECOND_NS, delivered: 0, in_flight: 2 * BDP }
        }

        /// A round in which `rate_bps` arrives, as much as the application had or less.
        fn round(&mut self, rate_bps: u64, app_limited: bool) {
            let (octets, prior) = (octets_in(rate_bps, RTT_NS), self.delivered);
            self.delivered += octets;
            self.acknowledge(RTT_NS + 1, octets, prior, app_limited);
        }

        /// An acknowledgement of what was sent when `prior` bytes were delivered.
        fn acknowledge(&mut self, after_ns: u64, octets: u64, prior: u64, app_limited: bool) {
            self.now_ns += after_ns;
            let rtt = Rtt { latest_ns: RTT_NS, smoothed_ns: RTT_NS, var_ns: 0, min_ns: RTT_NS };
            self.bbr.on_acked(&Acked {
                now_ns: self.now_ns,
                packets: 1,
                octets,
                lost_packets: 0,
                lost_octets: 0,
                sent_ns: self.now_ns - RTT_NS,
                rtt: Some(rtt),
                one_way_ns: 0,
                rate: Some(RateSample {
                    delivered_octets: octets,
                    interval_ns: RTT_NS,
                    prior_delivered_octets: prior,
                    app_limited,
                }),
                delivered_octets: self.delivered,
                in_flight_octets: self.in_flight,
            });
        }

        fn lose(&mut self) {
            self.bbr.on_lost(&Lost {
                now_ns: self.now_ns,
                sent_ns: self.now_ns,
                packets: 1,
                octets: 1250,
                prior_delivered_octets: 0,
                in_flight_octets: 0,
            });
        }

        /// Pacing rate in hundredths of the bandwidth.
        fn gain(&self) -> u64 {
            (self.bbr.pacing_rate_bps() * 100).div_ceil(self.bbr.bandwidth_bps())
        }

        /// A path on which start-up is over and its queue gone.
        fn steady() -> Self {
            let mut path = Self::new();
            (0..4).for_each(|_| path.round(RATE_BPS, false));
            path.in_flight = BDP;
            path.round(RATE_BPS, false);
            assert_eq!(path.bbr.mode, BbrMode::ProbeBw);
            path
        }
    }

    #[test]
    fn start_up_ends_after_three_rounds_that_had_data_and_did_not_grow() {
        let mut path = Path::new();
        for rate_bps in [RATE_BPS / 2, RATE_BPS * 4 / 5, RATE_BPS] {
            path.round(rate_bps, false);
            assert_eq!(path.gain(), 289);
        }
        // Less than a quarter more is no growth.
        for (percent, app_limited) in (101..).zip([false, true, true, true, false]) {
            path.round(RATE_BPS / 100 * percent, app_limited);
            assert_eq!(path.gain(), 289);
        }
        path.round(RATE_BPS, false);
        assert_eq!(path.gain(), 35, "1/2.885 drains the queue of start-up");
        path.round(RATE_BPS, false);
        assert_eq!(path.gain(), 35, "until it is gone");
        path.in_flight = BDP;
        path.round(RATE_BPS, false);
        assert_eq!(path.bbr.mode, BbrMode::ProbeBw);
        // Three bursts of a millisecond, at the gain of the phase, are added.
        let burst = octets_in(path.bbr.pacing_rate_bps(), 1_000_000);
        (0..20).for_each(|_| path.round(RATE_BPS, false));
        let window = path.bbr.window_octets();
        assert!(window >= 2 * BDP + 2 * burst && window <= 2 * BDP + 4 * burst, "{window}");
    }

    #[test]
    fn the_bandwidth_is_the_largest_of_ten_rounds_and_of_those_that_had_data() {
        let mut path = Path::steady();
        for _ in 0..20 {
            path.round(RATE_BPS / 2, true);
            assert_eq!(path.bbr.bandwidth_bps(), RATE_BPS, "the application had no more");
        }
        path.round(RATE_BPS * 2, true);
        assert_eq!(path.bbr.bandwidth_bps(), RATE_BPS * 2, "more than it is more in any case");
        for _ in 0..10 {
            path.round(RATE_BPS / 2, false);
            assert_eq!(path.bbr.bandwidth_bps(), RATE_BPS * 2);
        }
        path.round(RATE_BPS / 2, false);
        assert_eq!(path.bbr.bandwidth_bps(), RATE_BPS / 2);
    }

    #[test]
    fn a_cycle_probes_drains_and_keeps_the_rate() {
        let mut path = Path::steady();
        // More is in flight than the bandwidth-delay product, and enough for a probe to end.
        path.in_flight = 2 * BDP;
        while path.gain() != 125 {
            path.round(RATE_BPS, false);
        }
        let mut gains = Vec::new();
        for _ in 0..16 {
            gains.push(path.gain());
            path.round(RATE_BPS, false);
        }
        let cycle = [125, 75, 100, 100, 100, 100, 100, 100];
        assert_eq!(gains, [cycle, cycle].concat());
    }

    /// Section 4.3.4: more than the rate until it is in flight, less until the queue is gone.
    #[test]
    fn what_is_in_flight_ends_a_probe_and_its_drain_and_nothing_else() {
        let mut path = Path::steady();
        path.in_flight = BDP;
        while path.gain() != 125 {
            path.round(RATE_BPS, false);
        }
        let acknowledge = |path: &mut Path, after_ns, in_flight| {
            path.in_flight = in_flight;
            path.delivered += 1250;
            path.acknowledge(after_ns, 1250, path.delivered - 1250, true);
            path.gain()
        };
        assert_eq!(acknowledge(&mut path, 2 * RTT_NS, BDP), 125, "the probe has not begun");
        assert_eq!(acknowledge(&mut path, 0, BDP * 5 / 4 - 1250), 75);
        assert_eq!(acknowledge(&mut path, RTT_NS / 4, BDP * 5 / 4), 75);
        assert_eq!(acknowledge(&mut path, 0, BDP - 1250), 100);
        assert_eq!(acknowledge(&mut path, RTT_NS, 0), 100);
        assert_eq!(path.bbr.phase, 2, "it lasts for a round trip");
        acknowledge(&mut path, 1, 0);
        assert_eq!(path.bbr.phase, 3);
        // A loss ends a probe as well.
        while path.gain() != 125 {
            path.round(RATE_BPS, false);
        }
        path.lose();
        assert_eq!(acknowledge(&mut path, RTT_NS / 2, 0), 125);
        assert_eq!(acknowledge(&mut path, RTT_NS, 0), 75);
    }

    #[test]
    fn the_least_window_follows_the_datagram_size() {
        let mut path = Path::steady();
        path.bbr.on_datagram_octets(9000);
        path.bbr.mode = BbrMode::ProbeRtt(None);
        assert_eq!(path.bbr.window_octets(), 4 * 9000);
    }

    #[test]
    fn cycles_of_different_flows_begin_apart_and_never_by_draining() {
        let mut begun = [0; CYCLE.len()];
        for seed in 0..200 {
            let mut bbr = Bbr1::new(&Params { seed, ..Params::default() });
            (0..4).for_each(|_| bbr.begin_cycle(0));
            begun[bbr.phase] += 1;
        }
        assert_eq!(begun[1], 0, "{begun:?}");
        assert_eq!(begun.iter().filter(|times| **times > 10).count(), 7, "{begun:?}");
    }

    #[test]
    fn the_round_trip_is_probed_with_four_datagrams_for_200_ms_and_a_round() {
        let mut path = Path::steady();
        (0..20).for_each(|_| path.round(RATE_BPS, false));
        let (before, begun_ns) = (path.bbr.window_octets(), path.now_ns);
        path.bbr.min_rtt_ns = Some(RTT_NS - 1);
        path.bbr.min_rtt_at_ns = begun_ns;
        while !matches!(path.bbr.mode, BbrMode::ProbeRtt(_)) {
            path.round(RATE_BPS, false);
        }
        let aged_ns = path.now_ns - begun_ns;
        assert!((10 * SECOND_NS..11 * SECOND_NS).contains(&aged_ns), "{aged_ns}");
        assert_eq!(path.bbr.window_octets(), 4 * 1250);
        assert_eq!(path.bbr.min_rtt_ns, Some(RTT_NS));
        let prior = path.delivered;
        path.acknowledge(SECOND_NS, 1250, prior, false);
        assert_eq!(path.bbr.window_octets(), 4 * 1250, "more than these are in flight");
        path.in_flight = 4 * 1250;
        path.round(RATE_BPS, false);
        path.acknowledge(199_000_000, 0, path.delivered, true);
        assert_eq!(path.bbr.window_octets(), 4 * 1250);
        path.acknowledge(2_000_000, 0, 0, true);
        assert_eq!(path.bbr.window_octets(), 4 * 1250, "the round is not over");
        path.round(RATE_BPS, false);
        assert_eq!(path.bbr.mode, BbrMode::ProbeBw);
        assert!(path.bbr.window_octets() >= before * 9 / 10, "{}", path.bbr.window_octets());
    }

    /// What was measured once start-up is over is worth saving; another connection trusts half.
    #[test]
    fn a_path_begins_at_half_of_what_was_saved_of_it() {
        let mut path = Path::new();
        path.round(RATE_BPS, false);
        assert_eq!(path.bbr.saved(), None, "start-up goes on");
        let mut path = Path::steady();
        let saved = Saved { rate_bps: RATE_BPS, min_rtt_ns: RTT_NS };
        assert_eq!(path.bbr.saved(), Some(saved));
        path.bbr.on_path_changed(path.now_ns, Some(saved));
        assert_eq!((path.bbr.mode, path.bbr.bandwidth_bps()), (BbrMode::Startup, RATE_BPS / 2));
        assert_eq!(path.bbr.saved(), None);
        let mut path = Path::steady();
        path.bbr.on_path_changed(path.now_ns, None);
        let fresh = Bbr1::new(&path.bbr.params);
        assert_eq!(path.bbr.pacing_rate_bps(), fresh.pacing_rate_bps());
        assert_eq!(path.bbr.window_octets(), fresh.window_octets());
    }
}
