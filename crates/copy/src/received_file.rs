//! A file that is being received, on the disk: the shell of [`PartialFile`].
//!
//! Invariant: what [`PartialFile`] says is done in its order; a record is replaced by a rename of
//! one that is durable.
//!
//! Order: [`LargeFile::open`]; [`LargeFile::take`] for each piece, [`LargeFile::checkpoint`]
//! meanwhile; [`LargeFile::finish`] once it is whole. [`write_small`] is all for a small file.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{Advice, FallocateFlags};
use rustix::io::Errno;
use weft_os::clock::{self, Moment};
use weft_sync::Mutex;

use crate::destination::{DestinationTree, EntryPlace, PartialUse};
use crate::messages::{FilePiece, ListedEntry, PIECE_MAX};
use crate::partial::{FINISH, FinishStep, PartialFile};
use crate::record::{CopyRecord, RECORD_MAX, SourceIdentity};
use crate::rel_path::{NEW_RECORD, PART, RECORD};

/// Bytes whose loss a crash is worth a flush.
const AT_RISK_MAX: u64 = 32 << 20;
/// How long they may be at risk.
const AT_RISK_TIME: Duration = Duration::from_secs(1);
/// Files from this size on are flushed before they are renamed, and finished by the thread that
/// does so; smaller ones become durable with the end of the copy.
const FLUSHED_FROM: u64 = 16 << 20;

/// A file of more than one piece.
pub(crate) struct LargeFile {
    file: File,
    size: u64,
    /// Some of its bytes were there before, so holes have to be made.
    is_resumed: bool,
    /// BLAKE3 of the source, if content is compared.
    digest: Option<[u8; 32]>,
    reads_back: bool,
    state: Mutex<LargeState>,
    is_checkpoint_due: AtomicBool,
    checked: Mutex<Moment>,
    /// One checkpoint at a time, and none once the file has its name: no record may be left then.
    is_finished: Mutex<bool>,
}

struct LargeState {
    partial: PartialFile,
    /// Pieces that were written and not read back from the disk yet, if that is asked for.
    unread: Vec<FilePiece>,
    is_whole: bool,
}

/// What a piece has led to.
pub(crate) struct PieceStep {
    /// It was not there before: what is sent unasked may be.
    pub is_new: bool,
    /// The file is whole now, and was not before: pieces that were not wanted may follow.
    pub is_whole: bool,
    pub wants_checkpoint: bool,
}

impl LargeFile {
    pub fn open(place: &EntryPlace, source: SourceIdentity, reads_back: bool) -> io::Result<Self> {
        let part = place.beside(PART);
        let mut file = part.open_partial(PartialUse::Resume)?;
        let mut partial = partial_of(&file, source, read_record(place))?;
        let is_resumed = partial.kept() > 0;
        if !is_resumed {
            // What is there is of another source.
            drop(file);
            file = part.open_partial(PartialUse::Anew)?;
            partial = partial_of(&file, source, None)?;
            forget_record(place)?;
            file.set_len(0)?;
        }
        Ok(Self {
            file,
            size: source.size,
            is_resumed,
            digest: source.digest,
            reads_back,
            state: Mutex::new(LargeState { partial, unread: Vec::new(), is_whole: false }),
            is_checkpoint_due: AtomicBool::new(false),
            checked: Mutex::new(clock::now()),
            is_finished: Mutex::new(false),
        })
    }

    pub fn wants(&self) -> Vec<Range<u64>> {
        self.state.lock().partial.wants()
    }

    pub fn is_for_flusher(&self) -> bool {
        self.size >= FLUSHED_FROM || self.reads_back
    }

