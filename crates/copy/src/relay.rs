//! From host to host through this one: passes on what a sender and a receiver say to each other.
//!
//! Invariant: messages go on as they came, and what is shown is read from them.
//!
//! Order: [`relay`] is all.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, bail};
use weft_session::MessageChannel;
use weft_sync::Mutex;

use crate::messages::{
    FileOutcome, FilePiece, ListedKind, OPEN_FILES_MAX, ToReceiver, ToSender, parse_message,
    parse_replies,
};
use crate::meter::{Meter, add};
use crate::rel_path::escape;

/// Passes messages on until the copy is over.
///
/// # Errors
/// It could not go on.
pub fn relay(sender: &MessageChannel, receiver: &MessageChannel, meter: &Meter) -> Result<()> {
    let counts = Mutex::default();
    thread::scope(|scope| {
        let forward = scope.spawn(|| to_receiver(sender, receiver, meter, &counts));
        let outcome = to_sender(receiver, sender, meter, &counts);
        if let Err(error) = &outcome {
            sender.abort(&format!("{error:#}"));
        }
        let forwarded = forward.join().map_err(|_| anyhow::anyhow!("passing on has failed"))?;
        outcome.and(forwarded)
    })
}

/// Which pieces count as copied: those of files that are wanted, also if they came unasked. Of more
/// files than may be open at once nothing is counted.
#[derive(Default)]
struct PieceCounts {
    wanted: HashSet<u64>,
    /// Bytes that came before their file was wanted: of the file, and on the way.
    early: HashMap<u64, (u64, u64)>,
}

impl PieceCounts {
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

    fn close(&mut self, file: u64) {
        self.wanted.remove(&file);
        self.early.remove(&file);
    }
}

fn count((done, moved): (u64, u64), meter: &Meter) {
    add(&meter.bytes_done, done);
    add(&meter.bytes_moved, moved);
}

fn to_receiver(
    from: &MessageChannel,
    to: &MessageChannel,
    meter: &Meter,
    counts: &Mutex<PieceCounts>,
) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    let passed = || -> Result<()> {
        while let Some(message) = incoming.recv()? {
            let bytes = message.into_bytes()?;
            let (head, _) = parse_message::<ToReceiver>(&bytes)?;
            match head {
                ToReceiver::Entries(entries) => {
                    for entry in entries {
                        if let ListedKind::File { size, .. } = entry.kind {
                            add(&meter.files, 1);
                            add(&meter.bytes, size);
                        }
                    }
                }
                ToReceiver::Pieces(pieces) => {
                    let mut counts = counts.lock();
                    pieces.iter().for_each(|piece| counts.passed(piece, meter));
                }
                ToReceiver::Problem(why) => meter.problem(&escape(why.as_bytes())),
                ToReceiver::Listed { .. } => meter.is_listed.store(true, Ordering::Relaxed),
                _ => {}
            }
            outgoing.send(&[&bytes])?;
        }
        Ok(())
    };
    let mut passed = passed;
    passed().inspect_err(|error| to.abort(&format!("the source's host: {error:#}")))
}

fn to_sender(
    from: &MessageChannel,
    to: &MessageChannel,
    meter: &Meter,
    counts: &Mutex<PieceCounts>,
) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    while let Some(message) = incoming.recv().context("the destination's host")? {
        let bytes = message.into_bytes()?;
        let replies = parse_replies(&bytes)?;
        outgoing.send(&[&bytes]).context("the source's host")?;
        for reply in replies {
            if let ToSender::Closed { file, .. } = reply {
                counts.lock().close(file);
            }
            match reply {
                ToSender::Closed { outcome: FileOutcome::Complete, .. } => {
                    add(&meter.files_done, 1);
                }
                ToSender::Closed { outcome: FileOutcome::Skipped, .. } => {
                    add(&meter.files_skipped, 1);
                }
                ToSender::Closed { outcome: FileOutcome::Failed(why), .. }
                | ToSender::Problem(why) => meter.problem(&escape(why.as_bytes())),
                ToSender::Wants { file, .. } => counts.lock().want(file, meter),
                ToSender::Fatal(why) => bail!("{}", escape(why.as_bytes())),
                ToSender::Finished => return Ok(()),
            }
        }
    }
    bail!("the destination's host stopped before the copy was over")
}
