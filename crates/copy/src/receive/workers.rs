//! The threads of a receiver that check, write and finish files, and the one that flushes large
//! ones.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};

use super::open_files::{WantedFile, WantedLarge};
use super::{DiskWork, FileReceiver, ReceiveWork};
use crate::messages::{FileOutcome, FilePiece, ListedEntry, ListedKind};
use crate::meter::add;
use crate::received_file::write_small;
use crate::rel_path::RelPath;

impl FileReceiver<'_> {
    /// Until there is no more work.
    pub(super) fn work(&self) {
        while let Some(work) = self.work.take() {
            let outcome = match work {
                ReceiveWork::Pieces { bytes, pieces, payload } => {
                    let outcome = self.take_pieces(&pieces, &bytes[payload..]);
                    self.spare.lock().push(bytes);
                    outcome
                }
                ReceiveWork::Compare { number, entry, path, digest } => {
                    self.compare(number, entry, path, digest)
                }
            };
            if let Err(error) = outcome {
                self.give_up(&error);
            }
            self.replies.wake();
        }
    }

    fn compare(
        &self,
        number: u64,
        entry: ListedEntry,
        path: RelPath,
        digest: [u8; 32],
    ) -> Result<()> {
        let ListedKind::File { size, .. } = entry.kind else { return Ok(()) };
        let is_same = || -> io::Result<bool> {
            let Some(place) = self.tree.place(&path)? else { return Ok(false) };
            let mut hasher = blake3::Hasher::new();
            let file = place.read()?;
            hasher.update_reader(&file)?;
            if *hasher.finalize().as_bytes() != digest {
                return Ok(false);
            }
            if !self.options.dry_run {
                self.tree.set_attributes(file.as_fd(), &entry)?;
            }
            Ok(true)
        };
        match is_same() {
            Ok(true) => self.close(number, size, &path, FileOutcome::Skipped),
            Ok(false) => match self.want(number, entry, size, path.clone()) {
                Ok(()) => Ok(()),
                Err(error) => self.failed(number, &path, &error),
            },
            Err(error) => self.failed(number, &path, &error),
        }
    }

    fn take_pieces(&self, pieces: &[FilePiece], mut payload: &[u8]) -> Result<()> {
        for piece in pieces {
            let bytes = match piece.hash {
                None => None,
                Some(_) => {
                    let len = usize::try_from(piece.len)?;
                    let (bytes, rest) =
                        payload.split_at_checked(len).context("a piece that is cut off")?;
                    payload = rest;
                    Some(bytes)
                }
            };
            // One that has failed here may still come.
            let Some(file) = self.files.lock().by_number.get(&piece.file).cloned() else {
                continue;
            };
            match self.take_piece(&file, piece, bytes) {
                Ok(true) => {
                    self.files.lock().remove(piece.file);
                    self.close(file.number, file.size, &file.path, FileOutcome::Complete)?;
                }
                Ok(false) => {}
                Err(error) => self.failed(file.number, &file.path, &error)?,
            }
        }
        ensure!(payload.is_empty(), "a message with more bytes than its pieces have");
        Ok(())
    }

    /// Writes a piece; whether the file has its name now.
    fn take_piece(
        &self,
        file: &Arc<WantedFile>,
        piece: &FilePiece,
        bytes: Option<&[u8]>,
    ) -> io::Result<bool> {
        if let (Some(bytes), Some(hash)) = (bytes, piece.hash)
            && blake3::hash(bytes) != hash
        {
            return Err(io::Error::other(
                "a piece was damaged in transit; run the same command again",
            ));
        }
        let add_bytes = || {
            add(&self.meter.bytes_done, piece.len);
            add(&self.meter.bytes_moved, bytes.map_or(0, <[u8]>::len) as u64);
        };
        let Some(large) = &file.large else {
            let bytes = bytes.filter(|bytes| bytes.len() as u64 == file.size && piece.offset == 0);
            let Some(bytes) = bytes.filter(|_| piece.is_last) else {
                return Err(io::Error::other("the far end sent it in parts"));
            };
            let piece = Some((piece, bytes));
            let place = self.tree.place(&file.path)?;
            let place = place.ok_or_else(|| io::Error::other("its directory is gone"))?;
            write_small(&self.tree, &place, &file.entry, piece, self.options.read_back)?;
            add_bytes();
            return Ok(true);
        };
        let step = large.file.take(piece, bytes)?;
        if step.is_new {
            add_bytes();
        }
        if step.is_whole && large.file.is_for_flusher() {
            self.disk.put(DiskWork::Finish(Arc::clone(file)));
        } else if step.is_whole {
            large.finish(&self.tree, &file.entry)?;
            return Ok(true);
        } else if step.wants_checkpoint {
            self.disk.put(DiskWork::Checkpoint(Arc::clone(file)));
        }
        Ok(false)
    }

    /// The thread of the disk: until there is no more work.
    pub(super) fn flush(&self) {
        while let Some(work) = self.disk.take() {
            let (file, outcome) = match &work {
                DiskWork::Checkpoint(file) => {
                    (file, file.large.as_ref().map_or(Ok(()), WantedLarge::checkpoint))
                }
                DiskWork::Finish(file) => (file, self.finish_large(file)),
            };
            let outcome = match outcome {
                Ok(()) => Ok(()),
                Err(error) => self.failed(file.number, &file.path, &error),
            };
            if let Err(error) = outcome {
                self.give_up(&error);
            }
            self.replies.wake();
        }
    }

    fn finish_large(&self, file: &WantedFile) -> io::Result<()> {
        let Some(large) = &file.large else { return Ok(()) };
        large.finish(&self.tree, &file.entry)?;
        self.files.lock().remove(file.number);
        let closed = self.close(file.number, file.size, &file.path, FileOutcome::Complete);
        closed.map_err(io::Error::other)
    }
}
