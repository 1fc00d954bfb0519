//! Rivals: whether the flows that weave competes with answer losses. CUBIC does: after a loss
//! there is none for many rounds, and the queue shrinks. BBRv1 does not: losses go on whatever
//! weave does, and each reduction is its gain. Beside such flows weave *defies*: it reduces its
//! rate for losses no more, as long as they go on.
//!
//! `coexistence`, one and ten BBRv1 at 1 BDP, has set the constants: .04 and .13 of the rate
//! without them, .35 to .7 with them.

use super::model::Round;
use crate::cc::rate::SECOND_NS;

/// Loss of a round from which it is a lossy one, 1 %: a drop-tail queue that CUBIC overfills takes
/// less.
const LOSSY_SHARE: f64 = 0.01;
/// Rounds over which the part of lossy ones is averaged.
const AVERAGE_ROUNDS: f64 = 16.0;
/// That part from which rivals do not answer losses.
const DEFY_FROM_SHARE: f64 = 0.4;
/// That part down to which weave goes on then.
const DEFY_UNTIL_SHARE: f64 = 0.1;
/// That part that is assumed when nothing was measured: it lasts for 24 rounds without losses.
const ASSUMED_SHARE: f64 = 0.5;
/// Rounds between two reductions: losses that go on so long are not answered.
const CUT_ROUNDS: u32 = 10;
/// Rounds within which a reduction follows the last one if that was in vain.
const VAIN_ROUNDS: u32 = 25;
/// Part of the longest queue since the last reduction that all shorter ones keep to if it was in
/// vain: CUBIC's falls by a third of what is in flight.
const VAIN_QUEUE_SHARE: f64 = 0.6;
/// Reductions in vain after which rivals do not answer losses. With two, eight flows of weave's own
/// took each other for such rivals.
const VAIN_CUTS: u32 = 3;
/// How long rivals are remembered, 15 s: BBRv1 empties the queue each 10 s.
const MEMORY_NS: u64 = 15 * SECOND_NS;

/// What is known of the flows that weave competes with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RivalFilter {
    /// Part of the rounds that lost much.
    lossy: f64,
    defies: bool,
    /// Rounds since the last reduction; `None` before the first.
    since_cut: Option<u32>,
    /// Least and most excess of rounds' smallest round trips since then, in nanoseconds.
    above_ns: Option<(u64, u64)>,
    vain_cuts: u32,
    /// When rivals last did not answer losses.
    defied_ns: Option<u64>,
}

impl RivalFilter {
    /// Begins to compete, with rivals that may be known.
    pub(super) fn begin(&mut self, now_ns: u64) {
        let defies = self.is_known(now_ns);
        let lossy = if defies { ASSUMED_SHARE } else { 0.0 };
        *self = Self { lossy, defies, defied_ns: self.defied_ns, ..Self::default() };
    }

    /// Handles a round of competing, of which the smallest round trip exceeds that of the path by
    /// `above_ns`.
    pub(super) fn handle(&mut self, now_ns: u64, round: &Round, above_ns: u64) {
        let share = round.lost as f64 / (round.acked + round.lost).max(1) as f64;
        self.lossy += ((share / LOSSY_SHARE).min(1.0) - self.lossy) / AVERAGE_ROUNDS;
        self.since_cut = self.since_cut.map(|rounds| rounds + 1);
        let (least_ns, most_ns) = self.above_ns.unwrap_or((above_ns, above_ns));
        self.above_ns = Some((least_ns.min(above_ns), most_ns.max(above_ns)));
        self.defies = self.lossy > if self.defies { DEFY_UNTIL_SHARE } else { DEFY_FROM_SHARE };
        if self.defies {
            self.defied_ns = Some(now_ns);
        }
    }

    /// Whether losses are answered by a reduction, which follows at once.
    pub(super) fn answers(&mut self, now_ns: u64) -> bool {
        if self.defies || self.since_cut.is_some_and(|rounds| rounds < CUT_ROUNDS) {
            return false;
        }
        let is_soon = self.since_cut.is_some_and(|rounds| rounds <= VAIN_ROUNDS);
        let stands = self.above_ns.take().is_some_and(|(least_ns, most_ns)| {
            least_ns as f64 >= VAIN_QUEUE_SHARE * most_ns as f64
        });
        self.vain_cuts = if is_soon && stands { self.vain_cuts + 1 } else { 0 };
        if self.vain_cuts >= VAIN_CUTS {
            (self.lossy, self.defies, self.vain_cuts) = (ASSUMED_SHARE, true, 0);
            self.defied_ns = Some(now_ns);
            return false;
        }
        self.since_cut = Some(0);
        true
    }

    /// Weave does not reduce its rate for losses.
    pub(super) fn defies(&self) -> bool {
        self.defies
    }

