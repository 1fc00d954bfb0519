//! From host to host through this one: passes on what a sender and a receiver say to each other.
//!
//! Invariant: messages go on as they came, and what is shown is read from them. An entry that the
//! sender was not asked for ends the copy: the receiver, which does as it is told from here, does
//! not know what that was. One that would replace what another host has sent is refused: the
//! receivers do not know of each other.
//!
//! Order: [`relay`] is all.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use weft_session::{ChannelSender, MessageChannel};
use weft_sync::Mutex;

use crate::asked_names::AskedNames;
use crate::messages::{
    FileOutcome, FilePiece, ListedEntry, ListedKind, OPEN_FILES_MAX, ToReceiver, ToSender,
    is_single, parse_message, parse_replies, send_message, send_replies,
};
use crate::meter::{Meter, add};
use crate::path_set::{IS_TAKEN, PathSet};
use crate::rel_path::escape;
use crate::threads::spawn;

/// Passes messages on until the copy is over. The sender may list what it was `asked` for. If
/// several hosts send in turn, `taken` has what those before have listed.
///
/// # Errors
/// It could not go on.
pub fn relay(
    sender: &MessageChannel,
    receiver: &MessageChannel,
    asked: &AskedNames,
    taken: Option<&PathSet>,
    meter: &Meter,
) -> Result<()> {
    meter.is_listed.store(false, Ordering::Relaxed);
    let files = Mutex::default();
    let list = RelayedList {
        listed: 0,
        asked,
        is_single: true,
        taken,
        refused: PathSet::default(),
        sender: sender.sender(),
        meter,
    };
    thread::scope(|scope| {
        let forward = spawn(scope, || to_receiver(sender, receiver, list, &files))
            .inspect_err(|error| sender.abort(&format!("{error:#}")))?;
        let outcome = to_sender(receiver, sender, meter, &files);
        if let Err(error) = &outcome {
            sender.abort(&format!("{error:#}"));
        }
        let forwarded = forward.join().map_err(|_| anyhow::anyhow!("passing on has failed"))?;
        outcome.and(forwarded)
    })
}

/// Files that are passed on, and which of their pieces count as copied: those of files that are
/// wanted, also if they came unasked. Of more files than may be open at once nothing is known.
#[derive(Default)]
struct RelayedFiles {
    /// Names of files that are not closed.
    names: HashMap<u64, Vec<u8>>,
    /// The receiver has said its last word.
    is_finished: bool,
    wanted: HashSet<u64>,
    /// Bytes that came before their file was wanted: of the file, and on the way.
    early: HashMap<u64, (u64, u64)>,
}

impl RelayedFiles {
    fn passed(&mut self, piece: &FilePiece, meter: &Meter) {
        let bytes = (piece.len, piece.hash.map_or(0, |_| piece.len));
        if self.wanted.contains(&piece.file) {
            return count(bytes, meter);
        }
        if self.early.len() < OPEN_FILES_MAX {
            let early = self.early.entry(piece.file).or_default();
            *early = (early.0.saturating_add(bytes.0), early.1.saturating_add(bytes.1));
        }
    }

    fn want(&mut self, file: u64, meter: &Meter) {
        if self.wanted.len() < OPEN_FILES_MAX {
            self.wanted.insert(file);
        }
        count(self.early.remove(&file).unwrap_or_default(), meter);
    }

    fn list(&mut self, file: u64, name: &[u8]) {
        if self.names.len() < OPEN_FILES_MAX {
            self.names.insert(file, name.to_vec());
        }
    }

    /// The name of the file.
    fn close(&mut self, file: u64) -> Option<Vec<u8>> {
        self.wanted.remove(&file);
        self.early.remove(&file);
        self.names.remove(&file)
    }
}

fn count((done, moved): (u64, u64), meter: &Meter) {
    add(&meter.bytes_done, done);
    add(&meter.bytes_moved, moved);
}

/// What a sender lists, and what of it is refused here.
struct RelayedList<'a> {
    listed: u64,
    asked: &'a AskedNames,
    /// The sender has not begun a copy of more than a single file.
    is_single: bool,
    taken: Option<&'a PathSet>,
    /// Files that were refused.
    refused: PathSet,
    sender: ChannelSender,
    meter: &'a Meter,
}