    /// Writes a piece whose hash is right.
    pub fn take(&self, piece: &FilePiece, bytes: Option<&[u8]>) -> io::Result<PieceStep> {
        let is_new = {
            let partial = &self.state.lock().partial;
            partial.check(piece.offset, piece.len).map_err(io::Error::other)?;
            !partial.has(piece.offset, piece.len)
        };
        match bytes {
            _ if !is_new => {}
            Some(bytes) => self.file.write_all_at(bytes, piece.offset)?,
            None if self.is_resumed => {
                self.make_hole(piece.offset, piece.len)?;
            }
            None => {}
        }
        let mut state = self.state.lock();
        state.partial.written(piece.offset, piece.len).map_err(io::Error::other)?;
        if self.reads_back && is_new && piece.hash.is_some() {
            state.unread.push(piece.clone());
        }
        if piece.is_last {
            state.partial.sent();
        }
        let (is_whole, at_risk) = (state.partial.is_whole(), state.partial.at_risk());
        let was_whole = std::mem::replace(&mut state.is_whole, is_whole);
        drop(state);
        let is_late = self.checked.lock().elapsed() >= AT_RISK_TIME && at_risk > 0;
        let is_due = !is_whole && (at_risk >= AT_RISK_MAX || is_late);
        let wants_checkpoint = is_due && !self.is_checkpoint_due.swap(true, Ordering::AcqRel);
        Ok(PieceStep { is_new, is_whole: is_whole && !was_whole, wants_checkpoint })
    }

    /// Takes away what may be there of a hole. File systems that cannot get zeroes in its place.
    fn make_hole(&self, offset: u64, len: u64) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {}
            done => return Ok(done?),
        }
        let zeroes = vec![0; usize::try_from(len.min(PIECE_MAX)).map_err(io::Error::other)?];
        let mut at = offset;
        while at < offset + len {
            let count = zeroes.len().min(usize::try_from(offset + len - at).unwrap_or(usize::MAX));
            self.file.write_all_at(&zeroes[..count], at)?;
            at += count as u64;
        }
        Ok(())
    }

    /// Makes durable what has arrived, and then the record of it.
    pub fn checkpoint(&self, place: &EntryPlace) -> io::Result<()> {
        let is_finished = self.is_finished.lock();
        if *is_finished {
            return Ok(());
        }
        *self.checked.lock() = clock::now();
        self.is_checkpoint_due.store(false, Ordering::Release);
        let (unread, end) = {
            let mut state = self.state.lock();
            if !state.partial.begin_checkpoint() {
                return Ok(());
            }
            (std::mem::take(&mut state.unread), state.partial.checkpoint_end())
        };
        if self.file.metadata()?.len() < end {
            // Data there would have made the file as long, so this byte is of a hole.
            self.file.write_all_at(&[0], end - 1)?;
        }
        rustix::fs::fdatasync(&self.file)?;
        read_back(&self.file, &unread)?;
        let Some(record) = self.state.lock().partial.flushed() else { return Ok(()) };
        write_record(place, &record)
    }

    /// Gives the file, which is whole, its name.
    pub fn finish(
        &self,
        tree: &DestinationTree,
        place: &EntryPlace,
        entry: &ListedEntry,
    ) -> io::Result<()> {
        let mut is_finished = self.is_finished.lock();
        let is_flushed = self.is_for_flusher();
        if !is_flushed {
            tree.writes_in(&place.dir)?;
        }
        // A hole at the end. Not before: a power failure could leave all of the length, and none of
        // the bytes of a file that is not flushed.
        self.file.set_len(self.size)?;
        if !self.is_as_source()? {
            remove_partial(place)?;
            *is_finished = true;
            return Err(io::Error::other(
                "its partial file was changed since it was written, and is removed; run the same \
                 command again",
            ));
        }
        for step in FINISH {
            match step {
                FinishStep::SetAttributes => {
                    let set = tree.set_attributes(self.file.as_fd(), entry);
                    if let Err(error) = set {
                        *is_finished = discard_refused(place, &error)?;
                        return Err(error);
                    }
                }
                FinishStep::FlushFile if is_flushed => {
                    rustix::fs::fsync(&self.file)?;
                    let unread = std::mem::take(&mut self.state.lock().unread);
                    read_back(&self.file, &unread)?;
                }
                FinishStep::Rename => {
                    place.beside(PART).rename_open(&self.file, place)?;
                    *is_finished = true;
                }
                FinishStep::FlushDirectory if is_flushed => rustix::fs::fsync(&*place.dir)?,
                FinishStep::RemoveRecord => remove_records(place)?,
                FinishStep::FlushFile | FinishStep::FlushDirectory => {}
            }
        }
        Ok(())
    }

    /// Whether what is kept of an earlier copy is still what was verified then, as far as the
    /// content of the source is known. What came in this copy was verified as it came.
    fn is_as_source(&self) -> io::Result<bool> {
        let Some(digest) = self.digest.filter(|_| self.is_resumed) else { return Ok(true) };
        if self.reads_back {
            rustix::fs::fdatasync(&self.file)?;
            // Only a request; where it is not heeded the cache is compared.
            let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
        }
        let mut file = &self.file;
        file.rewind()?;
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(file)?;
        Ok(*hasher.finalize().as_bytes() == digest)
    }
}

