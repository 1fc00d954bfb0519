//! Paths that were met in a copy: those that are taken, or that have failed.
//!
//! Invariant: memory is bounded, however many and long the paths are that a far end names: of each
//! only the hash is kept, and too many of them end the copy.
//!
//! Order: any.

use std::collections::HashSet;

use anyhow::{Result, ensure};
use weft_sync::Mutex;

/// Why a file is refused whose path is taken by one of another host.
pub const IS_TAKEN: &str = "it has the name of a file of a host before, and would replace it";

/// Paths that are kept, at most.
const PATHS_MAX: usize = 16 << 20;

/// A set of paths below the destination.
#[derive(Debug, Default)]
pub struct PathSet(Mutex<HashSet<[u8; 32]>>);

impl PathSet {
    /// Adds a path; whether it was not there before.
    ///
    /// # Errors
    /// They are too many.
    pub fn insert(&self, path: &[u8]) -> Result<bool> {
        let mut paths = self.0.lock();
        ensure!(paths.len() < PATHS_MAX, "the far end lists more paths than it may");
        Ok(paths.insert(*blake3::hash(path).as_bytes()))
    }

    /// Whether it is there.
    pub fn contains(&self, path: &[u8]) -> bool {
        self.0.lock().contains(blake3::hash(path).as_bytes())
    }
}
