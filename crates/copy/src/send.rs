//! The sender: lists, and sends what the receiver wants.
//!
//! One thread lists, some read, hash and send, and the caller's takes what the receiver says.
//!
//! Invariant: only files that were listed are read, only within their sizes, and each at most once:
//! a receiver that asks for anything else ends the copy. Memory is bounded by the files that are
//! listed and not closed.
//!
//! Order: [`send`] is all.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::SeekFrom;
use weft_session::{ChannelSender, MessageChannel};
use weft_sync::{Condvar, Mutex};

use crate::messages::{
    CopyOptions, FileOutcome, FilePiece, ListedEntry, ListedKind, OPEN_FILES_MAX, OPEN_LARGE_MAX,
    PIECE_MAX, ToReceiver, ToSender, parse_message, send_message,
};
use crate::meter::{Meter, add};
use crate::plan::{PlannedPiece, SendPlan};
use crate::rel_path::escape;
use crate::source::{self, Listing, SourceFile};
use crate::throttle::Throttle;

/// Entries that are listed in one message, at most.
const ENTRIES_MAX: usize = 256;
/// Bytes of their paths and attributes, at most; one entry may have more.
const ENTRIES_BYTES_MAX: usize = 64 * 1024;
/// Threads that read, at most.
const READERS_MAX: usize = 4;

/// A listed file.
struct SentFile {
    source: SourceFile,
    progress: Mutex<SentProgress>,
}

#[derive(Default)]
struct SentProgress {
    file: Option<Arc<File>>,
    is_wanted: bool,
    /// Bytes that are wanted and were not read yet.
    left: u64,
    has_failed: bool,
}

impl SentFile {
    fn is_large(&self) -> bool {
        self.source.size > PIECE_MAX
    }
}

#[derive(Default)]
struct SendState {
    files: HashMap<u64, Arc<SentFile>>,
    large: usize,
    plan: SendPlan,
    is_listed: bool,
    is_over: bool,
}

struct FileSender<'a> {
    to: ChannelSender,
    options: &'a CopyOptions,
    meter: &'a Meter,
    throttle: Throttle,
    state: Mutex<SendState>,
    changed: Condvar,
}

/// Sends `sources`. What the far end has not taken is told to `meter`.
///
/// # Errors
/// The copy cannot go on: the channel has failed, or the receiver said so.
pub fn send(
    channel: &MessageChannel,
    sources: &[Vec<u8>],
    options: &CopyOptions,
    meter: &Meter,
) -> Result<()> {
    let sender = FileSender {
        to: channel.sender(),
        options,
        meter,
        throttle: Throttle::new(options.limit_bps),
        state: Mutex::default(),
        changed: Condvar::default(),
    };
    let (count, has_directory) = source::describe(sources);
    send_message(&sender.to, &ToReceiver::Begin { sources: count, has_directory }, &[])?;
    let readers = thread::available_parallelism().map_or(1, usize::from).clamp(1, READERS_MAX);
    thread::scope(|scope| {
        scope.spawn(|| sender.or_abort(sender.list(sources)));
        for _ in 0..readers {
            scope.spawn(|| sender.or_abort(sender.read_and_send()));
        }
        let outcome = sender.listen(channel);
        sender.state.lock().is_over = true;
        sender.changed.notify_all();
        if let Err(error) = &outcome {
            // Threads that wait for room to send must hear of it.
            channel.abort(&format!("{error:#}"));
        }
        outcome
    })
}

