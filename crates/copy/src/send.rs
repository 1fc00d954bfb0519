//! The sender: lists, and sends what the receiver wants.
//!
//! One thread lists, some read, hash and send, and the caller's takes what the receiver says. The
//! first bytes follow the list at once, a mebibyte at most, before the receiver has said what it
//! wants: most copies find nothing there, and then their data is one round trip earlier.
//!
//! Invariant: only files that were listed are read, only within their sizes, and each at most once:
//! a receiver that asks for anything else ends the copy. Memory is bounded by the files that are
//! listed and not closed.
//!
//! Order: [`send`] is all.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use weft_session::{ChannelSender, MessageChannel};
use weft_sync::{Condvar, Mutex};

use crate::messages::{
    CopyOptions, FileOutcome, ListedEntry, ListedKind, OPEN_FILES_MAX, OPEN_LARGE_MAX, PIECE_MAX,
    RANGES_MAX, ToReceiver, ToSender, parse_replies, send_message,
};
use crate::meter::{Meter, add};
use crate::plan::{PlannedPiece, SendPlan};
use crate::rel_path::escape;
use crate::sent_file::{BytesCount, SentFile, Wanted};
use crate::source::{self, Listing, SourceFile};
use crate::threads::spawn;
use crate::throttle::Throttle;

/// Entries that are listed in one message, at most.
const ENTRIES_MAX: usize = 256;
/// Bytes of their paths and attributes, at most; one entry may have more.
const ENTRIES_BYTES_MAX: usize = 64 * 1024;
/// Threads that read, at most.
const READERS_MAX: usize = 4;

/// Bytes that are sent before the receiver has said what it wants, at most. A first flight takes
/// less at 1 Gbit/s, and it is little to send in vain if the receiver has them already.
const UNASKED_MAX: u64 = 1024 * 1024;

