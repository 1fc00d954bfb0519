//! Standard input as a file at the far end, and a file there as standard output: `-`.
//!
//! Pieces go in order, each with its hash, and an empty last one says that all was read. Neither is
//! resumed: what was read from a pipe cannot be read again.
//!
//! Invariant: the file has its name only when it is whole and durable.
//!
//! Order: [`send`] at one end, [`receive`] or [`receive_file`] at the other.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{FileType, Mode};
use weft_os::blocking::Blocking;
use weft_session::{ChannelSender, MessageChannel};

use crate::destination::{DestinationTree, EntryPlace, PartialUse};
use crate::messages::{
    FilePiece, PIECE_MAX, ToReceiver, ToSender, parse_message, parse_replies, send_message,
    send_replies,
};
use crate::meter::{Meter, add};
use crate::received_file::forget_record;
use crate::rel_path::{PART, RelPath, escape};
use crate::throttle::Throttle;

/// Sends all of `input`, and waits until the far end has it.
///
/// # Errors
/// It cannot be read, the channel has failed, or the far end said why it could not go on.
pub fn send(
    channel: &MessageChannel,
    input: impl Read + AsFd,
    limit_bps: Option<u64>,
    meter: &Meter,
) -> Result<()> {
    add(&meter.files, 1);
    if let Err(error) = send_pieces(&channel.sender(), Blocking(input), limit_bps, meter) {
        let why = format!("{error:#}");
        // What a failed channel could not carry is told here all the same.
        let _ = send_message(&channel.sender(), &ToReceiver::Problem(why), &[]);
        // The far end has often said why the channel ended.
        return Err(said_by_receiver(channel).unwrap_or(error));
    }
    match said_by_receiver(channel) {
        Some(error) => Err(error),
        None => {
            add(&meter.files_done, 1);
            Ok(())
        }
    }
}

fn send_pieces(
    to: &ChannelSender,
    mut input: impl Read,
    limit_bps: Option<u64>,
    meter: &Meter,
) -> Result<()> {
    let throttle = Throttle::new(limit_bps);
    let mut offset = 0;
    let mut payload = Vec::new();
    loop {
        payload.clear();
        input.by_ref().take(PIECE_MAX).read_to_end(&mut payload).context("reading")?;
        let len = payload.len() as u64;
        let hash = (len > 0).then(|| *blake3::hash(&payload).as_bytes());
        let piece = FilePiece { file: 0, offset, len, hash, is_last: len == 0 };
        throttle.wait(payload.len());
        send_message(to, &ToReceiver::Pieces(vec![piece]), &payload)?;
        if len == 0 {
            return Ok(());
        }
        offset += len;
        count(meter, len);
    }
}

/// Why the receiver could not go on; `None` if it has all.
fn said_by_receiver(channel: &MessageChannel) -> Option<anyhow::Error> {
    let mut incoming = channel.receiver();
    let mut next = || -> Result<Vec<ToSender>> {
        let message = incoming.recv()?.context("the far end stopped before the copy was over")?;
        parse_replies(&message.into_bytes()?)
    };
    let said = match next() {
        Ok(said) => said,
        Err(error) => return Some(error),
    };
    match &said[..] {
        [ToSender::Finished] => None,
        [ToSender::Fatal(why)] => Some(anyhow::anyhow!("{}", escape(why.as_bytes()))),
        _ => Some(anyhow::anyhow!("the far end answered something else")),
    }
}

/// Writes what comes to `output`.
///
/// # Errors
/// A piece is damaged, `output` takes no more, or the sender could not go on.
pub fn receive(channel: &MessageChannel, output: impl Write + AsFd, meter: &Meter) -> Result<()> {
    add(&meter.files, 1);
    let outcome = receive_pieces(channel, &mut Blocking(output), meter);
    match &outcome {
        Ok(()) => {
            add(&meter.files_done, 1);
            send_replies(&channel.sender(), &[ToSender::Finished])?;
        }
        Err(error) => {
            let fatal = ToSender::Fatal(format!("{error:#}"));
            let _ = send_replies(&channel.sender(), &[fatal]);
        }
    }
    outcome
}