impl FileSender<'_> {
    fn or_abort(&self, outcome: Result<()>) {
        if let Err(error) = outcome {
            self.to.abort(&format!("{error:#}"));
        }
    }

    fn list(&self, sources: &[Vec<u8>]) -> Result<()> {
        let mut batch = ListBatch::default();
        let (mut number, mut files, mut bytes) = (0, 0, 0);
        source::list(sources, self.options, &mut |listing| {
            let (entry, file) = match listing {
                Listing::Problem(why) => {
                    self.meter.problem(&why);
                    return send_message(&self.to, &ToReceiver::Problem(why), &[]);
                }
                Listing::Found(entry, file) => (entry, file),
            };
            if let Some(file) = file {
                (files, bytes) = (files + 1, bytes + file.size);
                add(&self.meter.files, 1);
                add(&self.meter.bytes, file.size);
                self.make_room(&mut batch, file.size > PIECE_MAX)?;
                let sent = Arc::new(SentFile { source: file, progress: Mutex::default() });
                let mut state = self.state.lock();
                state.large += usize::from(sent.is_large());
                state.files.insert(number, sent);
            }
            number += 1;
            batch.add(entry);
            if batch.is_full() { batch.send(&self.to) } else { Ok(()) }
        })?;
        batch.send(&self.to)?;
        self.meter.is_listed.store(true, std::sync::atomic::Ordering::Relaxed);
        self.state.lock().is_listed = true;
        send_message(&self.to, &ToReceiver::Listed { files, bytes }, &[])
    }

    /// Waits until so few files are open that another may be listed.
    fn make_room(&self, batch: &mut ListBatch, is_large: bool) -> Result<()> {
        let is_full = |state: &SendState| {
            state.files.len() >= OPEN_FILES_MAX || (is_large && state.large >= OPEN_LARGE_MAX)
        };
        if !is_full(&self.state.lock()) {
            return Ok(());
        }
        // The receiver must hear of those that wait here, or none is ever closed.
        batch.send(&self.to)?;
        let state = self.changed.wait_while(self.state.lock(), |s| is_full(s) && !s.is_over);
        ensure!(!state.is_over, "the copy has ended");
        Ok(())
    }

    /// Takes what the receiver says, to the end.
    fn listen(&self, channel: &MessageChannel) -> Result<()> {
        let mut receiver = channel.receiver();
        while let Some(message) = receiver.recv()? {
            let bytes = message.into_bytes()?;
            let (message, _) = parse_message::<ToSender>(&bytes)?;
            match message {
                ToSender::Wants { file, ranges } => self.want(file, &ranges)?,
                ToSender::Closed { file, outcome } => self.close(file, outcome)?,
                ToSender::Problem(why) => self.meter.problem(&escape(why.as_bytes())),
                ToSender::Fatal(why) => bail!("{}", escape(why.as_bytes())),
                ToSender::Finished => {
                    let state = self.state.lock();
                    let is_over = state.is_listed && state.files.is_empty();
                    ensure!(is_over, "the far end finished before all was sent");
                    return Ok(());
                }
            }
        }
        bail!("the far end stopped before the copy was over")
    }

    fn want(&self, number: u64, ranges: &[(u64, u64)]) -> Result<()> {
        let file = self.state.lock().files.get(&number).cloned();
        let file = file.context("the far end wants a file that was not listed")?;
        let wanted = wanted_bytes(ranges, file.source.size)?;
        {
            let mut progress = file.progress.lock();
            ensure!(!progress.is_wanted, "the far end wants a file twice");
            progress.is_wanted = true;
            progress.left = wanted;
        }
        add(&self.meter.bytes_done, file.source.size - wanted);
        let mut pieces = Vec::new();
        for &(start, end) in ranges {
            plan_range(&file.source, number, start, end, &mut pieces);
        }
        if pieces.is_empty() {
            pieces.push(PlannedPiece { file: number, offset: 0, len: 0, is_hole: true });
        }
        let mut state = self.state.lock();
        pieces.into_iter().for_each(|piece| state.plan.want(piece));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    fn close(&self, number: u64, outcome: FileOutcome) -> Result<()> {
        let mut state = self.state.lock();
        let file = state.files.remove(&number);
        let file = file.context("the far end closed a file that was not listed")?;
        state.large -= usize::from(file.is_large());
        let wanted = std::mem::replace(
            &mut *file.progress.lock(),
            SentProgress { has_failed: true, ..SentProgress::default() },
        );
        if matches!(outcome, FileOutcome::Failed(_)) {
            state.plan.forget(number);
        }
        drop(state);
        self.changed.notify_all();
        match outcome {
            FileOutcome::Complete => {
                add(&self.meter.files_done, 1);
                self.meter.file(&file.source.show(), false);
            }
            FileOutcome::Skipped => {
                add(&self.meter.files_skipped, 1);
                add(&self.meter.bytes_done, file.source.size);
            }
            // What failed here was told already.
            FileOutcome::Failed(_) if wanted.has_failed => {}
            FileOutcome::Failed(why) => self.meter.problem(&escape(why.as_bytes())),
        }
        Ok(())
    }

    /// One of the threads that read, hash and send.
    fn read_and_send(&self) -> Result<()> {
        let mut payload = Vec::new();
        loop {
            let planned = {
                let mut planned = None;
                let state = self.changed.wait_while(self.state.lock(), |state| {
                    planned = state.plan.next_pieces();
                    planned.is_none() && !state.is_over
                });
                drop(state);
                planned
            };
            let Some(planned) = planned else { return Ok(()) };
            self.send_pieces(&planned, &mut payload)?;
        }
    }

    fn send_pieces(&self, planned: &[PlannedPiece], payload: &mut Vec<u8>) -> Result<()> {
        payload.clear();
        let mut pieces = Vec::with_capacity(planned.len());
        for piece in planned {
            let Some(file) = self.state.lock().files.get(&piece.file).cloned() else { continue };
            let before = payload.len();
            match read_piece(&file, piece, payload) {
                Ok(piece) => pieces.extend(piece),
                Err(error) => {
                    payload.truncate(before);
                    self.fail(piece.file, &file, &error)?;
                }
            }
        }
        self.throttle.wait(payload.len());
        add(&self.meter.bytes_done, pieces.iter().map(|piece| piece.len).sum());
        add(&self.meter.bytes_moved, payload.len() as u64);
        match pieces.is_empty() {
            true => Ok(()),
            false => send_message(&self.to, &ToReceiver::Pieces(pieces), payload),
        }
    }

    /// A file cannot be read: the receiver closes it.
    fn fail(&self, number: u64, file: &SentFile, error: &io::Error) -> Result<()> {
        if std::mem::replace(&mut file.progress.lock().has_failed, true) {
            return Ok(());
        }
        let why = format!("{}: {error}", file.source.show());
        self.meter.problem(&why);
        send_message(&self.to, &ToReceiver::Failed { file: number, why }, &[])
    }
}

