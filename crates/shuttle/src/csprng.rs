//! Cryptographic random numbers derived from one seed (HKDF-SHA256).
//!
//! Invariant: forward secrecy; each draw replaces the state one way, so that a later state reveals
//! no earlier number.

use aws_lc_rs::hkdf::{HKDF_SHA256, Prk};
use zeroize::Zeroizing;

use crate::seal::expand;

/// The generator; its state is wiped when it is dropped.
pub(crate) struct Csprng {
    state: Zeroizing<[u8; 32]>,
}

impl Csprng {
    /// Creates a generator; `seed` must be 256 random bits.
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Self { state: Zeroizing::new(seed) }
    }

    /// The next 256 bits.
    pub(crate) fn next_bytes(&mut self) -> [u8; 32] {
        let prk = Prk::new_less_safe(HKDF_SHA256, self.state.as_slice());
        let mut drawn = [0; 32];
        expand(&prk, b"shuttle draw", &mut drawn);
        expand(&prk, b"shuttle state", self.state.as_mut_slice());
        drawn
    }

    /// The next 256 bits as four words.
    pub(crate) fn next_words(&mut self) -> [u64; 4] {
        let drawn = self.next_bytes();
        let number = |at: usize| std::array::from_fn(|octet| drawn[at * 8 + octet]);
        std::array::from_fn(|at| u64::from_be_bytes(number(at)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_draw_is_new_and_follows_from_the_seed() {
        let (mut one, mut same) = (Csprng::new([1; 32]), Csprng::new([1; 32]));
        let drawn: Vec<_> = (0..100).map(|_| one.next_bytes()).collect();
        assert!(drawn.iter().all(|draw| *draw == same.next_bytes()));
        let mut sorted = drawn.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), drawn.len());
        assert_ne!(Csprng::new([2; 32]).next_bytes(), drawn[0]);
    }

    #[test]
    fn words_are_the_bytes_of_a_draw() {
        let words = Csprng::new([1; 32]).next_words().map(u64::to_be_bytes).concat();
        assert_eq!(words, Csprng::new([1; 32]).next_bytes());
    }
}
