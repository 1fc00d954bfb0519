//! What waits until all files are there: hard links, and the attributes of directories, whose times
//! each new file would change.
//!
//! Invariant: a link leads to a regular file of the destination, and to none that has failed.
//!
//! Order: [`LateEntries`] is filled while entries are listed; then
//! [`FileReceiver::finish_if_all_closed`] whenever a file is closed.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use anyhow::{Context, Result};
use rustix::fs::FileType;

use super::FileReceiver;
use crate::messages::{ListedEntry, ToSender, Xattr};
use crate::rel_path::RelPath;

/// Bytes of directories and links whose making or attributes wait for the end, at most.
const LATE_BYTES_MAX: u64 = 2 << 30;

/// What waits until all files are there.
#[derive(Default)]
pub(super) struct LateEntries {
    directories: Vec<(RelPath, ListedEntry)>,
    hardlinks: Vec<(RelPath, RelPath)>,
    /// What these take.
    bytes: u64,
    /// Entries of all kinds that were listed.
    pub listed: u64,
}

impl LateEntries {
    /// Adds a directory, which is there.
    pub fn add_directory(&mut self, path: RelPath, mut entry: ListedEntry) {
        let xattr = |(name, value): &Xattr| size_of::<Xattr>() + name.len() + value.len();
        let xattrs: usize = entry.xattrs.iter().map(xattr).sum();
        self.bytes += (size_of::<(RelPath, ListedEntry)>() + path.as_bytes().len() + xattrs) as u64;
        // It is kept once.
        entry.path = Vec::new();
        self.directories.push((path, entry));
    }

    /// Adds a link of `path` to the file `to`.
    pub fn add_hardlink(&mut self, path: RelPath, to: RelPath) {
        let paths = path.as_bytes().len() + to.as_bytes().len();
        self.bytes += (size_of::<(RelPath, RelPath)>() + paths) as u64;
        self.hardlinks.push((path, to));
    }

    /// Whether more wait than memory is meant for.
    pub fn are_too_many(&self) -> bool {
        self.bytes > LATE_BYTES_MAX
    }
}

impl FileReceiver<'_> {
    /// Says the last word once all is listed and all files are closed.
    pub(super) fn finish_if_all_closed(&self) {
        if !self.files.lock().unclosed.is_empty() {
            return;
        }
        // Only one of those who see it does so.
        let Some(late) = self.late.lock().take() else { return };
        match self.finish(late) {
            Ok(()) => {
                self.is_finished.store(true, Ordering::Release);
                self.replies.add(ToSender::Finished);
            }
            Err(error) => self.give_up(&error),
        }
    }

    /// Makes what waited for the files, and all of it durable.
    fn finish(&self, late: LateEntries) -> Result<()> {
        for (path, to) in &late.hardlinks {
            if let Err(error) = self.make_hardlink(path, to) {
                self.problem(path, &error)?;
            }
        }
        // What is in a directory changes its time, so the inner ones come first.
        for (path, entry) in late.directories.iter().rev() {
            let set = || match self.tree.directory(path)? {
                Some(dir) => {
                    self.tree.writes_in(&dir)?;
                    self.tree.set_attributes(dir.as_fd(), entry)
                }
                None => Ok(()),
            };
            if let Err(error) = set() {
                self.problem(path, &error)?;
            }
        }
        // Once for all, since it is so for all or many of them.
        if let Some(error) = self.tree.owner_refusal() {
            self.problem(&RelPath::default(), &error)?;
        }
        self.tree.flush_written().context("flushing the disk")
    }

    fn make_hardlink(&self, path: &RelPath, to: &RelPath) -> io::Result<()> {
        if self.failed.contains(to.as_bytes()) {
            return Err(io::Error::other("the file it links to could not be copied"));
        }
        let (Some(place), Some(to)) = (self.tree.place(path)?, self.tree.place(to)?) else {
            return Ok(());
        };
        let there = place.stat()?;
        let target =
            to.stat()?.ok_or_else(|| io::Error::other("the file it links to is missing"))?;
        if FileType::from_raw_mode(target.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("what it links to is no file"));
        }
        if there.is_some_and(|it| (it.st_dev, it.st_ino) == (target.st_dev, target.st_ino)) {
            return Ok(());
        }
        self.tree.writes_in(&place.dir)?;
        place.make_hardlink(&to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::{ListedKind, SourceTime};

    #[test]
    fn what_waits_counts_with_its_names_and_attributes() {
        let path = || RelPath::parse("name/".repeat(200).trim_end_matches('/').as_bytes()).unwrap();
        let entry = ListedEntry {
            path: path().as_bytes().to_vec(),
            kind: ListedKind::Directory,
            mode: 0o755,
            modified: SourceTime::default(),
            owner: (0, 0),
            xattrs: vec![(b"user.weft".to_vec(), vec![7; 10_000])],
        };
        let mut late = LateEntries { bytes: LATE_BYTES_MAX - 12_500, ..LateEntries::default() };
        late.add_directory(path(), entry);
        assert!(!late.are_too_many());
        late.add_hardlink(path(), path());
        assert!(late.are_too_many());
    }
}