/// Entries that are to be listed together.
#[derive(Default)]
struct ListBatch {
    entries: Vec<ListedEntry>,
    bytes: usize,
}

impl ListBatch {
    fn add(&mut self, entry: ListedEntry) {
        let more = match &entry.kind {
            ListedKind::Symlink { target } | ListedKind::Hardlink { to: target } => target.len(),
            _ => 0,
        };
        let xattrs: usize = entry.xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.bytes += entry.path.len() + more + xattrs;
        self.entries.push(entry);
    }

    fn is_full(&self) -> bool {
        self.entries.len() >= ENTRIES_MAX || self.bytes >= ENTRIES_BYTES_MAX
    }

    fn send(&mut self, to: &ChannelSender) -> Result<()> {
        if self.entries.is_empty() {
            return Ok(());
        }
        self.bytes = 0;
        send_message(to, &ToReceiver::Entries(std::mem::take(&mut self.entries)), &[])
    }
}

/// How many bytes are wanted by ranges, which must be in order and in the file.
fn wanted_bytes(ranges: &[(u64, u64)], size: u64) -> Result<u64> {
    let (mut at, mut bytes) = (0, 0);
    for &(start, end) in ranges {
        ensure!(at <= start && start < end && end <= size, "the far end wants bytes that are none");
        (at, bytes) = (end, bytes + (end - start));
    }
    Ok(bytes)
}

/// Plans what is wanted of a file: its data, and its holes if it has some.
fn plan_range(
    source: &SourceFile,
    file: u64,
    start: u64,
    end: u64,
    pieces: &mut Vec<PlannedPiece>,
) {
    let mut push = |start: u64, end: u64, is_hole| {
        if start < end {
            pieces.push(PlannedPiece { file, offset: start, len: end - start, is_hole });
        }
    };
    let opened =
        (source.is_sparse && source.size > PIECE_MAX).then(|| source.open().ok()).flatten();
    let Some(opened) = opened else { return push(start, end, false) };
    let mut at = start;
    while at < end {
        // No data behind it is an error of the system's; so is one that it cannot tell.
        let data = rustix::fs::seek(opened.as_fd(), SeekFrom::Data(at)).unwrap_or(end).min(end);
        push(at, data, true);
        let hole = rustix::fs::seek(opened.as_fd(), SeekFrom::Hole(data)).unwrap_or(end).min(end);
        push(data, hole.max(data), false);
        at = hole.max(data);
        if data == at && at < end {
            return push(at, end, false);
        }
    }
}

/// Reads a piece to the end of `payload`; nothing if the file is closed already.
fn read_piece(
    sent: &SentFile,
    piece: &PlannedPiece,
    payload: &mut Vec<u8>,
) -> io::Result<Option<FilePiece>> {
    let file = {
        let mut progress = sent.progress.lock();
        if progress.has_failed {
            return Ok(None);
        }
        match &progress.file {
            Some(file) => Arc::clone(file),
            None => Arc::clone(progress.file.insert(Arc::new(sent.source.open()?))),
        }
    };
    let mut hash = None;
    if !piece.is_hole {
        let start = payload.len();
        let len = usize::try_from(piece.len).map_err(io::Error::other)?;
        payload.resize(start + len, 0);
        let bytes = &mut payload[start..];
        file.read_exact_at(bytes, piece.offset).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => changed(),
            _ => error,
        })?;
        hash = Some(*blake3::hash(bytes).as_bytes());
    }
    let is_last = {
        let mut progress = sent.progress.lock();
        progress.left = progress.left.saturating_sub(piece.len);
        let is_last = progress.left == 0;
        if is_last {
            progress.file = None;
        }
        is_last
    };
    // All was read before this: what has changed until now may be in it.
    if is_last && !sent.source.is_unchanged(&file)? {
        return Err(changed());
    }
    let PlannedPiece { file: number, offset, len, .. } = *piece;
    Ok(Some(FilePiece { file: number, offset, len, hash, is_last }))
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was copied; copy it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wants_beyond_a_file_or_out_of_order_are_refused() {
        assert_eq!(wanted_bytes(&[(0, 3), (5, 10)], 10).unwrap(), 8);
        for ranges in [&[(0, 11)][..], &[(3, 3)], &[(5, 6), (0, 1)], &[(0, 4), (3, 5)], &[(4, 2)]] {
            assert!(wanted_bytes(ranges, 10).is_err(), "{ranges:?}");
        }
    }
}
