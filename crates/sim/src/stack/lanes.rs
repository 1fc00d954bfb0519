//! What lies above a whole connection: on every stream, Writes of a gibibyte out of memory that is
//! all zero, and a sink that counts.

use weft_shuttle::{Ports, Transmit};
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{DdpHeader, TAGGED_LEN, TaggedHeader};
use weft_wire::ids::STag;
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::StreamId;

use crate::flow::Datagram;

const WRITE_OCTETS: u32 = 1 << 30;
/// Bytes of a data packet beside its payload, at most.
const HEADERS: usize = 48;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];

/// What an end has for each stream.
#[derive(Debug)]
pub struct Lanes {
    ports: Vec<LanePort>,
    placed: u64,
}

/// A source and a sink in one, since each end uses one of them.
#[derive(Debug, Default)]
pub struct LanePort {
    left: u64,
    handed: u64,
    acked: u64,
    offset: u64,
    placed_octets: u64,
}

/// The sink of a stream, and the count of all.
pub struct LaneSink<'a> {
    port: &'a mut LanePort,
    placed: &'a mut u64,
}

/// The memory that is written from.
pub struct ZeroSource;

impl Lanes {
    /// `octets` to be sent over `streams`, in equal parts.
    pub fn new(streams: u16, octets: u64) -> Self {
        let count = u64::from(streams.max(1));
        let part = |stream| octets / count + u64::from(stream < octets % count);
        let ports = (0..count).map(|stream| LanePort { left: part(stream), ..LanePort::default() });
        Self { ports: ports.collect(), placed: 0 }
    }

    /// Nothing more is handed out.
    pub fn stop(&mut self) {
        self.ports.iter_mut().for_each(|port| port.left = 0);
    }

    /// Whether all was handed out and has arrived.
    pub fn are_done(&self) -> bool {
        self.ports.iter().all(|port| port.left == 0 && port.handed == port.acked)
            && self.ports.iter().any(|port| port.handed > 0)
    }

    /// Segments that were placed.
    pub fn placed(&self) -> u64 {
        self.placed
    }

    /// Bytes of payload in those.
    pub fn placed_octets(&self) -> u64 {
        self.ports.iter().map(|port| port.placed_octets).sum()
    }

    /// The same, stream by stream.
    pub fn by_stream(&self) -> Vec<u64> {
        self.ports.iter().map(|port| port.placed_octets).collect()
    }
}

impl Ports for Lanes {
    type Fault = &'static str;
    type Source<'a> = &'a mut LanePort;
    type Sink<'a> = LaneSink<'a>;

    fn source(&mut self, stream: StreamId) -> Option<&mut LanePort> {
        self.ports.get_mut(usize::from(stream.0))
    }

    fn sink(&mut self, stream: StreamId) -> Option<LaneSink<'_>> {
        let port = self.ports.get_mut(usize::from(stream.0))?;
        Some(LaneSink { port, placed: &mut self.placed })
    }
}

impl UlpduSource for LanePort {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        let in_write = (self.offset % u64::from(WRITE_OCTETS)) as u32;
        let fits = u32::from(mulpdu) - TAGGED_LEN as u32;
        let len = fits.min(WRITE_OCTETS - in_write).min(u32::try_from(self.left).unwrap_or(fits));
        if len == 0 {
            return None;
        }
        let wqe = (self.offset / u64::from(WRITE_OCTETS)) as u32;
        self.left -= u64::from(len);
        self.offset += u64::from(len);
        self.handed += 1;
        Some(SegmentId { wqe, offset: in_write, len })
    }

    fn left(&self, enough: u64) -> u64 {
        self.left.min(enough)
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        let last = id.offset + id.len == WRITE_OCTETS;
        let control = Opcode::Write.control();
        let to = u64::from(id.offset);
        out.push_bytes(&TaggedHeader { last, control, stag: STag(1), to }.to_bytes());
        out.push_memory(MemoryPiece { addr: 0, len: id.len });
    }

    fn acked(&mut self, _: SegmentId) {
        self.acked += 1;
    }
}

impl UlpduSink for LaneSink<'_> {
    type Fault = &'static str;

    fn place(&mut self, _: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault> {
        DdpHeader::parse(ulpdu).map_err(|_| "no DDP header")?;
        *self.placed += 1;
        self.port.placed_octets += (ulpdu.len() - TAGGED_LEN) as u64;
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, _: u64) -> Result<(), Self::Fault> {
        Ok(())
    }
}

impl RegisteredMemory for ZeroSource {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        crc.update(&ZEROS[..piece.len as usize])
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        out.extend_from_slice(&ZEROS[..piece.len as usize]);
    }
}

/// The datagrams that the network is given, and their lengths.
pub fn split(out: &Transmit) -> impl Iterator<Item = (Datagram, u16)> {
    let mut pieces = out.gather.pieces().iter();
    // What of a staged piece belongs to the datagrams that follow.
    let mut left: &[u8] = &[];
    out.lengths.iter().map(move |length| {
        let mut datagram = Datagram { octets: Vec::with_capacity(HEADERS), ..Datagram::default() };
        let mut wanted = usize::from(*length);
        while wanted > 0 {
            if left.is_empty() {
                match *pieces.next().expect("the pieces hold all datagrams") {
                    Piece::Slab { start, len } => left = out.gather.staged(start, len),
                    Piece::Memory(piece) => {
                        datagram.zeros_at = datagram.octets.len() as u16;
                        datagram.zeros = piece.len as u16;
                        wanted -= piece.len as usize;
                    }
                }
            }
            let (taken, after) = left.split_at(wanted.min(left.len()));
            datagram.octets.extend_from_slice(taken);
            wanted -= taken.len();
            left = after;
        }
        (datagram, *length)
    })
}