fn receive_pieces(channel: &MessageChannel, output: &mut impl Write, meter: &Meter) -> Result<()> {
    let mut incoming = channel.receiver();
    let mut at = 0;
    let mut bytes = Vec::new();
    while let Some(message) = incoming.recv()? {
        message.read_into(&mut bytes)?;
        let (head, payload) = parse_message::<ToReceiver>(&bytes)?;
        let pieces = match head {
            ToReceiver::Pieces(pieces) => pieces,
            ToReceiver::Problem(why) => bail!("{}", escape(why.as_bytes())),
            _ => bail!("the far end sent something else than a stream"),
        };
        let [piece] = &pieces[..] else { bail!("the far end sent a stream out of order") };
        let fits = piece.offset == at && piece.len == payload.len() as u64;
        ensure!(fits, "the far end sent a stream out of order");
        if piece.is_last && payload.is_empty() {
            return output.flush().context("writing");
        }
        let is_right = piece.hash.is_some_and(|hash| blake3::hash(payload) == hash);
        ensure!(is_right, "a piece was damaged in transit; run the same command again");
        output.write_all(payload).context("writing")?;
        at += piece.len;
        count(meter, piece.len);
    }
    bail!("the far end stopped before the copy was over")
}

/// Writes what comes to the file `destination`.
///
/// # Errors
/// As [`receive`]; or it cannot be made, or a directory has its name.
pub fn receive_file(channel: &MessageChannel, destination: &[u8], meter: &Meter) -> Result<()> {
    let mut file = NewFile::open(destination).inspect_err(|error| {
        let _ = send_replies(&channel.sender(), &[ToSender::Fatal(format!("{error:#}"))]);
    })?;
    let outcome = receive(channel, &mut file, meter);
    outcome.inspect_err(|_| file.discard())
}

/// A file that is written under another name until [`Write::flush`] says that it is whole.
struct NewFile {
    file: File,
    place: EntryPlace,
}

impl NewFile {
    fn open(destination: &[u8]) -> Result<Self> {
        let shown = escape(destination);
        let is_dir =
            destination.ends_with(b"/") || Path::new(OsStr::from_bytes(destination)).is_dir();
        ensure!(!is_dir, "{shown} is a directory: a stream needs a name");
        let tree = DestinationTree::open(destination, 1, false, false)?;
        let path = tree.map(RelPath::parse(b"-")?, true)?;
        let place = tree.place(&path)?.with_context(|| format!("{shown} has no place"))?;
        place.check_replaceable().with_context(|| format!("cannot make {shown}"))?;
        let part = place.beside(PART).open_partial(PartialUse::Anew);
        let file = part.with_context(|| format!("cannot make {shown}"))?;
        let empty = || -> io::Result<()> {
            forget_record(&place)?;
            file.set_len(0)
        };
        empty().with_context(|| format!("cannot make {shown}"))?;
        Ok(Self { file, place })
    }

    /// The permissions of what it replaces, or those of any new file.
    fn mode(&self) -> io::Result<Mode> {
        let there = self.place.stat()?;
        let is_file = |mode| FileType::from_raw_mode(mode) == FileType::RegularFile;
        Ok(match there.filter(|stat| is_file(stat.st_mode)) {
            Some(stat) => Mode::from_raw_mode(stat.st_mode & 0o777),
            None => Mode::from_raw_mode(0o666 & !umask()),
        })
    }

    fn discard(&self) {
        // The reason for which it is discarded is the one to tell.
        let _ = self.place.beside(PART).remove();
    }
}

impl AsFd for NewFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        rustix::fs::fchmod(&self.file, self.mode()?)?;
        rustix::fs::fsync(&self.file)?;
        self.place.beside(PART).rename_open(&self.file, &self.place)?;
        Ok(rustix::fs::fsync(&*self.place.dir)?)
    }
}

/// The permissions that new files do not get. Read where it needs not be set for a moment, which
/// other threads would see.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let told = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    told.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o077)
}

fn count(meter: &Meter, bytes: u64) {
    for counter in [&meter.bytes, &meter.bytes_done, &meter.bytes_moved] {
        add(counter, bytes);
    }
}
