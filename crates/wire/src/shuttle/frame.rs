//! The frames of a control packet (`docs/shuttle.md`, "Frames").

use super::varint::{self, Reader};
use super::{PN_BITS, PathId, ShuttleError, StreamId};

const PADDING: u8 = 0x00;
const PING: u8 = 0x01;
const ACK: u8 = 0x02;
const STREAM: u8 = 0x03;
const CREDIT: u8 = 0x04;
const QUERY: u8 = 0x05;
const FLOOR: u8 = 0x06;
const CHALLENGE: u8 = 0x07;
const RESPONSE: u8 = 0x08;
const CLOSE: u8 = 0x09;
const CLOSED: u8 = 0x0a;
const RATE: u8 = 0x0b;
const SKIP: u8 = 0x0c;
const INTERVAL: u8 = 0x0d;

/// Octets that a frame without ranges takes at most.
pub const MAX_PLAIN_FRAME: usize = 20;
/// Octets of an Ack before its ranges at most.
pub const MAX_ACK_HEAD: usize = 2 + 7 * 8;

/// What has arrived on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack<'a> {
    /// The path that it tells of, whichever it travels on.
    pub path: PathId,
    /// The largest packet number that has arrived.
    pub largest: u64,
    /// Every number below has arrived or is of no interest to its sender any more.
    pub floor: u64,
    /// Time between the arrival of `largest` and the sending of this frame.
    pub delay_us: u64,
    /// The receiver's clock when `largest` arrived, modulo 2^32 microseconds.
    pub arrived_us: u32,
    /// Packets that arrived with a congestion mark.
    pub marked: u64,
    /// Packets that the receiver's own host dropped.
    pub dropped: u64,
    /// A stretch of what arrived, from the top down.
    pub ranges: Ranges<'a>,
}

/// Numbers that have arrived, as runs from the top down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranges<'a> {
    /// The largest number that they cover.
    pub top: u64,
    /// Run, then pairs of hole and run, each less one.
    octets: &'a [u8],
}

impl<'a> Ranges<'a> {
    /// Checks the runs, so that iterating needs no error.
    fn parse(top: u64, octets: &'a [u8]) -> Result<Self, ShuttleError> {
        let (mut reader, mut below) = (Reader(octets), top + 1);
        let invalid = ShuttleError::Value("ranges");
        loop {
            let run = reader.varint()? + 1;
            below = below.checked_sub(run).ok_or(invalid)?;
            if reader.is_empty() {
                return Ok(Self { top, octets });
            }
            let hole = reader.varint()? + 1;
            below = below.checked_sub(hole).ok_or(invalid)?;
        }
    }

    /// Encodes `runs`, which descend and do not touch, until `limit` octets are reached. Gives the
    /// ranges, and the lowest number that they hold.
    pub fn encode(
        runs: impl IntoIterator<Item = (u64, u64)>,
        limit: usize,
        room: &'a mut Vec<u8>,
    ) -> Option<(Self, u64)> {
        room.clear();
        let (mut top, mut below) = (None, 0);
        for (first, last) in runs {
            let before = room.len();
            if top.is_some() {
                varint::put(below - last - 2, room);
            }
            varint::put(last - first, room);
            if room.len() > limit {
                room.truncate(before);
                break;
            }
            top.get_or_insert(last);
            below = first;
        }
        Some((Self { top: top?, octets: room }, below))
    }

