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
        (self.is_cut, self.is_new) = (true, false);
        self.loss.forget_few();
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
            WeavePhase::Up(_) if !self.competes => self.end_probe(ecn.now_ns),
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
        matches!(weave.phase, WeavePhase::Drain { .. })
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
        let mut queued = weave();
        queued.trial.depends = true;
        assert!(queued.answer(2 * SECOND_NS, &round, true));
        assert!(queued.is_cut, "the queue says that it is not the policer's");
    }
    /// Losses between these times of sending, and an acknowledgement of what was sent after; gives
    /// whether they were those of an outage.
    fn gap(lasted_ns: u64, octets: u64) -> bool {
        let mut weave = weave();
        let first_ns = 2 * SECOND_NS;
        for (sent_ns, octets) in [(first_ns, octets), (first_ns + lasted_ns, 0)] {
            weave.widen_gap(&Lost {
                now_ns: first_ns,
                sent_ns,
                packets: 1,
                octets,
                prior_delivered_octets: 0,
                in_flight_octets: 0,
            });
        }
        let sent_ns = first_ns + lasted_ns + 1;
        weave.pass_gap(&Acked {
            now_ns: sent_ns,
            packets: 1,
            octets: 1250,
            sent_ns,
            ..Acked::default()
        });
        assert_eq!(weave.arrived_sent_ns, sent_ns);
        assert!(weave.gap.is_none());
        weave.answered_ns == sent_ns
    }

    #[test]
    fn an_outage_lasts_for_a_quarter_of_a_round_trip_and_loses_most() {
        // A quarter of 50 ms, in which the path carries 156,250 bytes.
        let quarter_ns = 12_500_000;
        assert!(!gap(quarter_ns, 156_250));
        assert!(gap(quarter_ns + 1, 156_250));
        assert!(!gap(2 * quarter_ns, 156_250), "half of what it carries");
        assert!(gap(2 * quarter_ns, 156_251));
    }

    #[test]
    fn what_was_sent_before_the_newest_arrival_is_no_gap() {
        let mut weave = weave();
        weave.arrived_sent_ns = SECOND_NS;
        let lost = |sent_ns| Lost {
            now_ns: 2 * SECOND_NS,
            sent_ns,
            packets: 1,
            octets: 1250,
            prior_delivered_octets: 0,
            in_flight_octets: 0,
        };
        weave.widen_gap(&lost(SECOND_NS));
        assert!(weave.gap.is_none());
        [5, 2, 9].into_iter().for_each(|later_ns| weave.widen_gap(&lost(SECOND_NS + later_ns)));
        let gap = weave.gap.expect("three are lost");
        let (first_ns, last_ns) = (SECOND_NS + 2, SECOND_NS + 9);
        assert_eq!((gap.first_ns, gap.last_ns, gap.octets), (first_ns, last_ns, 3750));
    }

    #[test]
    fn a_reaction_is_undone_if_all_that_caused_it_arrived() {
        let undone = |all, sent_ns| {
            let mut weave = weave();
            weave.react(2 * SECOND_NS);
            let (packets, octets) = (1, 1250);
            weave.take_back(&Spurious { now_ns: 3 * SECOND_NS, sent_ns, packets, octets, all });
            weave.model.bw_bps() == BW_BPS
        };
        assert!(undone(true, 2 * SECOND_NS));
        assert!(!undone(true, 2 * SECOND_NS + 1), "it was sent after the reaction");
        assert!(!undone(false, SECOND_NS));
    }

    #[test]
    fn who_competes_answers_losses_as_its_rivals_do() {
        let round = Round { lasted_ns: 50_000_000, ..Round::EMPTY };
        let mut weave = weave();
        weave.competes = true;
        assert!(weave.answer(2 * SECOND_NS, &round, true));
        assert!(!weave.answer(2 * SECOND_NS, &round, true), "once in ten rounds");
        let mut probing = self::weave();
        (probing.competes, probing.smoothed_rtt_ns) = (true, 0);
        probing.probe();
        probing.on_mark(&Ecn { now_ns: 2 * SECOND_NS, packets: 1, sent_ns: 2 * SECOND_NS });
        assert_eq!(probing.model.bw_bps(), BW_BPS / 5 * 4, "its probe is no excuse");
    }
}
