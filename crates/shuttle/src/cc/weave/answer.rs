//! Answers to congestion: losses beyond chance, and marks. And what is none: losses that were
//! mistakes, and a path that was gone for a moment.

use super::{Weave, WeavePhase};
use crate::cc::controller::{Acked, Ecn, Lost, Spurious};
use crate::cc::rate::octets_in;

/// What is left of the rate after congestion.
pub(super) const BETA: f64 = 0.8;
/// A gap in what arrives is an outage if it lasts for this part of a round trip, and what is lost
/// in it is most of what the path carries.
const GAP_PART: u64 = 4;

/// What a reaction took, in case it was wrong.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) at_ns: u64,
    pub(super) before_bps: u64,
}

/// What was lost since the newest packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    first_ns: u64,
    last_ns: u64,
    octets: u64,
}

impl Weave {
    /// Congestion, once for all that was sent before.
    pub(super) fn react(&mut self, now_ns: u64) {
        let before_bps = self.model.bw_bps();
        self.cut = Some(Cut { at_ns: now_ns, before_bps });
        self.answered_ns = now_ns;
        self.is_cut = true;
        self.model.set_bw((before_bps as f64 * BETA) as u64, now_ns + self.smoothed_rtt_ns);
        self.cruise(now_ns);
    }

    pub(super) fn take_back(&mut self, spurious: &Spurious) {
        let is_his = |cut: &Cut| spurious.all && spurious.sent_ns <= cut.at_ns;
        if let Some(cut) = self.cut.take_if(|cut| is_his(cut)) {
            self.model.set_bw(cut.before_bps, cut.at_ns);
        }
    }

    pub(super) fn on_mark(&mut self, ecn: &Ecn) {
        // What leaves before an answer shows still meets the queue that it answers.
        if ecn.sent_ns <= self.answered_ns + self.smoothed_rtt_ns {
            return;
        }
        match self.phase {
            // That more was sent than the path carries is the answer that these ask for.
            WeavePhase::Ramp { train, .. } => self.end_ramp(ecn.now_ns, &train),
            WeavePhase::Up(_) if !self.competes => {
                self.answered_ns = ecn.now_ns;
                self.end_probe(ecn.now_ns);
            }
            _ => self.react(ecn.now_ns),
        }
    }

    pub(super) fn widen_gap(&mut self, lost: &Lost) {
        let Lost { sent_ns, octets, .. } = *lost;
        if sent_ns > self.arrived_sent_ns {
            let empty = Gap { first_ns: sent_ns, last_ns: sent_ns, octets: 0 };
            let gap = self.gap.get_or_insert(empty);
            gap.first_ns = gap.first_ns.min(sent_ns);
            gap.last_ns = gap.last_ns.max(sent_ns);
            gap.octets += octets;
        }
    }

    /// A path that let nothing through for a while was not congested, it was gone.
    pub(super) fn pass_gap(&mut self, acked: &Acked) {
        self.arrived_sent_ns = self.arrived_sent_ns.max(acked.sent_ns);
        let Some(gap) = self.gap.take() else { return };
        let lasted_ns = gap.last_ns - gap.first_ns;
        let carried = octets_in(self.model.bw_bps(), lasted_ns);
        if lasted_ns > self.smoothed_rtt_ns / GAP_PART && gap.octets > carried / 2 {
            self.answered_ns = self.answered_ns.max(acked.sent_ns);
            self.model.forget_losses();
        }
    }
}
