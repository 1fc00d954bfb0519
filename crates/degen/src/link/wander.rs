//! What wanders without end: rates that fade, and paths that change.
//!
//! Both follow from a seed and the time alone, whatever packets come: a rate or delay is drawn for
//! each interval, in order. Times never go back.

use serde::Serialize;

use super::random::Random;
use super::schedule::Stepped;
use weft_units::Bitrate;

/// A rate that wanders between two others, as that of a radio link does.
///
/// Its logarithm takes a step each interval, evenly distributed, of a quarter of the range at most,
/// and is reflected at both ends. So in the long run every part of the logarithmic range has the
/// same share of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Fading {
    /// The least rate.
    pub least: Bitrate,
    /// The largest.
    pub most: Bitrate,
    /// Time between two steps, in nanoseconds.
    pub every_ns: u64,
}

impl Fading {
    /// The mean rate in the long run.
    pub fn mean(&self) -> Bitrate {
        let [least, most] = [self.least, self.most].map(|rate| rate.bps() as f64);
        match most > least {
            true => Bitrate::new(((most - least) / (most / least).ln()) as u64),
            false => self.least,
        }
    }
}

/// A path that changes: its delay is drawn anew each interval, evenly distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PathHandover {
    /// Time between two changes, in nanoseconds.
    pub every_ns: u64,
    /// The most that is added to the delay, in nanoseconds.
    pub by_ns: u64,
}

/// Largest step of a fading rate, as a part of its range.
const STEP: f64 = 0.25;

/// The rate of a link over time.
#[derive(Clone, Debug)]
pub struct LinkRate {
    steps: Stepped<Option<Bitrate>>,
    /// When the first step comes.
    steps_from_ns: Option<u64>,
    walk: Option<RateWalk>,
}

#[derive(Clone, Debug)]
struct RateWalk {
    fading: Fading,
    random: Random,
    /// Where in the logarithmic range the rate is, 0 to 1.
    place: f64,
    next_ns: u64,
}

impl LinkRate {
    /// A rate that fades until its first step.
    pub fn new(steps: Stepped<Option<Bitrate>>, fading: Option<Fading>, seed: u64) -> Self {
        let walk = fading.map(|fading| {
            let mut random = Random::new(seed, "fading");
            let place = part(&mut random);
            RateWalk { fading, random, place, next_ns: fading.every_ns }
        });
        Self { steps_from_ns: steps.next_change_ns(), steps, walk }
    }

    /// The rate at `now_ns`, which never goes back.
    pub fn at(&mut self, now_ns: u64) -> Option<Bitrate> {
        if self.steps_from_ns.is_some_and(|from_ns| from_ns <= now_ns) {
            self.walk = None;
        }
        match &mut self.walk {
            Some(walk) => Some(walk.at(now_ns)),
            None => self.steps.at(now_ns),
        }
    }

    /// When the rate changes next.
    pub fn next_change_ns(&self) -> Option<u64> {
        match &self.walk {
            Some(walk) => self.steps_from_ns.into_iter().chain([walk.next_ns]).min(),
            None => self.steps.next_change_ns(),
        }
    }
}

impl RateWalk {
    fn at(&mut self, now_ns: u64) -> Bitrate {
        while self.next_ns <= now_ns {
            self.next_ns += self.fading.every_ns;
            let moved = self.place + STEP * (2.0 * part(&mut self.random) - 1.0);
            // Reflected at 0 and at 1.
            self.place = 1.0 - (1.0 - moved.abs()).abs();
        }
        let [least, most] = [self.fading.least, self.fading.most].map(|rate| rate.bps() as f64);
        Bitrate::new((least * (most / least).powf(self.place)) as u64)
    }
}

/// Evenly distributed, 0 to 1.
fn part(random: &mut Random) -> f64 {
    random.below(1 << 32) as f64 / (1u64 << 32) as f64
}

/// A path that changes, at work.
#[derive(Clone, Debug)]
pub struct PathHandoverState {
    handover: PathHandover,
    random: Random,
    by_ns: u64,
    next_ns: u64,
}

impl PathHandoverState {
    /// The first path is drawn too.
    pub fn new(handover: PathHandover, mut random: Random) -> Self {
        let by_ns = random.below(handover.by_ns + 1);
        Self { handover, random, by_ns, next_ns: handover.every_ns }
    }

    /// What is added to the delay at `now_ns`, which never goes back.
    pub fn at(&mut self, now_ns: u64) -> u64 {
        while self.next_ns <= now_ns {
            self.next_ns += self.handover.every_ns;
            self.by_ns = self.random.below(self.handover.by_ns + 1);
        }
        self.by_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEC_NS: u64 = 1_000_000_000;

    fn mbit(mbit: u64) -> Bitrate {
        Bitrate::new(mbit * 1_000_000)
    }

    #[test]
    fn a_fading_rate_keeps_its_range_and_its_mean() {
        let fading = Fading { least: mbit(5), most: mbit(80), every_ns: SEC_NS / 50 };
        let mut rate = LinkRate::new(Stepped::constant(None), Some(fading), 7);
        let rates: Vec<f64> =
            (0..100_000).map(|i| rate.at(i * SEC_NS / 50).unwrap().bps() as f64 / 1e6).collect();
        assert!(rates.iter().all(|rate| (5.0..=80.0).contains(rate)));
        // Half of the time below the geometric mean, and steps of a quarter of the range at most.
        let below = rates.iter().filter(|rate| **rate < 20.0).count() as f64 / rates.len() as f64;
        assert!((0.45..0.55).contains(&below), "{below}");
        assert!(rates.windows(2).all(|two| (two[1] / two[0]).ln().abs() <= 0.2501 * 16f64.ln()));
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let expected = fading.mean().bps() as f64 / 1e6;
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean} {expected}");
    }

    #[test]
    fn a_rate_fades_until_its_first_step() {
        let fading = Fading { least: mbit(5), most: mbit(80), every_ns: SEC_NS };
        let steps = Stepped::new(None, vec![(3 * SEC_NS / 2, Some(mbit(1)))]);
        let mut rate = LinkRate::new(steps, Some(fading), 7);
        assert!(rate.at(0).unwrap() >= mbit(5));
        assert_eq!(rate.next_change_ns(), Some(SEC_NS));
        assert!(rate.at(SEC_NS).unwrap() >= mbit(5));
        assert_eq!(rate.next_change_ns(), Some(3 * SEC_NS / 2));
        assert_eq!(rate.at(3 * SEC_NS / 2), Some(mbit(1)));
        assert_eq!((rate.at(9 * SEC_NS), rate.next_change_ns()), (Some(mbit(1)), None));
    }

    #[test]
    fn a_path_changes_when_it_should_and_evenly() {
        let handover = PathHandover { every_ns: 15 * SEC_NS, by_ns: 1000 };
        let mut state = PathHandoverState::new(handover, Random::new(3, "handover"));
        let mut delays = Vec::new();
        for number in 0..10_000 {
            let at_ns = number * 15 * SEC_NS;
            let by_ns = state.at(at_ns);
            assert_eq!(state.at(at_ns + 15 * SEC_NS - 1), by_ns);
            delays.push(by_ns);
        }
        let mean = delays.iter().sum::<u64>() as f64 / delays.len() as f64;
        assert!((480.0..520.0).contains(&mean), "{mean}");
        assert!(delays.iter().all(|by_ns| *by_ns <= 1000));
        assert!(delays.windows(2).filter(|two| two[0] != two[1]).count() > 9_900);
    }
}