/// What is known of a partial file, which is open, by a record.
fn partial_of(
    file: &File,
    source: SourceIdentity,
    record: Option<CopyRecord>,
) -> io::Result<PartialFile> {
    let stat = rustix::fs::fstat(file)?;
    let is_there = |record: &CopyRecord| {
        u64::try_from(stat.st_size).is_ok_and(|there| there >= record.verified.end())
    };
    Ok(PartialFile::new(source, stat.st_ino, record.filter(is_there)))
}

/// Removes a partial file whose attributes cannot be set, and its record, since the same copy again
/// would not get any further with it; whether it did. After an error that ends the whole copy it
/// stays.
fn discard_refused(place: &EntryPlace, error: &io::Error) -> io::Result<bool> {
    if is_fatal(error) {
        return Ok(false);
    }
    remove_partial(place)?;
    Ok(true)
}

fn remove_partial(place: &EntryPlace) -> io::Result<()> {
    remove_records(place)?;
    place.beside(PART).remove()
}

fn remove_records(place: &EntryPlace) -> io::Result<()> {
    place.beside(RECORD).remove()?;
    // Left by one that was killed while it wrote.
    place.beside(NEW_RECORD).remove()
}

/// Whether no other file would fare better.
pub(crate) fn is_fatal(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    let fatal = [Errno::NOSPC, Errno::DQUOT, Errno::ROFS, Errno::IO, Errno::MFILE, Errno::NFILE];
    errno.is_some_and(|errno| fatal.contains(&errno))
}

/// Reads pieces, which were flushed, from the disk, and compares their hashes.
fn read_back(file: &File, pieces: &[FilePiece]) -> io::Result<()> {
    let mut bytes = Vec::new();
    for piece in pieces {
        let len = std::num::NonZeroU64::new(piece.len);
        // Only a request; where it is not heeded the cache is compared.
        let _ = rustix::fs::fadvise(file, piece.offset, len, Advice::DontNeed);
        bytes.resize(usize::try_from(piece.len).map_err(io::Error::other)?, 0);
        file.read_exact_at(&mut bytes, piece.offset)?;
        if piece.hash.is_some_and(|hash| blake3::hash(&bytes) != hash) {
            return Err(io::Error::other("the disk gives back other bytes than were written"));
        }
    }
    Ok(())
}

