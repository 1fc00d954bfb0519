//! Random numbers that nobody can guess, whatever the sandbox.
//!
//! `getrandom`, or `/dev/urandom` where a kernel or a filter refuses that. A process that shuts
//! itself off from both after it has opened a device goes on from a secret that was drawn then.
//!
//! Order: [`prepare`] before anything else.

use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io::{self, Read};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::{getrandom, monotonic_ns};

static SECRET: OnceLock<RandomState> = OnceLock::new();

/// Looks whether there is a source, before anybody relies on it.
///
/// # Errors
/// The errno of the last source that was tried.
pub fn prepare() -> io::Result<()> {
    draw(&mut [0; 8])?;
    SECRET.get_or_init(RandomState::new);
    Ok(())
}

/// 32 random bits.
pub fn random() -> u32 {
    u32::from_ne_bytes(random_octets())
}

/// Up to 256 random bytes that nobody can guess.
pub fn random_octets<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if draw(&mut bytes).is_err() {
        stretch(&mut bytes);
    }
    bytes
}

fn draw(bytes: &mut [u8]) -> io::Result<()> {
    getrandom(bytes).or_else(|_| File::open("/dev/urandom")?.read_exact(bytes))
}

/// A keyed hash (SipHash) of what never comes again: a count, the process and the time.
fn stretch(bytes: &mut [u8]) {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let secret = SECRET.get_or_init(RandomState::new);
    for word in bytes.chunks_mut(size_of::<u64>()) {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let hash = secret.hash_one((count, std::process::id(), monotonic_ns())).to_ne_bytes();
        word.copy_from_slice(&hash[..word.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_gives_other_bytes_each_time() {
        prepare().unwrap();
        let stretched = || {
            let mut bytes = [0; 20];
            stretch(&mut bytes);
            bytes
        };
        let drawn = [stretched(), stretched(), random_octets(), random_octets(), [0; 20]];
        for (at, bytes) in drawn.iter().enumerate() {
            assert!(!drawn[..at].contains(bytes), "{drawn:?}");
        }
    }
}
