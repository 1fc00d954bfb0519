//! Random numbers that are the same on every machine.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use weft_units::Share;

/// A stream of random numbers of its own for each purpose.
#[derive(Clone, Debug)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// The stream that belongs to `seed` and `purpose`.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a, so that neighbouring seeds and purposes share nothing.
        let bytes = seed.to_le_bytes().into_iter().chain(purpose.bytes());
        let mixed = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether something that happens with this probability happens now.
    pub fn happens(&mut self, share: Share) -> bool {
        // 53 bits are what a float holds exactly. What never happens draws nothing.
        share > Share::NONE && ((self.number() >> 11) as f64) < share.probability() * TWO_TO_53
    }
}

const TWO_TO_53: f64 = 9_007_199_254_740_992.0;
