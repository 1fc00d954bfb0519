//! The receiver: answers what it wants of each file that is listed, and puts what comes where it
//! belongs.
//!
//! The caller's thread takes messages in order, makes directories and answers; workers check, write
//! and finish files; one thread flushes large files, so that neither the network nor the workers
//! wait for the disk's slowest command. Buffers, not mapped files: a full disk is then an error of
//! one write and not a signal, and each piece is read once to be checked before any byte of it is
//! in the file.
//!
//! Invariant: a piece is written only if its hash is right, only to a file of this copy that was
//! wanted, within its size. What a failed copy leaves can be resumed.
//!
//! Order: [`receive`] is all.

mod ending;
mod late;
mod open_files;
mod workers;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::FileType;
use weft_session::{ChannelSender, MessageChannel};
use weft_sync::Mutex;

use self::ending::EndWatch;
use self::late::LateEntries;
use self::open_files::{OpenFiles, WantedFile, WantedLarge};
use crate::asked_names::AskedNames;
use crate::destination::{DestinationTree, modified};
use crate::messages::{
    CopyOptions, FileOutcome, FilePiece, ListedEntry, ListedKind, PIECE_MAX, ToReceiver, ToSender,
    is_single, parse_message, send_replies,
};
use crate::meter::{Meter, add};
use crate::path_set::{IS_TAKEN, PathSet};
use crate::received_file::{LargeFile, is_fatal, write_small};
use crate::record::SourceIdentity;
use crate::rel_path::{RelPath, escape, is_companion};
use crate::threads::spawn;
use crate::work_queue::WorkQueue;

/// Threads that check and write, at most.
const WORKERS_MAX: usize = 4;
/// Messages that wait for a worker, at most.
const QUEUE_MAX: usize = 64;
/// Replies that wait to be sent, at most, before the next message of the sender is taken.
const REPLIES_MAX: usize = 1024;
/// Why a file is refused that has the name of what a copy keeps beside another.
const IS_COMPANION: &str = "its name is that of a partial file of a copy";

/// What workers do.
enum ReceiveWork {
    Pieces {
        bytes: Vec<u8>,
        pieces: Vec<FilePiece>,
        payload: usize,
    },
    /// Compare the content of a file that looks the same.
    Compare {
        number: u64,
        entry: ListedEntry,
        path: RelPath,
        digest: [u8; 32],
    },
}

/// What the thread of the disk does.
enum DiskWork {
    Checkpoint(Arc<WantedFile>),
    Finish(Arc<WantedFile>),
}

struct FileReceiver<'a> {
    options: &'a CopyOptions,
    asked: Option<AskedNames>,
    /// The sender began the copy as one of a single file.
    is_single: bool,
    taken: Option<&'a PathSet>,
    meter: &'a Meter,
    tree: DestinationTree,
    files: Mutex<OpenFiles>,
    /// What is to be said, together once the work at hand is done.
    replies: WorkQueue<ToSender>,
    work: WorkQueue<ReceiveWork>,
    /// Buffers of messages that were taken, to be used again.
    spare: Mutex<Vec<Vec<u8>>>,
    disk: WorkQueue<DiskWork>,
    /// Why the copy cannot go on.
    fatal: Mutex<Option<String>>,
    /// Once all is listed, until the last file is closed.
    late: Mutex<Option<LateEntries>>,
    /// Files that are not there as the sender has them: a link to one would have other content.
    failed: PathSet,
    is_finished: AtomicBool,
    end: EndWatch,
    to: ChannelSender,
}

/// Receives into `destination` what the far end sends: what it was `asked` for, if this is the end
/// that asks. If several hosts are asked in turn, `taken` has what those before have listed.
///
/// # Errors
/// The copy cannot go on: the channel has failed, the disk is full, the destination cannot be
/// opened.
pub fn receive(
    channel: &MessageChannel,
    destination: &[u8],
    options: &CopyOptions,
    asked: Option<AskedNames>,
    taken: Option<&PathSet>,
    meter: &Meter,
) -> Result<()> {
    meter.is_listed.store(false, Ordering::Relaxed);
    let mut incoming = channel.receiver();
    let first = incoming.recv()?.context("the far end has ended")?.into_bytes()?;
    let (ToReceiver::Begin { sources, has_directory }, _) = parse_message(&first)? else {
        bail!("the far end began with something else");
    };
    let to = channel.sender();
    let tree = DestinationTree::open(destination, sources, has_directory, options.dry_run);
    let tree = tree.inspect_err(|error| {
        // If the channel has failed too, that is told by what the caller says.
        let _ = send_replies(&to, &[ToSender::Fatal(format!("{error:#}"))]);
    })?;
    let receiver = FileReceiver {
        options,
        asked,
        is_single: is_single(sources, has_directory),
        taken,
        meter,
        tree,
        files: Mutex::default(),
        replies: WorkQueue::new(REPLIES_MAX),
        work: WorkQueue::new(QUEUE_MAX),
        spare: Mutex::default(),
        disk: WorkQueue::new(usize::MAX),
        fatal: Mutex::default(),
        late: Mutex::default(),
        failed: PathSet::default(),
        is_finished: AtomicBool::new(false),
        end: EndWatch::default(),
        to,
    };
    let outcome = thread::scope(|scope| receiver.run(scope, channel));
    let outcome = receiver.why(outcome);
    if outcome.is_err() {
        receiver.keep();
    }
    outcome
}