fn read_record(place: &EntryPlace) -> Option<CopyRecord> {
    let mut bytes = Vec::new();
    let file = place.beside(RECORD).read_kept().ok()?;
    file.take(RECORD_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    CopyRecord::decode(&bytes)
}

/// Removes the record beside `place` before what it is about is changed: it would pass for a record
/// of what is written now.
pub(crate) fn forget_record(place: &EntryPlace) -> io::Result<()> {
    let record = place.beside(RECORD);
    if record.stat()?.is_some() {
        record.remove_kept()?;
        rustix::fs::fsync(&*place.dir)?;
    }
    Ok(())
}

fn write_record(place: &EntryPlace, record: &[u8]) -> io::Result<()> {
    let new = place.beside(NEW_RECORD);
    let mut file = new.open_partial(PartialUse::Anew)?;
    file.set_len(0)?;
    file.write_all(record)?;
    rustix::fs::fdatasync(&file)?;
    new.rename_open(&file, &place.beside(RECORD))
}

/// Writes a file of one piece, or an empty one without any; reads it back from the disk if
/// `reads_back`.
pub(crate) fn write_small(
    tree: &DestinationTree,
    place: &EntryPlace,
    entry: &ListedEntry,
    piece: Option<(&FilePiece, &[u8])>,
    reads_back: bool,
) -> io::Result<()> {
    let bytes = piece.map_or(&[][..], |(_, bytes)| bytes);
    tree.writes_in(&place.dir)?;
    let part = place.beside(PART);
    let file = part.open_partial(PartialUse::Anew)?;
    forget_record(place)?;
    if file.metadata()?.len() > bytes.len() as u64 {
        file.set_len(0)?;
    }
    file.write_all_at(bytes, 0)?;
    if let Some((piece, _)) = piece.filter(|_| reads_back) {
        rustix::fs::fdatasync(&file)?;
        read_back(&file, std::slice::from_ref(piece))?;
    }
    if let Err(error) = tree.set_attributes(file.as_fd(), entry) {
        // The same copy again would not get any further with it.
        part.remove()?;
        return Err(error);
    }
    part.rename_open(&file, place)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;
    use crate::messages::{ListedKind, SourceTime};
    use crate::rel_path::RelPath;

    fn tree(dir: &weft_testkit::Dir) -> (DestinationTree, EntryPlace) {
        let named = dir.root().as_os_str().as_bytes();
        let tree = DestinationTree::open(named, 1, true, false).unwrap();
        let place = tree.place(&RelPath::parse(b"big").unwrap()).unwrap().unwrap();
        (tree, place)
    }

    fn open(place: &EntryPlace, size: u64, secs: i64) -> LargeFile {
        let source = SourceIdentity { size, modified: SourceTime { secs, nanos: 0 }, digest: None };
        LargeFile::open(place, source, false).unwrap()
    }

    fn entry(size: u64) -> ListedEntry {
        ListedEntry {
            path: b"big".to_vec(),
            kind: ListedKind::File { size, digest: None },
            mode: 0o644,
            modified: SourceTime::default(),
            owner: (u32::MAX, u32::MAX),
            xattrs: Vec::new(),
        }
    }

    fn names(dir: &weft_testkit::Dir) -> Vec<String> {
        let names = std::fs::read_dir(dir.root()).unwrap();
        names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_that_has_its_name_gets_no_record() {
        let dir = weft_testkit::Dir::new("late-checkpoint");
        let (tree, place) = tree(&dir);
        let file = open(&place, PIECE_MAX, 1);
        let bytes = vec![7; PIECE_MAX as usize];
        let hash = Some(*blake3::hash(&bytes).as_bytes());
        let piece = FilePiece { file: 0, offset: 0, len: PIECE_MAX, hash, is_last: true };
        assert!(file.take(&piece, Some(&bytes)).unwrap().is_whole);
        assert!(!file.take(&piece, Some(&bytes)).unwrap().is_whole, "it is finished once");
        file.finish(&tree, &place, &entry(PIECE_MAX)).unwrap();
        // One that was due before, and comes late.
        file.checkpoint(&place).unwrap();
        assert_eq!(names(&dir), ["big"]);
    }

    #[test]
    fn a_file_whose_attribute_is_refused_leaves_nothing() {
        let dir = weft_testkit::Dir::new("refused-attribute");
        let (tree, place) = tree(&dir);
        let file = open(&place, PIECE_MAX, 1);
        let bytes = vec![7; PIECE_MAX as usize];
        let hash = Some(*blake3::hash(&bytes).as_bytes());
        let piece = FilePiece { file: 0, offset: 0, len: PIECE_MAX, hash, is_last: true };
        file.take(&piece, Some(&bytes)).unwrap();
        file.checkpoint(&place).unwrap();
        assert_eq!(names(&dir).len(), 2);
        // Longer than any system has names.
        let name = [&b"user."[..], &[b'x'; 300]].concat();
        let refused = ListedEntry { xattrs: vec![(name, vec![1])], ..entry(PIECE_MAX) };
        file.finish(&tree, &place, &refused).unwrap_err();
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
        // One that was due before, and comes late.
        file.checkpoint(&place).unwrap();
        assert!(names(&dir).is_empty(), "{:?}", names(&dir));
    }

    /// By another copy, or by whoever may write there.
    #[test]
    fn what_has_replaced_a_partial_file_does_not_get_its_name() {
        let dir = weft_testkit::Dir::new("replaced-partial");
        let (tree, place) = tree(&dir);
        let part = place.beside(PART);
        let replace = || {
            dir.write("other", "stale");
            let other = EntryPlace { name: "other".into(), ..part.clone() };
            other.rename(&part).unwrap();
        };
        let file = open(&place, PIECE_MAX, 1);
        let bytes = vec![7; PIECE_MAX as usize];
        let hash = Some(*blake3::hash(&bytes).as_bytes());
        let piece = FilePiece { file: 0, offset: 0, len: PIECE_MAX, hash, is_last: true };
        assert!(file.take(&piece, Some(&bytes)).unwrap().is_whole);
        replace();
        let error = file.finish(&tree, &place, &entry(PIECE_MAX)).unwrap_err();
        assert!(error.to_string().contains("was replaced"), "{error}");
        assert_eq!(place.stat().unwrap().map(|stat| stat.st_size), None);
    }

    #[test]
    fn a_file_that_has_become_small_leaves_no_record() {
        let dir = weft_testkit::Dir::new("small-now");
        let (tree, place) = tree(&dir);
        let bytes = vec![7; PIECE_MAX as usize];
        let hash = Some(*blake3::hash(&bytes).as_bytes());
        let piece = FilePiece { file: 0, offset: 0, len: PIECE_MAX, hash, is_last: false };
        let file = open(&place, 2 * PIECE_MAX, 1);
        file.take(&piece, Some(&bytes)).unwrap();
        file.checkpoint(&place).unwrap();
        drop(file);
        assert_eq!(names(&dir).len(), 2);
        write_small(&tree, &place, &entry(4), None, false).unwrap();
        assert_eq!(names(&dir), ["big"]);
    }

    #[test]
    fn a_small_file_has_its_name_once_it_was_read_back() {
        let dir = weft_testkit::Dir::new("small-read-back");
        let (tree, place) = tree(&dir);
        // What a disk that gives back other bytes looks like.
        let hash = Some(*blake3::hash(b"good").as_bytes());
        let piece = FilePiece { file: 0, offset: 0, len: 4, hash, is_last: true };
        let write =
            |bytes: &[u8]| write_small(&tree, &place, &entry(4), Some((&piece, bytes)), true);
        write(b"evil").unwrap_err();
        assert!(!names(&dir).contains(&"big".into()));
        write(b"good").unwrap();
        assert_eq!(names(&dir), ["big"]);
    }

    /// Not with the length of the file alone: another source had its place meanwhile.
    #[test]
    fn a_record_ends_with_what_it_is_about() {
        const SIZE: u64 = 2 * PIECE_MAX;
        let dir = weft_testkit::Dir::new("stale-record");
        let (_, place) = tree(&dir);
        let open = |secs| open(&place, SIZE, secs);
        let bytes = vec![7; PIECE_MAX as usize];
        let write = |file: &LargeFile, offset| {
            let hash = Some(*blake3::hash(&bytes).as_bytes());
            let piece = FilePiece { file: 0, offset, len: PIECE_MAX, hash, is_last: false };
            file.take(&piece, Some(&bytes)).unwrap();
        };
        let first = open(1);
        write(&first, 0);
        first.checkpoint(&place).unwrap();
        drop(first);
        let rest = PIECE_MAX..SIZE;
        assert_eq!(open(1).wants(), [rest]);
        // It is killed before its first checkpoint.
        write(&open(2), PIECE_MAX);
        let all = 0..SIZE;
        assert_eq!(open(1).wants(), [all]);
        // What ends in a hole is as long as the record says.
        let file = open(3);
        let hole =
            FilePiece { file: 0, offset: PIECE_MAX, len: PIECE_MAX, hash: None, is_last: false };
        file.take(&hole, None).unwrap();
        file.checkpoint(&place).unwrap();
        drop(file);
        let first = 0..PIECE_MAX;
        assert_eq!(open(3).wants(), [first]);
    }

    /// Nor is a partial file: both may be of somebody else.
    #[test]
    fn a_record_that_others_could_write_is_not_believed() {
        use std::os::unix::fs::PermissionsExt;
        const SIZE: u64 = 2 * PIECE_MAX;
        for (suffix, mode, is_kept) in [
            (RECORD, 0o600, true),
            (RECORD, 0o602, false),
            (RECORD, 0o620, false),
            // As after a kill while it was finished.
            (PART, 0o644, true),
            (PART, 0o664, false),
        ] {
            let dir = weft_testkit::Dir::new("record-of-others");
            let (_, place) = tree(&dir);
            let bytes = vec![7; PIECE_MAX as usize];
            let hash = Some(*blake3::hash(&bytes).as_bytes());
            let piece = FilePiece { file: 0, offset: 0, len: PIECE_MAX, hash, is_last: false };
            let file = open(&place, SIZE, 1);
            file.take(&piece, Some(&bytes)).unwrap();
            file.checkpoint(&place).unwrap();
            drop(file);
            let path = dir.path(place.beside(suffix).name.to_str().unwrap());
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            let start = if is_kept { PIECE_MAX } else { 0 };
            let wanted = open(&place, SIZE, 1).wants();
            assert_eq!(wanted, std::slice::from_ref(&(start..SIZE)), "{suffix} {mode:o}");
        }
    }

    #[test]
    fn what_has_changed_since_an_earlier_copy_does_not_become_the_file_where_content_counts() {
        const SIZE: u64 = 2 * PIECE_MAX;
        let whole = vec![7; SIZE as usize];
        let (digest, modified) = (Some(*blake3::hash(&whole).as_bytes()), SourceTime::default());
        let source = SourceIdentity { size: SIZE, modified, digest };
        let bytes = &whole[..PIECE_MAX as usize];
        let hash = Some(*blake3::hash(bytes).as_bytes());
        let piece =
            |offset| FilePiece { file: 0, offset, len: PIECE_MAX, hash, is_last: offset > 0 };
        for (is_changed, reads_back) in [(false, false), (true, false), (false, true), (true, true)]
        {
            let dir = weft_testkit::Dir::new("changed-partial");
            let (tree, place) = tree(&dir);
            let first = LargeFile::open(&place, source, reads_back).unwrap();
            first.take(&piece(0), Some(bytes)).unwrap();
            first.checkpoint(&place).unwrap();
            if is_changed {
                first.file.write_all_at(b"other", 10).unwrap();
            }
            drop(first);
            let resumed = LargeFile::open(&place, source, reads_back).unwrap();
            assert!(resumed.is_resumed);
            assert!(resumed.take(&piece(PIECE_MAX), Some(bytes)).unwrap().is_whole);
            let finished = resumed.finish(&tree, &place, &entry(SIZE));
            assert_eq!(finished.is_err(), is_changed, "{finished:?}");
            let left = if is_changed { vec![] } else { vec!["big"] };
            assert_eq!(names(&dir), left);
        }
    }
}
