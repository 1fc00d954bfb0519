//! `bbr1`: BBR as Linux has it (Cardwell et al., "BBR: Congestion-Based Congestion Control", and
//! draft-cardwell-iccrg-bbr-congestion-control-00), as a yardstick and for networks tuned to it.
//!
//! It paces at the largest rate of delivery of ten rounds and keeps twice that rate's bandwidth-delay
//! product in flight. Losses mean nothing to it.

use super::max_filter::MaxFilter;
use super::{Acked, Controller, Lost, Params, Sent, Spurious, bits_per_second, octets_in};

/// 2 / ln 2, the least gain that doubles the rate each round.
const HIGH_GAIN: f64 = 2.885;
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
const WINDOW_GAIN: f64 = 2.0;
const MARGIN: f64 = 0.99;
const BW_ROUNDS: u64 = 10;
const INITIAL_PACKETS: u64 = 10;
const MIN_PACKETS: u64 = 4;
const MIN_RTT_AGE_NS: u64 = 10_000_000_000;
const PROBE_RTT_NS: u64 = 200_000_000;
/// Growth below this in each of so many rounds means that the pipe is full.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Startup,
    Drain,
    /// Where in [`CYCLE`], and since when.
    ProbeBw(usize, u64),
    /// When it ends, once in flight there is little enough.
    ProbeRtt(Option<u64>),
}

/// The model of the path, and the phase.
#[derive(Clone, Debug)]
pub struct Bbr1 {
    params: Params,
    phase: Phase,
    bw: MaxFilter,
    min_rtt_ns: u64,
    min_rtt_at_ns: u64,
    round: u64,
    round_end_octets: u64,
    full_bw_bps: u64,
    full_rounds: u32,
    is_full: bool,
    window: u64,
    random: u64,
}

impl Bbr1 {
    /// A controller in start-up.
    pub fn new(params: &Params) -> Self {
        Self {
            phase: Phase::Startup,
            bw: MaxFilter::new(BW_ROUNDS),
            min_rtt_ns: u64::MAX,
            min_rtt_at_ns: 0,
            round: 0,
            round_end_octets: 0,
            full_bw_bps: 0,
            full_rounds: 0,
            is_full: false,
            window: INITIAL_PACKETS * u64::from(params.datagram_octets),
            random: params.seed,
            params: params.clone(),
        }
    }

    fn bdp(&self, gain: f64) -> u64 {
        if self.min_rtt_ns == u64::MAX {
            return INITIAL_PACKETS * u64::from(self.params.datagram_octets);
        }
        (octets_in(self.bw.max(), self.min_rtt_ns) as f64 * gain) as u64
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => HIGH_GAIN,
            Phase::Drain => 1.0 / HIGH_GAIN,
            Phase::ProbeBw(at, _) => CYCLE[at],
            Phase::ProbeRtt(_) => 1.0,
        }
    }

    /// Takes a rate into the filter; returns whether a round has begun.
    fn update_model(&mut self, acked: &Acked) -> bool {
        let Some(sample) = acked.rate else { return false };
        let begins = sample.prior_delivered_octets >= self.round_end_octets;
        if begins {
            self.round += 1;
            self.round_end_octets = acked.delivered_octets;
        }
        let rate_bps = sample.rate_bps();
        if !sample.app_limited || rate_bps >= self.bw.max() {
            self.bw.add(self.round, rate_bps);
        }
        if begins && !self.is_full && !sample.app_limited {
            self.check_full();
        }
        begins
    }

    fn check_full(&mut self) {
        if self.bw.max() as f64 >= self.full_bw_bps as f64 * FULL_GROWTH {
            self.full_bw_bps = self.bw.max();
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.is_full = self.full_rounds >= FULL_ROUNDS;
    }

    fn advance(&mut self, acked: &Acked) {
        let now_ns = acked.now_ns;
        if self.phase == Phase::Startup && self.is_full {
            self.phase = Phase::Drain;
        }
        if self.phase == Phase::Drain && acked.in_flight_octets <= self.bdp(1.0) {
            self.begin_cycle(now_ns);
        }
        if let Phase::ProbeBw(at, since_ns) = self.phase {
            let elapsed = now_ns - since_ns > self.min_rtt_ns;
            let inflight = acked.in_flight_octets;
            let next = match CYCLE[at] {
                gain if gain > 1.0 => {
                    elapsed && (acked.lost_packets > 0 || inflight >= self.bdp(gain))
                }
                gain if gain < 1.0 => elapsed || inflight <= self.bdp(1.0),
                _ => elapsed,
            };
            if next {
                self.phase = Phase::ProbeBw((at + 1) % CYCLE.len(), now_ns);
            }
        }
    }

    /// Begins anywhere in the cycle but where it drains.
    fn begin_cycle(&mut self, now_ns: u64) {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (self.random >> 33) as usize % (CYCLE.len() - 1);
        self.phase = Phase::ProbeBw(if at == 0 { 0 } else { at + 1 }, now_ns);
    }

    fn update_min_rtt(&mut self, acked: &Acked) {
        let now_ns = acked.now_ns;
        let expired = now_ns > self.min_rtt_at_ns + MIN_RTT_AGE_NS;
        if let Some(rtt) = acked.rtt
            && (rtt.latest_ns <= self.min_rtt_ns || expired)
        {
            (self.min_rtt_ns, self.min_rtt_at_ns) = (rtt.latest_ns, now_ns);
            if expired && !matches!(self.phase, Phase::ProbeRtt(_)) {
                self.phase = Phase::ProbeRtt(None);
            }
        }
        let least = MIN_PACKETS * u64::from(self.params.datagram_octets);
        match self.phase {
            Phase::ProbeRtt(None) if acked.in_flight_octets <= least => {
                self.phase = Phase::ProbeRtt(Some(now_ns + PROBE_RTT_NS.max(self.min_rtt_ns)));
            }
            Phase::ProbeRtt(Some(end_ns)) if now_ns >= end_ns => {
                self.min_rtt_at_ns = now_ns;
                if self.is_full {
                    self.begin_cycle(now_ns);
                } else {
                    self.phase = Phase::Startup;
                }
                self.window = self.window.max(self.bdp(1.0));
            }
            _ => {}
        }
    }

    fn update_window(&mut self, acked: &Acked) {
        let datagram = u64::from(self.params.datagram_octets);
        let gain = if self.is_full { WINDOW_GAIN } else { HIGH_GAIN };
        let target = self.bdp(gain) + 3 * datagram;
        self.window = match self.phase {
            Phase::ProbeRtt(_) => MIN_PACKETS * datagram,
            _ if self.is_full => (self.window + acked.octets).min(target),
            _ if self.window < target => self.window + acked.octets,
            _ => self.window,
        };
        self.window = self.window.max(MIN_PACKETS * datagram);
    }
}