    /// Rivals that do not answer losses were here of late.
    pub(super) fn is_known(&self, now_ns: u64) -> bool {
        self.defied_ns.is_some_and(|at_ns| now_ns < at_ns + MEMORY_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(lost: u64) -> Round {
        Round { acked: 1000 - lost, lost, ..Round::EMPTY }
    }

    /// Competes for `rounds`, each with the same losses and queue; returns the reductions.
    fn compete(rivals: &mut RivalFilter, rounds: u32, lost: u64, above_ns: u64) -> u32 {
        let mut cuts = 0;
        for number in 0..rounds {
            let now_ns = u64::from(number) * 100_000_000;
            rivals.handle(now_ns, &round(lost), above_ns);
            cuts += u32::from(lost > 0 && rivals.answers(now_ns));
        }
        cuts
    }

    #[test]
    fn losses_that_go_on_are_not_answered() {
        let mut rivals = RivalFilter::default();
        assert_eq!(compete(&mut rivals, 40, 20, 50), 1);
        assert!(rivals.defies());
        compete(&mut rivals, 40, 0, 50);
        assert!(!rivals.defies());
    }

    #[test]
    fn small_losses_at_a_queue_that_stands_are_not_answered_for_long() {
        let mut rivals = RivalFilter::default();
        let cuts = (0..4).map(|_| {
            compete(&mut rivals, 12, 0, 50);
            compete(&mut rivals, 1, 4, 60)
        });
        assert_eq!(cuts.sum::<u32>(), 3);
        assert!(rivals.defies());
    }

    #[test]
    fn losses_after_which_the_queue_falls_are_answered() {
        let mut rivals = RivalFilter::default();
        for _ in 0..8 {
            assert_eq!(compete(&mut rivals, 1, 4, 60), 1);
            compete(&mut rivals, 12, 0, 20);
        }
        assert!(!rivals.defies());
    }

    #[test]
    fn they_are_remembered_for_a_while() {
        let mut rivals = RivalFilter::default();
        compete(&mut rivals, 40, 20, 50);
        let at_ns = rivals.defied_ns.unwrap();
        rivals.begin(at_ns + MEMORY_NS - 1);
        assert!(rivals.defies() && rivals.is_known(at_ns + MEMORY_NS - 1));
        // As if half of the last rounds had lost much.
        let mut calm = rivals;
        let rounds = (0..).take_while(|_| {
            calm.handle(at_ns, &round(0), 50);
            calm.defies()
        });
        assert_eq!(rounds.count(), 24);
        rivals.begin(at_ns + MEMORY_NS);
        assert!(!rivals.defies());
    }
    #[test]
    fn losses_are_answered_once_in_ten_rounds() {
        let mut rivals = RivalFilter::default();
        rivals.handle(0, &round(4), 60);
        assert!(rivals.answers(0));
        (0..9).for_each(|_| rivals.handle(0, &round(0), 60));
        assert!(!rivals.answers(0));
        rivals.handle(0, &round(0), 60);
        assert!(rivals.answers(0));
    }

    /// Reductions that are `rounds` apart, between which the queue was so short and so long.
    fn vain(rounds: u32, least_ns: u64, most_ns: u64) -> bool {
        let mut rivals = RivalFilter::default();
        for _ in 0..4 {
            (0..rounds - 1).for_each(|_| rivals.handle(0, &round(0), least_ns));
            rivals.handle(0, &round(0), most_ns);
            rivals.answers(0);
        }
        rivals.defies()
    }

    #[test]
    fn a_reduction_is_vain_if_it_was_soon_and_the_queue_stayed_above_six_tenths() {
        assert!(vain(25, 600, 1000) && vain(10, 1000, 1000));
        assert!(!vain(26, 600, 1000));
        assert!(!vain(25, 599, 1000));
    }

    #[test]
    fn lossy_rounds_are_averaged_over_sixteen() {
        let mut rivals = RivalFilter::default();
        rivals.handle(0, &round(10), 60);
        assert_eq!(rivals.lossy, 1.0 / 16.0);
        rivals.handle(0, &round(5), 60);
        assert_eq!(rivals.lossy, 1.0 / 16.0 + (0.5 - 1.0 / 16.0) / 16.0, "half of 1 % is half");
        rivals.handle(0, &Round::EMPTY, 60);
        assert_eq!(rivals.above_ns, Some((60, 60)));
        rivals.lossy = 0.41;
        rivals.handle(7, &round(0), 50);
        assert_eq!((rivals.defies, rivals.defied_ns), (false, None));
        rivals.lossy = 0.43;
        rivals.handle(7, &round(0), 70);
        assert_eq!((rivals.defies, rivals.defied_ns), (true, Some(7)));
        assert_eq!(rivals.above_ns, Some((50, 70)));
        rivals.lossy = 0.107;
        rivals.handle(8, &round(0), 70);
        assert!(rivals.defies);
        rivals.lossy = 0.106;
        rivals.handle(9, &round(0), 70);
        assert!(!rivals.defies);
    }
}
