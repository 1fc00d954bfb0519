//! A file that is being sent: which of its bytes are to be read, and when the last one was.
//!
//! Its first bytes may be sent unasked, before the receiver has said what it wants. What the
//! receiver then wants of these is not sent again, and what it does not want is not counted.
//!
//! Invariant: each byte is read once, and exactly one piece of a file that the receiver wants is
//! its last: the one after which no byte is left to read. A file that fails before it is wanted
//! fails only if it is.
//!
//! Order: [`SentFile::offer`] at most once; [`SentFile::want`] once; [`SentFile::read_piece`] for
//! each piece planned by either; [`SentFile::close`].

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use weft_sync::Mutex;

use crate::messages::{FilePiece, PIECE_MAX};
use crate::plan::PlannedPiece;
use crate::source::SourceFile;

/// Bytes that the copy of a file has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BytesCount {
    /// Of the file, holes among them.
    pub done: u64,
    /// That were sent.
    pub moved: u64,
}

/// A listed file.
pub(crate) struct SentFile {
    /// How many entries were listed before it.
    pub number: u64,
    /// Where it is.
    pub source: SourceFile,
    progress: Mutex<SentProgress>,
}

#[derive(Default)]
struct SentProgress {
    file: Option<Arc<File>>,
    is_wanted: bool,
    /// Bytes from the start that are sent without being asked for.
    unasked: u64,
    /// What was sent of them before the file was wanted.
    sent: BytesCount,
    /// Bytes that are to be read and were not yet.
    left: u64,
    has_failed: bool,
    /// Why it has failed, while nobody has asked for it.
    untold: Option<String>,
}

/// What is to be done once the receiver has said what it wants of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Ranges that are to be read.
    pub ranges: Vec<(u64, u64)>,
    /// All were read already, or it cannot be read: one more piece, which is empty, is to say so.
    pub needs_last: bool,
    /// What counts now.
    pub sent: BytesCount,
}

impl SentFile {
    /// A file of which nothing was sent.
    pub fn new(number: u64, source: SourceFile) -> Self {
        Self { number, source, progress: Mutex::default() }
    }

    /// Whether it takes more than one piece.
    pub fn is_large(&self) -> bool {
        self.source.size > PIECE_MAX
    }

    /// How many of its first bytes are to be sent unasked, of `most`: all of a file of one piece,
    /// which goes whole, or none.
    pub fn offer(&self, most: u64) -> u64 {
        let size = self.source.size;
        let len = if size <= most || self.is_large() { size.min(most) } else { 0 };
        let mut progress = self.progress.lock();
        // Whoever was quick to answer has said more than is guessed here.
        if progress.is_wanted || progress.has_failed {
            return 0;
        }
        (progress.unasked, progress.left) = (len, len);
        len
    }

    /// The receiver wants `ranges`, which are in order and in the file. `None` if it did so before.
    pub fn want(&self, ranges: &[(u64, u64)]) -> Option<Wanted> {
        let size = self.source.size;
        let mut progress = self.progress.lock();
        if std::mem::replace(&mut progress.is_wanted, true) {
            return None;
        }
        if progress.has_failed {
            return Some(Wanted { needs_last: true, ..Wanted::default() });
        }
        let unasked = progress.unasked;
        let behind = |&(start, end): &(u64, u64)| (start.max(unasked), end);
        let ranges: Vec<_> = ranges.iter().map(behind).filter(|(start, end)| start < end).collect();
        let more: u64 = ranges.iter().map(|(start, end)| end - start).sum();
        progress.left += more;
        let mut sent = std::mem::take(&mut progress.sent);
        sent.done += size - unasked - more;
        Some(Wanted { ranges, needs_last: progress.left == 0 && unasked < size, sent })
    }

