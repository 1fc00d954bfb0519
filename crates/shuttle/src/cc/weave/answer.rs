//! Reactions to congestion: excess loss and ECN marks; and exceptions from them: spurious losses
//! and short outages.

use super::model::Round;
use super::{Weave, WeavePhase};
use crate::cc::controller::{Acked, Ecn, Lost, Spurious};
use crate::cc::rate::octets_in;

/// Multiplicative decrease, a factor of the rate: gentler than CUBIC's 0.7, since the rate is
/// measured and not guessed (`coexistence`, `fairness`).
pub(super) const BETA: f64 = 0.8;
/// Part of a round trip from which a gap in arrivals counts as an outage, if most of what the path
/// carries in that time is lost (`outage`).
const GAP_RTT_PART: u64 = 4;
/// Part of what the path carries in a gap that must be lost: more than half is most of it.
const GAP_LOST_PART: u64 = 2;

/// Time and previous rate of a reaction, to undo it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cut {
    pub(super) at_ns: u64,
    pub(super) before_bps: u64,
}

/// Losses since the newest packet that has arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gap {
    first_ns: u64,
    last_ns: u64,
    octets: u64,
}

impl Weave {
    /// Answers a round that lost too much; true if the rate was reduced, and all is done.
    pub(super) fn answer(&mut self, now_ns: u64, round: &Round, is_queued: bool) -> bool {
        if !is_queued && self.trial.depends {
            return self.fit_to_delivered(now_ns, round);
        }
        if !self.competes && self.shorten(now_ns) {
            return false;
        }
        if self.competes && !self.rivals.answers(now_ns) {
            return false;
        }
        self.react(now_ns);
        true
    }

    /// Reacts to congestion, once for everything sent before.
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
        // Packets sent within a round trip of the reaction still meet the old queue.
        if ecn.sent_ns <= self.answered_ns + self.smoothed_rtt_ns {
            return;
        }
        match self.phase {
            // Ramp ends when more is sent than the path carries, and the mark shows that.
            WeavePhase::Ramp { train, .. } => {
                self.end_ramp(ecn.now_ns, train.rate_bps().unwrap_or(0));
            }
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

    /// Ignores the losses of a short outage: the path was interrupted, not congested.
    pub(super) fn pass_gap(&mut self, acked: &Acked) {
        self.arrived_sent_ns = self.arrived_sent_ns.max(acked.sent_ns);
        let Some(gap) = self.gap.take() else { return };
        let lasted_ns = gap.last_ns - gap.first_ns;
        let carried = octets_in(self.model.bw_bps(), lasted_ns);
        if lasted_ns > self.smoothed_rtt_ns / GAP_RTT_PART && gap.octets > carried / GAP_LOST_PART {
            self.answered_ns = self.answered_ns.max(acked.sent_ns);
            self.model.forget_losses();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::rate::SECOND_NS;

    const BW_BPS: u64 = 100_000_000;

    fn weave() -> Weave {
        let mut weave = Weave::new(&crate::cc::Params::default());
        weave.model.set_bw(BW_BPS, 0);
        (weave.smoothed_rtt_ns, weave.answered_ns) = (50_000_000, SECOND_NS);
        weave
    }

    fn mark(weave: &mut Weave, sent_ns: u64) -> bool {
        weave.on_mark(&Ecn { now_ns: 2 * SECOND_NS, packets: 1, sent_ns });
        !matches!(weave.phase, WeavePhase::Ramp { .. })
    }

    #[test]
    fn a_mark_ends_start_up_unless_its_packet_met_the_queue_of_before() {
        let met_ns = SECOND_NS + 50_000_000;
        assert!(!mark(&mut weave(), met_ns));
        assert!(mark(&mut weave(), met_ns + 1));
    }

    #[test]
    fn losses_are_answered_by_a_fifth_unless_they_are_others() {
        let round = Round { lasted_ns: 50_000_000, ..Round::EMPTY };
        let mut alone = weave();
        assert!(alone.answer(2 * SECOND_NS, &round, true));
        assert_eq!(alone.model.bw_bps(), BW_BPS / 5 * 4);
        assert_eq!((alone.answered_ns, alone.is_cut), (2 * SECOND_NS, true));
        // A delay that was taken for the path's of late: now it is others'.
        let mut lengthened = weave();
        let before_ns = 20_000_000;
        lengthened.lengthened = Some(super::super::PathStep { at_ns: SECOND_NS, before_ns });
        assert!(!lengthened.answer(2 * SECOND_NS, &round, true) && lengthened.competes);
        assert_eq!(lengthened.model.bw_bps(), BW_BPS);
        // Losses without a queue that depend on the rate: what was delivered is the rate.
        let mut depends = weave();
        depends.trial.depends = true;
        assert!(depends.answer(2 * SECOND_NS, &round, false));
        assert!(!depends.is_cut, "there is no more to be had soon");
    }
}