impl RelayedList<'_> {
    /// Takes entries of the list; whether one was refused, and is another now.
    fn take(&mut self, entries: &mut [ListedEntry], files: &Mutex<RelayedFiles>) -> Result<bool> {
        let mut is_changed = false;
        for entry in entries {
            self.asked.check(entry, self.is_single)?;
            if let ListedKind::File { size, .. } = entry.kind {
                add(&self.meter.files, 1);
                add(&self.meter.bytes, size);
                files.lock().list(self.listed, &entry.path);
            }
            if self.is_taken(entry)? {
                is_changed = true;
                if matches!(entry.kind, ListedKind::File { .. }) {
                    files.lock().close(self.listed);
                }
                self.refuse(entry)?;
            }
            self.listed += 1;
        }
        Ok(is_changed)
    }

    fn is_taken(&self, entry: &ListedEntry) -> Result<bool> {
        let Some(taken) = self.taken else { return Ok(false) };
        match &entry.kind {
            ListedKind::Directory => Ok(false),
            ListedKind::Hardlink { to } if self.refused.contains(to) => Ok(true),
            _ => Ok(!taken.insert(&entry.path)?),
        }
    }

    fn refuse(&self, entry: &mut ListedEntry) -> Result<()> {
        let why = format!("{}: {IS_TAKEN}", escape(&entry.path));
        self.meter.problem(&why);
        let path = match &entry.kind {
            ListedKind::Hardlink { to } => to.clone(),
            _ => entry.path.clone(),
        };
        if matches!(entry.kind, ListedKind::File { .. }) {
            self.refused.insert(&path)?;
            let outcome = FileOutcome::Failed(why);
            send_replies(&self.sender, &[ToSender::Closed { file: self.listed, outcome }])?;
        }
        // The numbers of those behind it stay, and a link of a file to itself changes nothing.
        (entry.path, entry.kind) = (path.clone(), ListedKind::Hardlink { to: path });
        Ok(())
    }
}

fn to_receiver(
    from: &MessageChannel,
    to: &MessageChannel,
    mut list: RelayedList<'_>,
    files: &Mutex<RelayedFiles>,
) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    let meter = list.meter;
    let mut passed = || -> Result<()> {
        while let Some(message) = incoming.recv()? {
            let bytes = message.into_bytes()?;
            let (head, _) = parse_message::<ToReceiver>(&bytes)?;
            match head {
                ToReceiver::Begin { sources, has_directory } => {
                    list.is_single = is_single(sources, has_directory);
                }
                ToReceiver::Entries(mut entries) => {
                    let is_changed = list.take(&mut entries, files)?;
                    if is_changed {
                        send_message(&outgoing, &ToReceiver::Entries(entries), &[])?;
                        continue;
                    }
                }
                ToReceiver::Pieces(pieces) => {
                    let mut files = files.lock();
                    pieces.iter().for_each(|piece| files.passed(piece, meter));
                }
                ToReceiver::Problem(why) => meter.problem(&escape(why.as_bytes())),
                ToReceiver::Listed { .. } => meter.is_listed.store(true, Ordering::Relaxed),
                _ => {}
            }
            outgoing.send(&[&bytes])?;
        }
        ensure!(files.lock().is_finished, "it stopped before the copy was over");
        Ok(())
    };
    passed().inspect_err(|error| to.abort(&format!("the source's host: {error:#}")))
}

fn to_sender(
    from: &MessageChannel,
    to: &MessageChannel,
    meter: &Meter,
    files: &Mutex<RelayedFiles>,
) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    while let Some(message) = incoming.recv().context("the destination's host")? {
        let bytes = message.into_bytes()?;
        let replies = parse_replies(&bytes)?;
        // Before the sender hears of it, and may leave.
        files.lock().is_finished |= replies.contains(&ToSender::Finished);
        outgoing.send(&[&bytes]).context("the source's host")?;
        for reply in replies {
            let name = match reply {
                ToSender::Closed { file, .. } => files.lock().close(file),
                _ => None,
            };
            match reply {
                ToSender::Closed { outcome: FileOutcome::Complete, .. } => {
                    add(&meter.files_done, 1);
                    if let Some(name) = name {
                        meter.file(&escape(&name));
                    }
                }
                ToSender::Closed { outcome: FileOutcome::Skipped, .. } => {
                    add(&meter.files_skipped, 1);
                }
                ToSender::Closed { outcome: FileOutcome::Failed(why), .. }
                | ToSender::Problem(why) => meter.problem(&escape(why.as_bytes())),
                ToSender::Wants { file, .. } => files.lock().want(file, meter),
                ToSender::Fatal(why) => bail!("{}", escape(why.as_bytes())),
                ToSender::Finished => return Ok(()),
            }
        }
    }
    bail!("the destination's host stopped before the copy was over")
}