    /// Reads a piece to the start of `room`, and gives what counts by it; nothing if the file is
    /// closed already.
    pub fn read_piece(
        &self,
        piece: &PlannedPiece,
        room: &mut [u8],
    ) -> io::Result<Option<(FilePiece, BytesCount)>> {
        let Some(file) = self.open()? else { return Ok(None) };
        let mut hash = None;
        let mut moved = 0;
        if !piece.is_hole {
            let len = usize::try_from(piece.len).map_err(io::Error::other)?;
            let bytes = room.get_mut(..len).ok_or_else(|| io::Error::other("no such room"))?;
            file.read_exact_at(bytes, piece.offset).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => changed(),
                _ => error,
            })?;
            hash = Some(*blake3::hash(bytes).as_bytes());
            moved = piece.len;
        }
        let (is_last, count) = self.was_read(BytesCount { done: piece.len, moved });
        // All was read before this: what has changed until now may be in it.
        if is_last && !self.source.is_unchanged(&file)? {
            return Err(changed());
        }
        let PlannedPiece { file: number, offset, len, .. } = *piece;
        Ok(Some((FilePiece { file: number, offset, len, hash, is_last }, count)))
    }

    fn open(&self) -> io::Result<Option<Arc<File>>> {
        let mut progress = self.progress.lock();
        if progress.has_failed {
            return Ok(None);
        }
        Ok(Some(match &progress.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(progress.file.insert(Arc::new(self.source.open()?))),
        }))
    }

    /// A piece of so much was read: whether it is the last, and what counts now.
    fn was_read(&self, piece: BytesCount) -> (bool, BytesCount) {
        let mut progress = self.progress.lock();
        progress.left = progress.left.saturating_sub(piece.done);
        let is_all = progress.is_wanted || progress.unasked == self.source.size;
        let is_last = progress.left == 0 && is_all;
        if is_last {
            progress.file = None;
        }
        if progress.is_wanted {
            return (is_last, piece);
        }
        progress.sent.done += piece.done;
        progress.sent.moved += piece.moved;
        (is_last, BytesCount::default())
    }

    /// It cannot be read. Gives why, to be told, unless that was done, or nobody wants it yet.
    pub fn fail(&self, error: &io::Error) -> Option<String> {
        let mut progress = self.progress.lock();
        if std::mem::replace(&mut progress.has_failed, true) {
            return None;
        }
        let why = format!("{}: {error}", self.source.show());
        if progress.is_wanted {
            return Some(why);
        }
        progress.untold = Some(why);
        None
    }

    /// Why it cannot be read, if it is wanted and nobody was told.
    pub fn take_untold(&self) -> Option<String> {
        let mut progress = self.progress.lock();
        if progress.is_wanted { progress.untold.take() } else { None }
    }

    /// Nothing more is to be read. Whether it was told that it could not be.
    pub fn close(&self) -> bool {
        let closed = SentProgress { has_failed: true, ..SentProgress::default() };
        let before = std::mem::replace(&mut *self.progress.lock(), closed);
        before.has_failed && before.untold.is_none()
    }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was copied; copy it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::CopyOptions;
    use crate::source::{self, Listing};

    /// A file of `size` bytes as it was listed, which is gone now.
    fn gone(test: &str, size: usize) -> SentFile {
        let path = std::env::temp_dir().join(format!("weft-sent-{}-{test}", std::process::id()));
        std::fs::write(&path, vec![1; size]).unwrap();
        let mut found = None;
        let named = path.clone().into_os_string().into_encoded_bytes();
        source::list(&[named], &CopyOptions::default(), &mut |listing| {
            if let Listing::Found(_, file) = listing {
                found = file;
            }
            Ok(())
        })
        .unwrap();
        std::fs::remove_file(path).unwrap();
        SentFile::new(0, found.unwrap())
    }

    /// Tries to read a file of which the first bytes are sent unasked.
    fn fail_unasked(file: &SentFile) {
        assert_eq!(file.offer(100), 100);
        let piece = PlannedPiece { file: 0, offset: 0, len: 100, is_hole: false };
        let error = file.read_piece(&piece, &mut [0; 100]).unwrap_err();
        assert_eq!(file.fail(&error), None, "nobody has asked for it");
    }

    #[test]
    fn what_fails_unasked_is_told_once_it_is_wanted() {
        let file = gone("wanted", 100);
        fail_unasked(&file);
        assert_eq!(file.take_untold(), None);
        assert!(file.want(&[(0, 100)]).unwrap().needs_last, "who reads is to tell");
        assert!(file.take_untold().is_some_and(|why| why.contains("weft-sent")));
        assert_eq!(file.take_untold(), None, "it is told once");
        assert!(file.want(&[]).is_none(), "it is wanted twice");
        assert!(file.close(), "it was told");
    }

    #[test]
    fn what_fails_unasked_and_is_not_wanted_is_no_failure() {
        let file = gone("skipped", 100);
        fail_unasked(&file);
        assert!(!file.close());
    }

    #[test]
    fn a_small_file_is_offered_whole_or_not_at_all() {
        assert_eq!(gone("small", 100).offer(99), 0);
        assert_eq!(gone("large", PIECE_MAX as usize + 1).offer(99), 99);
        let file = gone("late", 100);
        file.want(&[(0, 100)]).unwrap();
        assert_eq!(file.offer(100), 0, "what is wanted is known already");
    }
}