    /// First and last number of each run, descending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let (mut reader, mut next) = (Reader(self.octets), self.top);
        let mut started = false;
        std::iter::from_fn(move || {
            if reader.is_empty() {
                return None;
            }
            if std::mem::replace(&mut started, true) {
                next -= reader.varint().ok()? + 2;
            }
            let first = next - reader.varint().ok()?;
            let run = (first, next);
            next = first;
            Some(run)
        })
    }
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Asks for nothing but an acknowledgement.
    Ping,
    /// Says what has arrived.
    Ack(Ack<'a>),
    /// Every segment of `stream` before `frontier` is placed.
    Stream {
        /// Which.
        stream: StreamId,
        /// Number of the first segment that is missing.
        frontier: u64,
    },
    /// Of the messages of `stream` those up to number `limit` have a receive, and one came that
    /// has none.
    Credit {
        /// Which.
        stream: StreamId,
        /// Message sequence number of the last one that has a receive.
        limit: u32,
        /// How long its sender should wait at a time for the next one to have one too.
        wait_us: u32,
    },
    /// Asks for the Stream and Credit frames of `stream`.
    Query {
        /// Which.
        stream: StreamId,
    },
    /// Packets of `path` below `pn` are of no interest any more.
    Floor {
        /// Which.
        path: PathId,
        /// The first number of interest.
        pn: u64,
    },
    /// Asks for a Response with the same token from where this was received.
    Challenge {
        /// Drawn at random.
        token: u64,
    },
    /// Answers a Challenge.
    Response {
        /// As in the Challenge.
        token: u64,
    },
    /// Ends the connection.
    Close {
        /// Why; 0 is an orderly end.
        reason: u64,
    },
    /// Answers a Close.
    Closed,
    /// The sender of this frame will not take more, or the network will not.
    Rate {
        /// Which path.
        path: PathId,
        /// Bits per second.
        rate_bps: u64,
    },
    /// The segments of `stream` before `dsn` that have not arrived will not come.
    Skip {
        /// Which.
        stream: StreamId,
        /// Number of the first segment that may still come.
        dsn: u64,
    },
    /// Acknowledgements of a path are wanted no more often than this: the way back is narrow.
    Interval {
        /// Which path.
        path: PathId,
        /// Time between two of them; 0 for what is usual.
        interval_us: u64,
    },
}

impl<'a> Frame<'a> {
    /// Whether the packet that carries it is acknowledged without delay and timed by its sender.
    pub fn elicits_ack(&self) -> bool {
        matches!(
            self,
            Self::Ping
                | Self::Query { .. }
                | Self::Skip { .. }
                | Self::Challenge { .. }
                | Self::Close { .. }
                | Self::Rate { .. }
                | Self::Interval { .. }
        )
    }

    /// Appends the frame as it travels.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let tagged = |kind: u8, id: u8, value: u64, out: &mut Vec<u8>| {
            out.extend([kind, id]);
            varint::put(value, out);
        };
        match *self {
            Self::Ping => out.push(PING),
            Self::Ack(ref ack) => ack.encode(out),
            Self::Stream { stream, frontier } => tagged(STREAM, stream.0, frontier, out),
            Self::Credit { stream, limit, wait_us } => {
                tagged(CREDIT, stream.0, u64::from(limit), out);
                varint::put(u64::from(wait_us), out);
            }
            Self::Query { stream } => out.extend([QUERY, stream.0]),
            Self::Floor { path, pn } => tagged(FLOOR, path.0, pn, out),
            Self::Challenge { token } => put_token(CHALLENGE, token, out),
            Self::Response { token } => put_token(RESPONSE, token, out),
            Self::Close { reason } => {
                out.push(CLOSE);
                varint::put(reason, out);
            }
            Self::Closed => out.push(CLOSED),
            Self::Rate { path, rate_bps } => tagged(RATE, path.0, rate_bps, out),
            Self::Skip { stream, dsn } => tagged(SKIP, stream.0, dsn, out),
            Self::Interval { path, interval_us } => tagged(INTERVAL, path.0, interval_us, out),
        }
    }

    fn parse(kind: u8, reader: &mut Reader<'a>) -> Result<Self, ShuttleError> {
        Ok(match kind {
            PING => Self::Ping,
            ACK => Self::Ack(Ack::parse(reader)?),
            STREAM => {
                Self::Stream { stream: StreamId(reader.octet()?), frontier: reader.varint()? }
            }
            CREDIT => {
                let narrow =
                    |value| u32::try_from(value).map_err(|_| ShuttleError::Value("credit"));
                let stream = StreamId(reader.octet()?);
                let (limit, wait_us) = (narrow(reader.varint()?)?, narrow(reader.varint()?)?);
                Self::Credit { stream, limit, wait_us }
            }
            QUERY => Self::Query { stream: StreamId(reader.octet()?) },
            FLOOR => Self::Floor { path: PathId(reader.octet()?), pn: packet_number(reader)? },
            CHALLENGE => Self::Challenge { token: u64::from_be_bytes(reader.array()?) },
            RESPONSE => Self::Response { token: u64::from_be_bytes(reader.array()?) },
            CLOSE => Self::Close { reason: reader.varint()? },
            CLOSED => Self::Closed,
            RATE => Self::Rate { path: PathId(reader.octet()?), rate_bps: reader.varint()? },
            SKIP => Self::Skip { stream: StreamId(reader.octet()?), dsn: reader.varint()? },
            INTERVAL => {
                Self::Interval { path: PathId(reader.octet()?), interval_us: reader.varint()? }
            }
            _ => return Err(ShuttleError::Frame(kind)),
        })
    }
}