#[derive(Default)]
struct SendState {
    files: HashMap<u64, Arc<SentFile>>,
    large: usize,
    plan: SendPlan,
    is_listed: bool,
    /// The receiver has said something.
    is_answered: bool,
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

/// Sends `sources`, which are paths as they stand. What the far end has not taken is told to
/// `meter`.
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
        let started = spawn(scope, || sender.or_abort(sender.list(sources))).and_then(|_| {
            let read = || spawn(scope, || sender.or_abort(sender.read_and_send()));
            (0..readers).try_for_each(|_| read().map(drop))
        });
        let outcome = started.and_then(|()| sender.listen(channel));
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
        let unasked_left = match self.options.checksum || self.options.dry_run {
            true => 0,
            false => UNASKED_MAX,
        };
        let mut batch = ListBatch { unasked_left, ..ListBatch::default() };
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
                let sent = Arc::new(SentFile::new(number, file));
                let mut state = self.state.lock();
                state.large += usize::from(sent.is_large());
                state.files.insert(number, Arc::clone(&sent));
                drop(state);
                batch.files.push(sent);
            }
            number += 1;
            batch.add(entry);
            if batch.is_full() { self.send_batch(&mut batch) } else { Ok(()) }
        })?;
        self.send_batch(&mut batch)?;
        self.meter.is_listed.store(true, std::sync::atomic::Ordering::Relaxed);
        self.state.lock().is_listed = true;
        send_message(&self.to, &ToReceiver::Listed { files, bytes }, &[])
    }

    /// Sends a part of the list, and plans what may follow it unasked.
    fn send_batch(&self, batch: &mut ListBatch) -> Result<()> {
        batch.send(&self.to)?;
        let files = std::mem::take(&mut batch.files);
        if batch.unasked_left == 0 || self.state.lock().is_answered {
            batch.unasked_left = 0;
            return Ok(());
        }
        for file in files {
            let len = file.offer(batch.unasked_left);
            batch.unasked_left -= len;
            let mut pieces = Vec::new();
            plan_range(&file.source, file.number, 0, len, &mut pieces);
            let mut state = self.state.lock();
            pieces.into_iter().for_each(|piece| state.plan.want(piece));
        }
        self.changed.notify_all();
        Ok(())
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
        self.send_batch(batch)?;
        let state = self.changed.wait_while(self.state.lock(), |s| is_full(s) && !s.is_over);
        ensure!(!state.is_over, "the copy has ended");
        Ok(())
    }

    /// Takes what the receiver says, to the end. It sends nothing: a receiver may wait until what
    /// it says is taken before it takes more.
    fn listen(&self, channel: &MessageChannel) -> Result<()> {
        let mut receiver = channel.receiver();
        while let Some(message) = receiver.recv()? {
            let replies = parse_replies(&message.into_bytes()?)?;
            self.state.lock().is_answered = true;
            for reply in replies {
                match reply {
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
            // Once for all: those who read, and who waits to list more.
            self.changed.notify_all();
        }
        bail!("the far end stopped before the copy was over")
    }

    fn want(&self, number: u64, ranges: &[(u64, u64)]) -> Result<()> {
        let file = self.state.lock().files.get(&number).cloned();
        let file = file.context("the far end wants a file that was not listed")?;
        wanted_bytes(ranges, file.source.size)?;
        let most = if file.is_large() { RANGES_MAX } else { 1 };
        let (count, shown) = (ranges.len(), file.source.show());
        ensure!(count <= most, "the far end wants {count} ranges of {shown}: more than {most}");
        let Wanted { ranges, needs_last, sent } =
            file.want(ranges).context("the far end wants a file twice")?;
        self.count(sent);
        let mut pieces = Vec::new();
        for (start, end) in ranges {
            plan_range(&file.source, number, start, end, &mut pieces);
        }
        if needs_last {
            pieces.push(PlannedPiece { file: number, offset: 0, len: 0, is_hole: true });
        }
        let mut state = self.state.lock();
        pieces.into_iter().for_each(|piece| state.plan.want(piece));
        Ok(())
    }

    fn count(&self, bytes: BytesCount) {
        add(&self.meter.bytes_done, bytes.done);
        add(&self.meter.bytes_moved, bytes.moved);
    }

    fn close(&self, number: u64, outcome: FileOutcome) -> Result<()> {
        let mut state = self.state.lock();
        let file = state.files.remove(&number);
        let file = file.context("the far end closed a file that was not listed")?;
        state.large -= usize::from(file.is_large());
        let is_failure_told = file.close();
        if matches!(outcome, FileOutcome::Failed(_)) {
            state.plan.forget(number);
        }
        drop(state);
        match outcome {
            FileOutcome::Complete => {
                add(&self.meter.files_done, 1);
                self.meter.file(&file.source.show());
            }
            FileOutcome::Skipped => {
                add(&self.meter.files_skipped, 1);
                add(&self.meter.bytes_done, file.source.size);
            }
            // What failed here was told already.
            FileOutcome::Failed(_) if is_failure_told => {}
            FileOutcome::Failed(why) => self.meter.problem(&escape(why.as_bytes())),
        }
        Ok(())
    }

    /// One of the threads that read, hash and send.
    fn read_and_send(&self) -> Result<()> {
        let mut room = vec![0; PIECE_MAX as usize];
        loop {
            let Some(planned) = self.next_pieces() else { return Ok(()) };
            self.send_pieces(&planned, &mut room)?;
        }
    }

    /// The pieces of the next message, once the rate allows it; `None` at the end. Those of files
    /// that are closed meanwhile are not waited for: many are, where what is sent unasked is there.
    fn next_pieces(&self) -> Option<Vec<PlannedPiece>> {
        let mut planned: Vec<PlannedPiece> = Vec::new();
        let mut state = self.state.lock();
        loop {
            planned.retain(|piece| state.files.contains_key(&piece.file));
            if state.is_over {
                return None;
            }
            if planned.is_empty() {
                planned = state.plan.next_pieces().unwrap_or_default();
                if planned.is_empty() {
                    let is_idle = |state: &mut SendState| state.plan.is_empty() && !state.is_over;
                    state = self.changed.wait_while(state, is_idle);
                }
                continue;
            }
            let sent = planned.iter().filter(|piece| !piece.is_hole);
            // Before they count as done.
            match self.throttle.take(sent.map(|piece| piece.len as usize).sum()) {
                Ok(()) => return Some(planned),
                Err(wait) => {
                    let is_same = |state: &mut SendState| {
                        let is_open = |piece: &PlannedPiece| state.files.contains_key(&piece.file);
                        !state.is_over && planned.iter().all(is_open)
                    };
                    state = self.changed.wait_timeout_while(state, wait, is_same);
                }
            }
        }
    }

    fn send_pieces(&self, planned: &[PlannedPiece], room: &mut [u8]) -> Result<()> {
        let mut used = 0;
        let mut pieces = Vec::with_capacity(planned.len());
        for piece in planned {
            let Some(file) = self.state.lock().files.get(&piece.file).cloned() else { continue };
            match file.read_piece(piece, &mut room[used..]) {
                Ok(Some((piece, count))) => {
                    used += piece.hash.map_or(0, |_| piece.len as usize);
                    self.count(count);
                    pieces.push(piece);
                }
                Ok(None) => {
                    if let Some(why) = file.take_untold() {
                        self.tell_failure(file.number, why)?;
                    }
                }
                Err(error) => self.fail(&file, &error)?,
            }
        }
        let payload = &room[..used];
        match pieces.is_empty() {
            true => Ok(()),
            false => send_message(&self.to, &ToReceiver::Pieces(pieces), payload),
        }
    }

    /// A file cannot be read: the receiver closes it, if it wants it.
    fn fail(&self, file: &SentFile, error: &io::Error) -> Result<()> {
        match file.fail(error) {
            Some(why) => self.tell_failure(file.number, why),
            None => Ok(()),
        }
    }

    fn tell_failure(&self, number: u64, why: String) -> Result<()> {
        self.meter.problem(&why);
        send_message(&self.to, &ToReceiver::Failed { file: number, why }, &[])
    }
}

/// Entries that are to be listed together.
#[derive(Default)]
struct ListBatch {
    entries: Vec<ListedEntry>,
    bytes: usize,
    /// Files among them.
    files: Vec<Arc<SentFile>>,
    /// Bytes that may still be sent unasked.
    unasked_left: u64,
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
        let data = match rustix::fs::seek(opened.as_fd(), SeekFrom::Data(at)) {
            Ok(data) => data.min(end),
            // No data behind it.
            Err(Errno::NXIO) => end,
            // Whether there is some is found out by reading it.
            Err(_) => return push(at, end, false),
        };
        push(at, data, true);
        let hole = rustix::fs::seek(opened.as_fd(), SeekFrom::Hole(data)).unwrap_or(end).min(end);
        push(data, hole.max(data), false);
        at = hole.max(data);
        if data == at && at < end {
            return push(at, end, false);
        }
    }
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
