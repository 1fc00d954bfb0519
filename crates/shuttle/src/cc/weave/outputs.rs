//! The two outputs: pacing rate and window of each phase (`docs/shuttle.md`, "Weave").

use super::probe::RateProbe;
use super::{MIN_PACKETS, Weave, WeavePhase};
use crate::cc::rate::bits_per_second;

/// Pacing gain of `Drain`, `Cruise` and `Refresh`: 1 % below the delivery rate drains queues.
const MARGIN_GAIN: f64 = 0.99;
/// Pacing gain of `Down`: the queue of a probe is gone within two rounds.
const DOWN_GAIN: f64 = 0.8;
/// Pacing gain of `Up` beyond the probe itself: pacing must not be what limits the probe.
const PROBE_PACING_GAIN: f64 = 1.05;
/// Pacing gain of `Up` while competing, as BBR probes.
const COMPETE_GAIN: f64 = 1.25;
/// Window of `Cruise` and `Down` in bandwidth-delay products: room for delayed acknowledgements.
const CRUISE_WINDOW_BDPS: f64 = 1.25;
/// Window while competing between a reaction and the next probe: a queue of 0.3.
const CUT_WINDOW_BDPS: f64 = 1.3;
/// Window while competing: room for a queue of 1.25 bandwidth-delay products (`coexistence`, ten
/// BBRv1: 1.8 and 2 give .31 and .47).
const COMPETE_WINDOW_BDPS: f64 = 2.25;
/// Window of `Refresh`: half a bandwidth-delay product leaves no queue of this flow.
const REFRESH_WINDOW_BDPS: f64 = 0.5;

impl Weave {
    /// Pacing rate in bits per second.
    pub(super) fn paced_bps(&self) -> u64 {
        let rate_bps = match self.phase {
            WeavePhase::Ramp { .. } => {
                bits_per_second(self.window, self.min_rtt_ns()) as f64 * self.ramp_pacing()
            }
            WeavePhase::Trial => self.trial_bps(),
            _ => self.model.bw_bps() as f64 * self.pacing_gain() * self.loss.inflation(),
        };
        (rate_bps as u64).min(self.params.max_rate_bps).max(self.params.min_rate_bps)
    }

    /// Window in bytes.
    pub(super) fn window_of_phase(&self) -> u64 {
        let (bdp, slack) = (self.bdp() as f64, self.model.slack_octets());
        let window = match self.phase {
            WeavePhase::Ramp { .. } => self.window,
            WeavePhase::Drain { .. } => (bdp as u64).saturating_add(slack),
            WeavePhase::Refresh { .. } => (bdp * REFRESH_WINDOW_BDPS) as u64,
            _ if self.competes && self.is_cut => (bdp * CUT_WINDOW_BDPS) as u64,
            _ if self.competes => (bdp * COMPETE_WINDOW_BDPS) as u64,
            WeavePhase::Up(RateProbe { extra, .. }) => (bdp as u64).saturating_add(extra + slack),
            _ => ((bdp * CRUISE_WINDOW_BDPS) as u64).saturating_add(slack),
        };
        window.max(self.least_octets())
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            WeavePhase::Down { .. } => DOWN_GAIN,
            WeavePhase::Up(_) if self.competes => COMPETE_GAIN,
            WeavePhase::Up(probe) => {
                let gain = if self.is_modest(&probe) { 1.0 } else { PROBE_PACING_GAIN };
                gain * (1.0 + probe.extra as f64 / self.bdp().max(1) as f64)
            }
            _ => MARGIN_GAIN,
        }
    }

    fn least_octets(&self) -> u64 {
        MIN_PACKETS * u64::from(self.params.datagram_octets)
    }
}
