//! From host to host through this one: passes on what a sender and a receiver say to each other.
//!
//! Invariant: messages go on as they came, and what is shown is read from them.
//!
//! Order: [`relay`] is all.

use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Context, Result, bail};
use weft_session::MessageChannel;

use crate::messages::{FileOutcome, ListedKind, ToReceiver, ToSender, parse_message};
use crate::meter::{Meter, add};
use crate::rel_path::escape;

/// Passes messages on until the copy is over.
///
/// # Errors
/// It could not go on.
pub fn relay(sender: &MessageChannel, receiver: &MessageChannel, meter: &Meter) -> Result<()> {
    thread::scope(|scope| {
        let forward = scope.spawn(|| to_receiver(sender, receiver, meter));
        let outcome = to_sender(receiver, sender, meter);
        if let Err(error) = &outcome {
            sender.abort(&format!("{error:#}"));
        }
        let forwarded = forward.join().map_err(|_| anyhow::anyhow!("passing on has failed"))?;
        outcome.and(forwarded)
    })
}

fn to_receiver(from: &MessageChannel, to: &MessageChannel, meter: &Meter) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    let passed = || -> Result<()> {
        while let Some(message) = incoming.recv()? {
            let bytes = message.into_bytes()?;
            let (head, payload) = parse_message::<ToReceiver>(&bytes)?;
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
                    add(&meter.bytes_done, pieces.iter().map(|piece| piece.len).sum());
                    add(&meter.bytes_moved, payload.len() as u64);
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

fn to_sender(from: &MessageChannel, to: &MessageChannel, meter: &Meter) -> Result<()> {
    let (mut incoming, outgoing) = (from.receiver(), to.sender());
    while let Some(message) = incoming.recv().context("the destination's host")? {
        let bytes = message.into_bytes()?;
        let (head, _) = parse_message::<ToSender>(&bytes)?;
        outgoing.send(&[&bytes]).context("the source's host")?;
        match head {
            ToSender::Closed { outcome: FileOutcome::Complete, .. } => add(&meter.files_done, 1),
            ToSender::Closed { outcome: FileOutcome::Skipped, .. } => add(&meter.files_skipped, 1),
            ToSender::Closed { outcome: FileOutcome::Failed(why), .. } | ToSender::Problem(why) => {
                meter.problem(&escape(why.as_bytes()));
            }
            ToSender::Wants { .. } => {}
            ToSender::Fatal(why) => bail!("{}", escape(why.as_bytes())),
            ToSender::Finished => return Ok(()),
        }
    }
    bail!("the destination's host stopped before the copy was over")
}
