//! Whether a path loses large datagrams more often than small ones (S-79).
//!
//! Losses alone say nothing about sizes. So when large datagrams are lost often, small ones are
//! tried for a while, and then large ones again, because losses come and go: only a size that
//! loses more both before and after is to blame. Invariant: each of the three is judged by
//! [`SAMPLE`] packets.

/// Packets to judge by.
const SAMPLE: u32 = 1000;
/// Less than one lost in this many is not looked into.
const SUSPECT_ONE_IN: f64 = 50.0;
/// What large ones must lose more than small ones: this part, and so many deviations.
const EXCESS: f64 = 0.01;
const DEVIATIONS: f64 = 3.0;
/// A test that found nothing is not repeated for this long.
const REST_NS: u64 = 60_000_000_000;

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Small datagrams are to be used.
    Small,
    /// Large ones are to be used.
    Large,
    /// Large ones are not worth it.
    GiveUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Watch,
    Small,
    Again,
}

/// What became of packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Fates {
    pub(crate) arrived: u32,
    pub(crate) lost: u32,
}

/// The test on one path.
#[derive(Debug)]
pub(crate) struct GreyTest {
    stage: Stage,
    large: Fates,
    small: Fates,
    rest_until_ns: u64,
}

impl GreyTest {
    pub(crate) fn new() -> Self {
        let (large, small) = (Fates::default(), Fates::default());
        Self { stage: Stage::Watch, large, small, rest_until_ns: 0 }
    }

    /// Something became of packets, large ones or small ones.
    pub(crate) fn handle(&mut self, now_ns: u64, large: bool, fates: Fates) -> Option<Step> {
        let counted = if large { &mut self.large } else { &mut self.small };
        if large != (self.stage == Stage::Small) {
            counted.arrived += fates.arrived;
            counted.lost += fates.lost;
        }
        match self.stage {
            Stage::Watch if self.large.is_enough() => {
                let suspect = self.large.part() * SUSPECT_ONE_IN >= 1.0;
                if suspect && now_ns >= self.rest_until_ns {
                    (self.stage, self.small) = (Stage::Small, Fates::default());
                    return Some(Step::Small);
                }
                self.large = Fates::default();
                None
            }
            Stage::Small if self.small.is_enough() => {
                let again = self.large.exceeds(self.small);
                self.large = Fates::default();
                if again {
                    self.stage = Stage::Again;
                } else {
                    self.rest(now_ns);
                }
                Some(Step::Large)
            }
            Stage::Again if self.large.is_enough() => {
                let to_blame = self.large.exceeds(self.small);
                self.rest(now_ns);
                to_blame.then_some(Step::GiveUp)
            }
            _ => None,
        }
    }

    fn rest(&mut self, now_ns: u64) {
        *self = Self { rest_until_ns: now_ns.saturating_add(REST_NS), ..Self::new() };
    }
}

impl Fates {
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
    fn steps(lost: impl Fn(u32, bool) -> u32) -> Vec<Step> {
        let (mut test, mut large, mut steps) = (GreyTest::new(), true, Vec::new());
        for packet in 0..20_000 {
            let is_lost = packet * 7919 % 1000 < lost(packet, large);
            let fates = Fates { arrived: u32::from(!is_lost), lost: u32::from(is_lost) };
            let step = test.handle(u64::from(packet), large, fates);
            large = !matches!(step, Some(Step::Small)) && (large || step.is_some());
            steps.extend(step);
        }
        steps
    }

    #[test]
    fn a_size_is_to_blame_if_only_it_is_lost() {
        assert_eq!(steps(|_, _| 10), []);
        assert_eq!(steps(|_, _| 60), [Step::Small, Step::Large]);
        let grey = steps(|_, large| if large { 60 } else { 10 });
        assert_eq!(grey, [Step::Small, Step::Large, Step::GiveUp]);
    }

    #[test]
    fn losses_that_go_away_are_nobodys_fault() {
        let early = steps(|packet, _| if packet < 900 { 100 } else { 0 });
        assert_eq!(early, [Step::Small, Step::Large]);
    }
}
