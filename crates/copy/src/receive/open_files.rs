//! The files of a copy that are not closed.
//!
//! Invariant: they are no more than the sender may have open at once.
//!
//! Order: [`OpenFiles::insert`] for each that is wanted; [`OpenFiles::remove`] once it has its name
//! or has failed.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::destination::EntryPlace;
use crate::messages::{ListedEntry, OPEN_FILES_MAX, OPEN_LARGE_MAX};
use crate::received_file::LargeFile;
use crate::rel_path::RelPath;

/// A file that was wanted.
pub(super) struct WantedFile {
    pub number: u64,
    pub entry: ListedEntry,
    pub size: u64,
    pub path: RelPath,
    pub place: EntryPlace,
    /// `None` for a file of one piece.
    pub large: Option<LargeFile>,
}

/// Files that were wanted and are not closed.
#[derive(Default)]
pub(super) struct OpenFiles {
    /// Those that were listed, whether it is decided yet that they are wanted or not.
    pub unclosed: HashSet<u64>,
    pub by_number: HashMap<u64, Arc<WantedFile>>,
    large: usize,
}

impl OpenFiles {
    pub fn has_room(&self, is_large: bool) -> bool {
        let files = self.by_number.len();
        files < OPEN_FILES_MAX && (!is_large || self.large < OPEN_LARGE_MAX)
    }

    pub fn insert(&mut self, file: Arc<WantedFile>) {
        self.large += usize::from(file.large.is_some());
        self.by_number.insert(file.number, file);
    }

    pub fn remove(&mut self, number: u64) -> Option<Arc<WantedFile>> {
        let file = self.by_number.remove(&number)?;
        self.large -= usize::from(file.large.is_some());
        Some(file)
    }
}