impl Controller for Bbr1 {
    fn on_sent(&mut self, _: &Sent) {}

    fn on_acked(&mut self, acked: &Acked) {
        self.update_model(acked);
        self.advance(acked);
        self.update_min_rtt(acked);
        self.update_window(acked);
    }

    fn on_lost(&mut self, _: &Lost) {}

    fn on_spurious(&mut self, _: &Spurious) {}

    fn on_path_changed(&mut self, _: u64, _: Option<super::Saved>) {
        *self = Self::new(&self.params);
    }

    fn on_datagram_octets(&mut self, octets: u16) {
        self.params.datagram_octets = octets;
    }

    fn pacing_rate_bps(&self) -> u64 {
        let rate_bps = match self.bw.max() {
            0 => self.params.initial_rate_bps.unwrap_or_else(|| {
                let rtt_ns = if self.min_rtt_ns == u64::MAX { 1_000_000 } else { self.min_rtt_ns };
                (bits_per_second(self.window, rtt_ns) as f64 * HIGH_GAIN) as u64
            }),
            bw => (bw as f64 * self.pacing_gain() * MARGIN) as u64,
        };
        rate_bps.min(self.params.max_rate_bps).max(self.params.min_rate_bps)
    }

    fn window_octets(&self) -> u64 {
        self.window
    }

    fn name(&self) -> &'static str {
        "bbr1"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::{RateSample, Rtt, SECOND_NS};

    const RTT_NS: u64 = 50_000_000;

    /// A round trip of a path that delivers at most `bps`.
    fn round(bbr: &mut Bbr1, number: u64, bps: u64, in_flight_octets: u64) {
        let bps = bps.min(bbr.pacing_rate_bps());
        let octets = octets_in(bps, RTT_NS);
        let prior = bbr.round_end_octets;
        bbr.on_acked(&Acked {
            now_ns: SECOND_NS + number * RTT_NS,
            packets: 1,
            octets,
            lost_packets: 0,
            lost_octets: 0,
            sent_ns: SECOND_NS,
            rtt: Some(Rtt { latest_ns: RTT_NS, smoothed_ns: RTT_NS, var_ns: 0, min_ns: RTT_NS }),
            one_way_ns: 0,
            rate: Some(RateSample {
                delivered_octets: octets,
                interval_ns: RTT_NS,
                prior_delivered_octets: prior,
                app_limited: false,
            }),
            delivered_octets: prior + octets,
            in_flight_octets,
        });
    }

    #[test]
    fn startup_fills_the_pipe_then_drains_and_cycles() {
        let mut bbr = Bbr1::new(&Params::default());
        for number in 0..20 {
            round(&mut bbr, number, 100_000_000, u64::MAX);
        }
        assert_eq!((bbr.phase, bbr.is_full), (Phase::Drain, true));
        round(&mut bbr, 20, 100_000_000, 0);
        assert!(matches!(bbr.phase, Phase::ProbeBw(at, _) if at != 1));
        assert!((bbr.bw.max() as f64 / 1e8 - 1.0).abs() < 0.01, "{}", bbr.bw.max());
        let two_bdp = octets_in(200_000_000, RTT_NS);
        assert!(bbr.window_octets().abs_diff(two_bdp) < 10_000, "{}", bbr.window_octets());
    }

    #[test]
    fn the_rate_is_forgotten_after_ten_rounds() {
        let mut bbr = Bbr1::new(&Params::default());
        (0..20).for_each(|number| round(&mut bbr, number, 100_000_000, 0));
        (20..40).for_each(|number| round(&mut bbr, number, 10_000_000, 0));
        assert!(bbr.bw.max() <= 10_000_000, "{}", bbr.bw.max());
    }

    #[test]
    fn an_old_round_trip_is_measured_again() {
        let mut bbr = Bbr1::new(&Params::default());
        (0..20).for_each(|number| round(&mut bbr, number, 100_000_000, 0));
        bbr.min_rtt_ns = RTT_NS / 2;
        round(&mut bbr, 300, 100_000_000, u64::MAX);
        assert_eq!((bbr.phase, bbr.min_rtt_ns), (Phase::ProbeRtt(None), RTT_NS));
        assert_eq!(bbr.window_octets(), 4800);
    }
}
