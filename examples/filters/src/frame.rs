//! What travels on a stream: frames, each with its kind and length before it.
//!
//! Downstream go a Hello, then for each query a Query, its Units and an End, then Done. Upstream
//! come two answers: Ready to the Hello, once the whole rest of the chain is there, and Done to
//! Done, once it has finished. Failed may take the place of any frame, either way.
//!
//! Invariant: no frame is longer than [`LONGEST`], so nothing that a peer says makes us hold more.

use std::io::{self, ErrorKind, Read};

use anyhow::{Error, Result, anyhow, bail, ensure};

/// Bytes before each frame: the kind, then the length of what follows in three.
pub const HEADER: usize = 4;
/// The most bytes of a frame, with its header.
pub const LONGEST: usize = 1 << 16;
/// The bytes that tell a record's length, before it.
pub const RECORD: usize = 2;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameKind {
    /// Who speaks, and the size of its units; JSON.
    Hello = 1,
    /// The rest of the chain is there.
    Ready,
    /// A query begins.
    Query,
    /// Records, each after its length in two bytes.
    Unit,
    /// The end of work; the flows of all streams so far, JSON.
    End,
    /// There are no more queries; upstream, the report.
    Done,
    /// A filter failed; text that says which, and why.
    Failed,
}

const KINDS: [FrameKind; 7] = [
    FrameKind::Hello,
    FrameKind::Ready,
    FrameKind::Query,
    FrameKind::Unit,
    FrameKind::End,
    FrameKind::Done,
    FrameKind::Failed,
];

/// Writes the header of a frame into its first bytes; the rest of `frame` is its content.
///
/// # Errors
/// It is longer than a frame may be.
pub fn seal(frame: &mut [u8], kind: FrameKind) -> Result<()> {
    ensure!(frame.len() <= LONGEST, "{} bytes do not fit into a frame", frame.len());
    let length = (frame.len() - HEADER) as u32;
    frame[..HEADER].copy_from_slice(&((kind as u32) << 24 | length).to_be_bytes());
    Ok(())
}

/// A frame of `content`.
///
/// # Errors
/// It is longer than a frame may be.
pub fn frame(kind: FrameKind, content: &[u8]) -> Result<Vec<u8>> {
    let mut frame = [&[0; HEADER], content].concat();
    seal(&mut frame, kind)?;
    Ok(frame)
}

/// Reads a frame into `buffer`, header and all.
///
/// # Errors
/// The stream ended or broke, or has something else on it.
pub fn read(from: &mut impl Read, buffer: &mut Vec<u8>) -> Result<FrameKind> {
    buffer.resize(HEADER, 0);
    from.read_exact(buffer).map_err(ended)?;
    let word = u32::from_be_bytes([buffer[0], buffer[1], buffer[2], buffer[3]]);
    let Some(kind) = KINDS.into_iter().find(|kind| *kind as u32 == word >> 24) else {
        bail!("what comes is not a filter's stream: {buffer:02x?}");
    };
    let length = HEADER + (word & 0xff_ffff) as usize;
    ensure!(length <= LONGEST, "a frame of {length} bytes; {LONGEST} is the most");
    buffer.resize(length, 0);
    from.read_exact(&mut buffer[HEADER..]).map_err(ended)?;
    Ok(kind)
}

/// An end is told in words of its own.
fn ended(error: io::Error) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => anyhow!("it ended before its work did"),
        _ => error.into(),
    }
}

/// The records of a unit.
pub fn records(mut unit: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    std::iter::from_fn(move || {
        if unit.is_empty() {
            return None;
        }
        let record = split(unit);
        unit = record.as_ref().map_or(&[], |(_, rest)| *rest);
        Some(record.map(|(record, _)| record))
    })
}

fn split(unit: &[u8]) -> Result<(&[u8], &[u8])> {
    let parts = unit.split_first_chunk().and_then(|(length, rest): (&[u8; RECORD], _)| {
        rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
    });
    parts.ok_or_else(|| anyhow!("a record that is longer than its unit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_framed_is_read() {
        let stream =
            [frame(FrameKind::Query, b"q").unwrap(), frame(FrameKind::Done, b"").unwrap()].concat();
        let (mut from, mut buffer) = (stream.as_slice(), Vec::new());
        assert_eq!(read(&mut from, &mut buffer).unwrap(), FrameKind::Query);
        assert_eq!(buffer[HEADER..], *b"q");
        assert_eq!(read(&mut from, &mut buffer).unwrap(), FrameKind::Done);
        assert!(frame(FrameKind::Unit, &[0; LONGEST]).is_err());
    }

    #[test]
    fn strangers_and_ends_are_errors() {
        let error = |mut from: &[u8]| read(&mut from, &mut Vec::new()).unwrap_err();
        assert!(error(b"GET / HTTP/1.1").to_string().contains("not a filter's stream"));
        assert!(error(&[4, 1, 0, 0]).to_string().contains("a frame of 65540 bytes"));
        for cut in [&[4][..], &[4, 0, 0, 9, 1]] {
            assert!(error(cut).to_string().contains("ended before"), "{cut:?}");
        }
    }

    #[test]
    fn a_unit_falls_into_its_records() {
        let taken: Vec<&[u8]> =
            records(&[0, 1, 7, 0, 0, 0, 2, 8, 9]).collect::<Result<_>>().unwrap();
        assert_eq!(taken, [&[7][..], &[], &[8, 9]]);
        for unit in [&[0][..], &[0, 2, 1], &[0, 1, 7, 0]] {
            assert!(records(unit).any(|record| record.is_err()), "{unit:?}");
        }
    }
}