impl<'a> Ack<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend([ACK, self.path.0]);
        varint::put(self.largest, out);
        varint::put(self.largest + 1 - self.floor, out);
        varint::put(self.delay_us, out);
        out.extend(self.arrived_us.to_be_bytes());
        varint::put(self.marked, out);
        varint::put(self.dropped, out);
        varint::put(self.largest - self.ranges.top, out);
        varint::put(self.ranges.octets.len() as u64, out);
        out.extend_from_slice(self.ranges.octets);
    }

    fn parse(reader: &mut Reader<'a>) -> Result<Self, ShuttleError> {
        let path = PathId(reader.octet()?);
        let largest = packet_number(reader)?;
        let invalid = ShuttleError::Value("ack");
        let floor = (largest + 1).checked_sub(reader.varint()?).ok_or(invalid)?;
        let delay_us = reader.varint()?;
        let arrived_us = u32::from_be_bytes(reader.array()?);
        let (marked, dropped) = (reader.varint()?, reader.varint()?);
        let top = largest.checked_sub(reader.varint()?).ok_or(invalid)?;
        let len = usize::try_from(reader.varint()?).map_err(|_| ShuttleError::Short)?;
        let ranges = Ranges::parse(top, reader.bytes(len)?)?;
        Ok(Self { path, largest, floor, delay_us, arrived_us, marked, dropped, ranges })
    }
}

/// The frames of a control packet, one after the other; the first error ends them.
pub struct Frames<'a>(Reader<'a>);

impl<'a> Frames<'a> {
    /// The frames in `octets`: a control packet without header and trailer.
    pub fn new(octets: &'a [u8]) -> Self {
        Self(Reader(octets))
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, ShuttleError>;

    fn next(&mut self) -> Option<Self::Item> {
        let padding = self.0.0.iter().take_while(|octet| **octet == PADDING).count();
        self.0.0 = &self.0.0[padding..];
        let kind = self.0.octet().ok()?;
        let frame = Frame::parse(kind, &mut self.0);
        if frame.is_err() {
            self.0.0 = &[];
        }
        Some(frame)
    }
}

fn packet_number(reader: &mut Reader<'_>) -> Result<u64, ShuttleError> {
    let pn = reader.varint()?;
    if pn >> PN_BITS != 0 { Err(ShuttleError::Value("packet number")) } else { Ok(pn) }
}

fn put_token(kind: u8, token: u64, out: &mut Vec<u8>) {
    out.push(kind);
    out.extend(token.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_come_back_and_the_limit_cuts_them() {
        let runs = [(90, 99), (70, 80), (0, 3)];
        let mut room = Vec::new();
        let (ranges, lowest) = Ranges::encode(runs, 100, &mut room).unwrap();
        assert_eq!(lowest, 0);
        assert!(ranges.iter().eq(runs));
        let (ranges, lowest) = Ranges::encode(runs, 4, &mut room).unwrap();
        assert_eq!(lowest, 70);
        assert!(ranges.iter().eq(runs[..2].iter().copied()));
        assert_eq!(Ranges::encode([], 100, &mut room), None);
    }

    #[test]
    fn ranges_below_zero_are_refused() {
        for octets in [&[][..], &[6], &[0, 5, 0], &[0, 0]] {
            assert!(Ranges::parse(5, octets).is_err(), "{octets:?}");
        }
        assert!(Ranges::parse(5, &[5]).is_ok());
    }

    #[test]
    fn padding_is_skipped_and_unknown_types_end_the_packet() {
        let mut frames = Frames::new(&[0, 0, PING, 0, 0x77, PING]);
        assert_eq!(frames.next(), Some(Ok(Frame::Ping)));
        assert_eq!(frames.next(), Some(Err(ShuttleError::Frame(0x77))));
        assert_eq!(frames.next(), None);
        assert_eq!(Frames::new(&[0; 9]).next(), None);
    }
}
