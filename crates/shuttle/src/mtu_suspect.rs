//! Test whether a path loses large datagrams more often than small ones (S-79).
//!
//! Loss alone says nothing about sizes. When large datagrams are lost often, small ones are used
//! for a sample, then large ones again: only a size that loses more both before and after is given
//! up. Invariant: each of the three verdicts rests on [`SAMPLE`] packets.

/// Packets in a sample: three standard deviations at 2 % loss are then 1.3 %.
const SAMPLE: u32 = 1000;
/// Loss that starts a test: one packet in 50.
const SUSPECT_ONE_IN: f64 = 50.0;
/// Share by which large datagrams must be lost more than small ones: below 1 % a larger size still
/// pays.
const EXCESS: f64 = 0.01;
/// Standard deviations by which the shares of loss must differ.
const DEVIATIONS: f64 = 3.0;
/// Pause after a test without result, 60 s: the test itself sends small datagrams, which costs
/// rate.
const REST_NS: u64 = 60_000_000_000;

/// Datagram size to use next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SuspectStep {
    /// Use the base size.
    Small,
    /// Use the largest size found.
    Large,
    /// Give up the largest size.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SuspectStage {
    Watch,
    Small,
    Again,
}

/// Counts of acknowledged and lost packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketFates {
    pub(crate) arrived: u32,
    pub(crate) lost: u32,
}

/// State of the test on one path.
#[derive(Debug)]
pub(crate) struct MtuSuspect {
    stage: SuspectStage,
    large: PacketFates,
    small: PacketFates,
    rest_until_ns: u64,
}

impl MtuSuspect {
    pub(crate) fn new() -> Self {
        let (large, small) = (PacketFates::default(), PacketFates::default());
        Self { stage: SuspectStage::Watch, large, small, rest_until_ns: 0 }
    }

    /// Counts the fates of large or small packets; returns a change of size.
    pub(crate) fn handle(
        &mut self,
        now_ns: u64,
        large: bool,
        fates: PacketFates,
    ) -> Option<SuspectStep> {
        let counted = if large { &mut self.large } else { &mut self.small };
        if large != (self.stage == SuspectStage::Small) {
            counted.arrived += fates.arrived;
            counted.lost += fates.lost;
        }
        match self.stage {
            SuspectStage::Watch if self.large.is_enough() => {
                let suspect = self.large.part() * SUSPECT_ONE_IN >= 1.0;
                if suspect && now_ns >= self.rest_until_ns {
                    (self.stage, self.small) = (SuspectStage::Small, PacketFates::default());
                    return Some(SuspectStep::Small);
                }
                self.large = PacketFates::default();
                None
            }
            SuspectStage::Small if self.small.is_enough() => {
                let again = self.large.exceeds(self.small);
                self.large = PacketFates::default();
                if again {
                    self.stage = SuspectStage::Again;
                } else {
                    self.rest(now_ns);
                }
                Some(SuspectStep::Large)
            }
            SuspectStage::Again if self.large.is_enough() => {
                let to_blame = self.large.exceeds(self.small);
                self.rest(now_ns);
                to_blame.then_some(SuspectStep::GiveUp)
            }
            _ => None,
        }
    }

    fn rest(&mut self, now_ns: u64) {
        *self = Self { rest_until_ns: now_ns.saturating_add(REST_NS), ..Self::new() };
    }
}

impl PacketFates {
    fn is_enough(self) -> bool {
        self.arrived + self.lost >= SAMPLE
    }

    fn part(self) -> f64 {
        f64::from(self.lost) / f64::from((self.arrived + self.lost).max(1))
    }

    fn exceeds(self, other: Self) -> bool {
        let variance = |fates: Self| {
            let part = fates.part();
            part * (1.0 - part) / f64::from((fates.arrived + fates.lost).max(1))
        };
        let deviation = (variance(self) + variance(other)).sqrt();
        self.part() - other.part() > EXCESS.max(DEVIATIONS * deviation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The steps taken while large and small packets are lost as `lost` says, in thousandths, of
    /// 20,000 packets one after the other.
    fn steps(lost: impl Fn(u32, bool) -> u32) -> Vec<SuspectStep> {
        let (mut test, mut large, mut steps) = (MtuSuspect::new(), true, Vec::new());
        for packet in 0..20_000 {
            let is_lost = packet * 7919 % 1000 < lost(packet, large);
            let fates = PacketFates { arrived: u32::from(!is_lost), lost: u32::from(is_lost) };
            let step = test.handle(u64::from(packet), large, fates);
            large = !matches!(step, Some(SuspectStep::Small)) && (large || step.is_some());
            steps.extend(step);
        }
        steps
    }

    /// S-79.
    #[test]
    fn a_size_is_to_blame_if_only_it_is_lost() {
        assert_eq!(steps(|_, _| 10), []);
        assert_eq!(steps(|_, _| 60), [SuspectStep::Small, SuspectStep::Large]);
        let suspect = steps(|_, large| if large { 60 } else { 10 });
        assert_eq!(suspect, [SuspectStep::Small, SuspectStep::Large, SuspectStep::GiveUp]);
    }

    #[test]
    fn losses_that_go_away_are_nobodys_fault() {
        let early = steps(|packet, _| if packet < 900 { 100 } else { 0 });
        assert_eq!(early, [SuspectStep::Small, SuspectStep::Large]);
    }

    /// S-79.
    #[test]
    fn a_size_that_was_not_to_blame_is_left_in_peace_for_a_minute() {
        let mut test = MtuSuspect::new();
        let lossy = PacketFates { arrived: 900, lost: 100 };
        assert_eq!(test.handle(0, true, lossy), Some(SuspectStep::Small));
        assert_eq!(test.handle(1, false, lossy), Some(SuspectStep::Large));
        assert_eq!(test.handle(2, true, lossy), None);
        assert_eq!(test.handle(REST_NS, true, lossy), None);
        assert_eq!(test.handle(REST_NS + 1, true, lossy), Some(SuspectStep::Small));
    }

    #[test]
    fn the_part_that_is_lost_is_of_all_packets() {
        let fates = |arrived, lost| PacketFates { arrived, lost };
        assert_eq!(fates(900, 100).part(), 0.1);
        assert_eq!(fates(0, 100).part(), 1.0);
        assert!(!fates(900, 99).is_enough() && fates(900, 100).is_enough());
    }

    /// S-79: by 1 % at least, and by three standard deviations.
    #[test]
    fn a_share_of_losses_exceeds_another_if_chance_does_not_explain_it() {
        let lost = |lost, of| PacketFates { arrived: of - lost, lost };
        for (large, small, of, exceeds) in [
            (500, 432, 1000, true),
            (500, 435, 1000, false),
            (30, 10, 1000, true),
            (28, 10, 1000, false),
            (1100, 0, 100_000, true),
            (900, 0, 100_000, false),
            (10, 30, 1000, false),
        ] {
            let found = lost(large, of).exceeds(lost(small, of));
            assert_eq!(found, exceeds, "{large} and {small} of {of}");
        }
    }
}
