//! The start: three times as fast each round until a queue shows, and the same from a rate that
//! once was.

use super::model::Round;
use super::{INITIAL_PACKETS, Phase, RAMP, Weave};
use crate::cc::{Acked, octets_in};

/// Added to the window for each octet acknowledged: three times as much each round.
const RAMP_GROWTH: u64 = 2;
/// Round trips in a row that show a queue and end the ramp.
const RAMP_SAMPLES: u32 = 4;
/// The ramp ends when the rate grows by less than this in so many rounds.
const FULL_GROWTH: f64 = 1.25;
const FULL_ROUNDS: u32 = 3;
/// What of a rate that once was is tried at once.
const RESUME_SHARE: f64 = 0.5;

impl Weave {
    pub(super) fn on_ramp_ack(&mut self, acked: &Acked) {
        let Phase::Ramp { mut above, full_bps, full_rounds } = self.phase else { return };
        let limit_ns = self.queue_ns() / 2;
        if let Some(rtt) = acked.rtt {
            above = if self.above_min_ns(rtt.latest_ns) > limit_ns { above + 1 } else { 0 };
        }
        if above >= RAMP_SAMPLES {
            return self.end_ramp(acked.now_ns);
        }
        self.window = self.window.saturating_add(RAMP_GROWTH * acked.octets);
        self.phase = Phase::Ramp { above, full_bps, full_rounds };
    }

    pub(super) fn on_ramp_round(&mut self, now_ns: u64, round: &Round) {
        let Phase::Ramp { above, full_bps, full_rounds } = self.phase else { return };
        if self.loss.is_congestion(round, false) {
            return self.end_ramp(now_ns);
        }
        if self.above_min_ns(round.floor_rtt_ns) < self.queue_ns() / 2 {
            self.loss.learn(round);
        }
        let bw_bps = self.model.bw_bps();
        let grows = bw_bps as f64 >= full_bps as f64 * FULL_GROWTH;
        if !grows && full_rounds + 1 >= FULL_ROUNDS {
            return self.end_ramp(now_ns);
        }
        self.phase = match grows {
            true => Phase::Ramp { above, full_bps: bw_bps, full_rounds: 0 },
            false => Phase::Ramp { above, full_bps, full_rounds: full_rounds + 1 },
        };
    }

    /// What was sent up to now fills the path and more. While that drains the rate shows.
    pub(super) fn end_ramp(&mut self, now_ns: u64) {
        self.answered_ns = now_ns;
        self.phase = Phase::Drain;
    }

    /// Begins again at a share of a rate that once was.
    pub(super) fn resume(&mut self, rate_bps: u64, rtt_ns: u64) {
        let least = INITIAL_PACKETS * u64::from(self.params.datagram_octets);
        self.window = ((octets_in(rate_bps, rtt_ns) as f64 * RESUME_SHARE) as u64).max(least);
        self.phase = RAMP;
    }
}
