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
