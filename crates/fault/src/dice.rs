//! What is left to chance.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::SplitMix64;

use crate::Share;

/// Decisions about one object, one after the other.
#[derive(Clone, Debug)]
pub struct Dice(SplitMix64);

impl Dice {
    /// The decisions of the fault that stands at `fault` in the plan about its object `number`.
    pub fn new(seed: u64, fault: usize, number: u32) -> Self {
        // Spread, so that the sequences of neighbours do not run into each other.
        let mut mixed = SplitMix64::seed_from_u64(seed);
        let start = mixed.next_u64() ^ ((fault as u64) << 32) ^ u64::from(number);
        let mut mixed = SplitMix64::seed_from_u64(start);
        Self(SplitMix64::seed_from_u64(mixed.next_u64()))
    }

    /// Whether it happens this time.
    pub fn falls(&mut self, share: Share) -> bool {
        // 53 bits are what a float holds.
        let drawn = (self.0.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        drawn < share.probability()
    }

    /// A number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sequence(seed: u64, fault: usize, number: u32) -> Vec<bool> {
        let mut dice = Dice::new(seed, fault, number);
        (0..1000).map(|_| dice.falls(Share::new(0.5))).collect()
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_others_have_others() {
        assert_eq!(sequence(7, 0, 1), sequence(7, 0, 1));
        for (seed, fault, number) in [(8, 0, 1), (7, 1, 1), (7, 0, 2)] {
            assert_ne!(sequence(7, 0, 1), sequence(seed, fault, number));
        }
    }

    #[test]
    fn shares_are_kept() {
        let mut dice = Dice::new(1, 0, 1);
        let fell = (0..100_000).filter(|_| dice.falls(Share::new(0.01))).count();
        assert!((800..1200).contains(&fell), "{fell}");
        assert!((0..1000).all(|_| !dice.falls(Share::new(0.0)) && dice.falls(Share::new(1.0))));
        assert!((0..1000).all(|_| dice.below(3) < 3));
        assert_eq!(dice.below(0), 0);
    }
}
