//! The files of a copy that are not closed.
//!
//! Invariant: they are no more than the sender may have open at once.
//!
//! Order: [`OpenFiles::insert`] for each that is wanted; [`OpenFiles::remove`] once it has its name
//! or has failed.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use crate::destination::{DestinationTree, EntryPlace};
use crate::messages::{ListedEntry, OPEN_FILES_MAX, OPEN_LARGE_MAX};
use crate::received_file::LargeFile;
use crate::rel_path::RelPath;

/// A file that was wanted.
pub(super) struct WantedFile {
    pub number: u64,
    pub entry: ListedEntry,
    pub size: u64,
    pub path: RelPath,
    /// `None` for a file of one piece, whose place is found as it is written: thousands may wait,
    /// each in another directory.
    pub large: Option<WantedLarge>,
}

/// A file of more than one piece, and its place.
pub(super) struct WantedLarge {
    pub file: LargeFile,
    pub place: EntryPlace,
}

impl WantedLarge {
    pub fn checkpoint(&self) -> io::Result<()> {
        self.file.checkpoint(&self.place)
    }

    /// Gives it its name.
    pub fn finish(&self, tree: &DestinationTree, entry: &ListedEntry) -> io::Result<()> {
        self.file.finish(tree, &self.place, entry)
    }
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