/// The threads of a copy that is received.
#[derive(Default)]
struct ReceiveThreads<'scope> {
    workers: Vec<ScopedJoinHandle<'scope, ()>>,
    flusher: Option<ScopedJoinHandle<'scope, ()>>,
    replier: Option<ScopedJoinHandle<'scope, ()>>,
}

fn join_all<'scope>(threads: impl IntoIterator<Item = ScopedJoinHandle<'scope, ()>>) {
    threads.into_iter().for_each(|thread| _ = thread.join());
}

impl FileReceiver<'_> {
    fn run<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        channel: &'scope MessageChannel,
    ) -> Result<()> {
        let mut threads = ReceiveThreads::default();
        let started = self.start(scope, channel, &mut threads);
        let outcome = started.and_then(|()| self.listen(channel));
        if let Err(error) = &outcome {
            self.give_up(error);
        }
        self.work.close();
        join_all(threads.workers);
        self.disk.close();
        join_all(threads.flusher);
        self.replies.close();
        join_all(threads.replier);
        self.end.over();
        outcome
    }

    fn start<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        channel: &'scope MessageChannel,
        threads: &mut ReceiveThreads<'scope>,
    ) -> Result<()> {
        // The one that says why the copy ends comes first.
        threads.replier = Some(spawn(scope, || self.reply())?);
        threads.flusher = Some(spawn(scope, || self.flush())?);
        spawn(scope, || self.end.limit(channel))?;
        let count = thread::available_parallelism().map_or(1, usize::from).clamp(2, WORKERS_MAX);
        for _ in 0..count {
            threads.workers.push(spawn(scope, || self.work())?);
        }
        Ok(())
    }

    /// The first reason why the copy has ended, if it has.
    fn why(&self, outcome: Result<()>) -> Result<()> {
        match self.fatal.lock().take() {
            Some(why) => bail!(why),
            None => outcome,
        }
    }

    fn reply(&self) {
        while let Some(replies) = self.replies.take_all() {
            if send_replies(&self.to, &replies).is_err() {
                // The thread that receives meets the same failure, and waits for no room here.
                return self.replies.close();
            }
            if replies.contains(&ToSender::Finished) {
                self.end.begin();
            }
        }
    }

    fn listen(&self, channel: &MessageChannel) -> Result<()> {
        let mut incoming = channel.receiver();
        let mut late = Some(LateEntries::default());
        while let Some(message) = self.unless_finished(incoming.recv())? {
            ensure!(self.fatal.lock().is_none(), "the copy has ended");
            let mut bytes = self.spare.lock().pop().unwrap_or_default();
            message.read_into(&mut bytes)?;
            let (head, payload) = parse_message::<ToReceiver>(&bytes)?;
            match head {
                ToReceiver::Begin { .. } => bail!("the far end began twice"),
                ToReceiver::Entries(entries) => {
                    let late = late.as_mut().context("the far end lists more than all")?;
                    for entry in entries {
                        self.take_entry(entry, late)?;
                    }
                }
                ToReceiver::Pieces(pieces) => {
                    let payload = bytes.len() - payload.len();
                    self.work.put(ReceiveWork::Pieces { bytes, pieces, payload });
                }
                ToReceiver::Failed { file, why } => self.source_failed(file, &why)?,
                ToReceiver::Problem(why) => self.meter.problem(&escape(why.as_bytes())),
                ToReceiver::Listed { .. } => {
                    self.meter.is_listed.store(true, Ordering::Relaxed);
                    let late = late.take().context("the far end has listed all twice")?;
                    *self.late.lock() = Some(late);
                    self.finish_if_all_closed();
                }
            }
            self.replies.wake();
            // A sender that lists and does not read has to wait.
            self.replies.wait_for_room();
        }
        let is_finished = self.is_finished.load(Ordering::Acquire);
        ensure!(is_finished, "the far end stopped before the copy was over");
        Ok(())
    }

    /// What has come; the end if nothing more can matter.
    fn unless_finished<T>(&self, received: Result<Option<T>>) -> Result<Option<T>> {
        match received {
            // A sender that has heard the last word may leave without one.
            Err(_) if self.is_finished.load(Ordering::Acquire) => Ok(None),
            received => received,
        }
    }

    /// The path here of what the sender lists, if it may.
    fn path(&self, entry: &ListedEntry) -> Result<RelPath> {
        if let Some(asked) = &self.asked {
            asked.check(entry, self.is_single)?;
        }
        let is_file = matches!(entry.kind, ListedKind::File { .. });
        self.tree.map(RelPath::parse(&entry.path)?, is_file)
    }

    fn take_entry(&self, mut entry: ListedEntry, late: &mut LateEntries) -> Result<()> {
        if !self.options.xattrs {
            // They were not asked for.
            entry.xattrs.clear();
        }
        let number = late.listed;
        late.listed += 1;
        let is_directory = matches!(entry.kind, ListedKind::Directory);
        let path = self.path(&entry)?;
        if let ListedKind::File { size, .. } = entry.kind {
            self.files.lock().unclosed.insert(number);
            add(&self.meter.files, 1);
            add(&self.meter.bytes, size);
        }
        if !is_directory && let Some(why) = self.refusal(&path)? {
            let error = io::Error::other(why);
            return match entry.kind {
                ListedKind::File { .. } => self.failed(number, &path, &error),
                _ => self.problem(&path, &error),
            };
        }
        let outcome = match &entry.kind {
            ListedKind::File { size, digest } => {
                let (size, digest) = (*size, *digest);
                return self.take_file(number, entry, size, digest, path);
            }
            _ if self.options.dry_run => Ok(()),
            ListedKind::Directory => {
                let made = self.tree.make_directory(&path, entry.mode);
                if made.is_ok() {
                    late.add_directory(path.clone(), entry);
                }
                made
            }
            ListedKind::Symlink { target } => self.make_symlink(&path, &entry, target),
            ListedKind::Hardlink { to } => {
                late.add_hardlink(path.clone(), RelPath::parse(to)?);
                Ok(())
            }
        };
        ensure!(!late.are_too_many(), "the far end lists more links and directories than it may");
        match outcome {
            Err(error) => self.problem(&path, &error),
            Ok(()) => Ok(()),
        }
    }

    /// Why no file or link may have this path, if none may.
    fn refusal(&self, path: &RelPath) -> Result<Option<&'static str>> {
        if path.split().is_some_and(|(_, name)| is_companion(name)) {
            return Ok(Some(IS_COMPANION));
        }
        let is_taken = match self.taken {
            Some(taken) => !taken.insert(path.as_bytes())?,
            None => false,
        };
        Ok(is_taken.then_some(IS_TAKEN))
    }

    /// Something that is no file could not be made.
    fn problem(&self, path: &RelPath, error: &io::Error) -> Result<()> {
        let why = format!("{}: {error}", self.tree.show(path));
        ensure!(!is_fatal(error), "{why}");
        self.meter.problem(&why);
        self.replies.add(ToSender::Problem(why));
        Ok(())
    }

    fn make_symlink(&self, path: &RelPath, entry: &ListedEntry, target: &[u8]) -> io::Result<()> {
        let Some(place) = self.tree.place(path)? else { return Ok(()) };
        let is_there = place.read_symlink().is_ok_and(|there| there == target);
        if !is_there {
            self.tree.writes_in(&place.dir)?;
            place.make_symlink(target)?;
        }
        self.tree.set_link_attributes(&place, entry);
        Ok(())
    }

    /// Decides what is wanted of a file.
    fn take_file(
        &self,
        number: u64,
        entry: ListedEntry,
        size: u64,
        digest: Option<[u8; 32]>,
        path: RelPath,
    ) -> Result<()> {
        if i64::try_from(size).is_err() {
            let why = format!("the far end says that it has {size} bytes, more than a file can");
            return self.failed(number, &path, &io::Error::other(why));
        }
        let decided = self.decide(number, &entry, size, digest, &path);
        match decided {
            Ok(FileDecision::Want) => {}
            Ok(FileDecision::Skip) => return self.close(number, size, &path, FileOutcome::Skipped),
            Ok(FileDecision::Later(work)) => {
                self.work.put(work);
                return Ok(());
            }
            Err(error) => return self.failed(number, &path, &error),
        }
        match self.want(number, entry, size, path.clone()) {
            Err(error) => self.failed(number, &path, &error),
            Ok(()) => Ok(()),
        }
    }

    fn decide(
        &self,
        number: u64,
        entry: &ListedEntry,
        size: u64,
        digest: Option<[u8; 32]>,
        path: &RelPath,
    ) -> io::Result<FileDecision> {
        let place = match self.tree.place(path) {
            // A dry run makes no directories.
            Err(error) if self.options.dry_run && error.kind() == io::ErrorKind::NotFound => None,
            place => place?,
        };
        let Some(place) = place else { return Ok(FileDecision::Want) };
        let Some(stat) = place.stat()? else { return Ok(FileDecision::Want) };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {}
            FileType::Directory => return Err(io::Error::other("a directory is in its place")),
            _ => {
                place.check_replaceable()?;
                return Ok(FileDecision::Want);
            }
        }
        let is_as_long = u64::try_from(stat.st_size) == Ok(size);
        match digest {
            Some(digest) if is_as_long => {
                let (entry, path) = (entry.clone(), path.clone());
                Ok(FileDecision::Later(ReceiveWork::Compare { number, entry, path, digest }))
            }
            None if is_as_long && modified(&stat) == entry.modified => Ok(FileDecision::Skip),
            _ => Ok(FileDecision::Want),
        }
    }

    /// Says what is wanted of a file that is not there, or is another.
    fn want(&self, number: u64, entry: ListedEntry, size: u64, path: RelPath) -> io::Result<()> {
        let is_large = size > PIECE_MAX;
        let place = if self.options.dry_run { None } else { self.tree.place(&path)? };
        let Some(place) = place else {
            self.close(number, size, &path, FileOutcome::Complete).map_err(io::Error::other)?;
            return Ok(());
        };
        if !self.files.lock().has_room(is_large) {
            return Err(io::Error::other("the far end lists more files than it may at once"));
        }
        let mut ranges = vec![(0, size)];
        let large = if is_large {
            let ListedKind::File { digest, .. } = entry.kind else { return Ok(()) };
            let source = SourceIdentity { size, modified: entry.modified, digest };
            let large = LargeFile::open(&place, source, self.options.read_back)?;
            let wanted = large.wants();
            let missing: u64 = wanted.iter().map(|range| range.end - range.start).sum();
            add(&self.meter.bytes_done, size - missing);
            ranges = wanted.into_iter().map(|range| (range.start, range.end)).collect();
            Some(WantedLarge { file: large, place })
        } else if size == 0 {
            write_small(&self.tree, &place, &entry, None, false)?;
            self.close(number, size, &path, FileOutcome::Complete).map_err(io::Error::other)?;
            return Ok(());
        } else {
            None
        };
        let file = Arc::new(WantedFile { number, entry, size, path, large });
        self.files.lock().insert(file);
        self.replies.add(ToSender::Wants { file: number, ranges });
        Ok(())
    }

    fn close(&self, number: u64, size: u64, path: &RelPath, outcome: FileOutcome) -> Result<()> {
        if matches!(outcome, FileOutcome::Failed(_)) {
            // Before it is closed: links are made once all are.
            self.failed.insert(path.as_bytes())?;
        }
        let mut files = self.files.lock();
        // Two workers may fail at pieces of one file.
        if !files.unclosed.remove(&number) {
            return Ok(());
        }
        // Under the lock, since the last word comes after all of these.
        self.replies.add(ToSender::Closed { file: number, outcome: outcome.clone() });
        drop(files);
        match &outcome {
            FileOutcome::Complete => {
                add(&self.meter.files_done, 1);
                self.meter.file(&self.tree.show(path));
            }
            FileOutcome::Skipped => {
                add(&self.meter.files_skipped, 1);
                add(&self.meter.bytes_done, size);
            }
            FileOutcome::Failed(why) => self.meter.problem(why),
        }
        self.finish_if_all_closed();
        Ok(())
    }

    /// A file could not be written: that of one, or the end of all.
    fn failed(&self, number: u64, path: &RelPath, error: &io::Error) -> Result<()> {
        let why = format!("{}: {error}", self.tree.show(path));
        ensure!(
            !is_fatal(error),
            "{why}; what has arrived is kept: run the same command again to resume"
        );
        self.files.lock().remove(number);
        self.close(number, 0, path, FileOutcome::Failed(why))
    }

    fn source_failed(&self, number: u64, why: &str) -> Result<()> {
        // One that has failed here too may be closed by now.
        let Some(file) = self.files.lock().remove(number) else { return Ok(()) };
        let why = escape(why.as_bytes());
        self.close(number, 0, &file.path, FileOutcome::Failed(why))
    }

    /// The copy cannot go on; the thread that receives is told at the next message.
    fn give_up(&self, error: &anyhow::Error) {
        let why = format!("{error:#}");
        self.fatal.lock().get_or_insert_with(|| why.clone());
        // Before the channel ends, the far end hears why, if it reads: it is the last word.
        self.replies.add(ToSender::Fatal(why));
        self.replies.close();
        self.end.begin();
        self.work.close();
    }

    /// Records what has arrived of the files that are not whole.
    fn keep(&self) {
        for (_, file) in self.files.lock().by_number.drain() {
            if let Some(large) = &file.large {
                // The reason that the copy ends for is the one to tell.
                let _ = large.checkpoint();
            }
        }
    }
}

enum FileDecision {
    Want,
    Skip,
    Later(ReceiveWork),
}
