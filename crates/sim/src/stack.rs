//! Whole-stack flows: two of Shuttle's own connections, with the handshake, the acknowledgements,
//! the repair and the controllers of the product.
//!
//! What lies above the seam is as simple as can be: Writes of a gibibyte out of memory that is all
//! zero, and a sink that counts. Invariant: what counts as arrived was placed, once.

use std::collections::VecDeque;

use weft_shuttle::cc;
use weft_shuttle::{Config, Connection, Identity, Ports, Request, Route, Transmit};
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{Header, TAGGED_LEN, TaggedHeader};
use weft_wire::ids::STag;
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::{ConnectionId, PathId, StreamId};

use crate::agenda::NEVER_NS;
use crate::flow::{Body, Datagram, Flow, Outgoing, Standing, Tally, Way};
use crate::reference::Shape;

const WRITE_OCTETS: u32 = 1 << 30;
/// Octets of a data packet beside its payload, at most.
const HEADERS: usize = 48;
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// The only path of the flow.
const PATH: PathId = PathId(0);

/// Two connections and what lies above them.
pub struct StackFlow {
    shape: Shape,
    /// Who asks and sends, and who grants and receives.
    ends: [End; 2],
    waiting: VecDeque<Outgoing>,
    out: Transmit,
    /// Where a datagram is made whole again.
    whole: Vec<u8>,
    arrived: u64,
    arrived_octets: u64,
    acks: u64,
    ack_octets: u64,
    finished_ns: Option<u64>,
}

/// One end.
struct End {
    connection: Option<Connection>,
    port: Port,
    route: Route,
    config: Config,
    identity: Identity,
}

/// A source and a sink in one, since each end uses one of them.
#[derive(Debug, Default)]
struct Port {
    left: u64,
    handed: u64,
    acked: u64,
    offset: u64,
    placed: u64,
    placed_octets: u64,
}

struct Zeros;

impl StackFlow {
    /// A flow that asks for its connection when it starts; `protection` is one of
    /// [`weft_wire::shuttle::hello::protection`] that needs no keys.
    pub fn new(shape: Shape, protection: u8, controller: cc::Make, params: cc::Params) -> Self {
        let datagram_octets = shape.datagram_octets as u16;
        let seed = params.seed;
        let config = Config {
            protection,
            datagram_octets,
            datagram_octets_max: datagram_octets,
            controller,
            controller_params: params,
            ..Config::default()
        };
        let left = shape.size_octets.unwrap_or(u64::MAX / 2);
        let ends = [0, 1].map(|end| {
            let at = |end: u8| ([10, 0, 0, end + 1], 4000).into();
            let nonce = seed.wrapping_mul(2).wrapping_add(u64::from(end));
            let cid = ConnectionId(nonce as u32 & !0xff);
            End {
                connection: None,
                port: Port { left: if end == 0 { left } else { 0 }, ..Port::default() },
                route: Route { local: at(end), remote: at(1 - end) },
                config: config.clone(),
                identity: Identity { cid, nonce, seed: nonce, entropy: [end; 32] },
            }
        });
        Self {
            shape,
            ends,
            waiting: VecDeque::new(),
            out: Transmit::default(),
            whole: Vec::new(),
            arrived: 0,
            arrived_octets: 0,
            acks: 0,
            ack_octets: 0,
            finished_ns: None,
        }
    }

    fn start(&mut self, now_ns: u64) {
        let End { connection, config, identity, route, .. } = &mut self.ends[0];
        if connection.is_none() && now_ns >= self.shape.start_ns {
            let asked = Connection::connect(now_ns, config.clone(), *identity, *route, b"");
            *connection = Some(asked.expect("a plan's packets are long enough for Shuttle"));
        }
    }

    fn poll_ends(&mut self, now_ns: u64) {
        self.start(now_ns);
        if now_ns >= self.shape.stop_ns {
            self.ends[0].port.left = 0;
        }
        for (end, way) in self.ends.iter_mut().zip([Way::Forward, Way::Back]) {
            let Some(connection) = &mut end.connection else { continue };
            if connection.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
                connection.handle_timeout(now_ns);
            }
            while connection.poll_event().is_some() {}
            if connection.poll_transmit(now_ns, &mut end.port, &Zeros, &mut self.out) {
                for (datagram, length) in split(&self.out) {
                    let octets = u32::from(length) + self.shape.overhead_octets;
                    let (markable, body) = (self.shape.ecn, Body::Datagram(datagram));
                    self.waiting.push_back(Outgoing { way, octets, markable, body });
                    self.acks += u64::from(way == Way::Back);
                    self.ack_octets += if way == Way::Back { u64::from(octets) } else { 0 };
                }
            }
        }
        let port = &self.ends[0].port;
        if port.left == 0 && port.handed == port.acked && port.handed > 0 {
            self.finished_ns.get_or_insert(now_ns);
        }
    }
}

impl End {
    fn receive(&mut self, now_ns: u64, marked: bool, datagram: &mut [u8]) {
        if self.connection.is_none() {
            let parsed = Request::parse(datagram, &self.config, self.identity.entropy);
            let Ok(mut request) = parsed else { return };
            let (config, identity) = (self.config.clone(), self.identity);
            let accepted =
                Connection::accept(now_ns, config, identity, self.route, &mut request, b"");
            self.connection = accepted.ok();
        }
        if let Some(connection) = &mut self.connection {
            let taken =
                connection.handle_datagram(now_ns, self.route, marked, datagram, &mut self.port);
            taken.expect("the sink faults nothing but what has no DDP header");
        }
    }
}

impl Flow for StackFlow {
    fn handle(&mut self, now_ns: u64, way: Way, body: Body, marked: bool) {
        let Body::Datagram(datagram) = body else { return };
        datagram.restore(&mut self.whole);
        let octets = self.whole.len() as u64 + u64::from(self.shape.overhead_octets);
        let end = &mut self.ends[usize::from(way == Way::Forward)];
        let before = end.port.placed;
        end.receive(now_ns, marked, &mut self.whole);
        if end.port.placed > before {
            self.arrived += 1;
            self.arrived_octets += octets;
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<Outgoing> {
        if self.waiting.is_empty() {
            self.poll_ends(now_ns);
        }
        self.waiting.pop_front()
    }

    fn next_due_ns(&self) -> u64 {
        if self.ends[0].connection.is_none() {
            return self.shape.start_ns;
        }
        let connections = self.ends.iter().filter_map(|end| end.connection.as_ref());
        connections.filter_map(Connection::poll_timeout).min().unwrap_or(NEVER_NS)
    }

    fn tally(&self) -> Tally {
        let Some(connection) = &self.ends[0].connection else { return Tally::default() };
        let stats = connection.stats();
        let recovery = connection.recovery_stats(PATH).unwrap_or_default();
        Tally {
            sent: stats.segments_out,
            resent: stats.segments_resent,
            lost: recovery.lost_packets,
            spurious: recovery.spurious_packets,
            arrived: self.arrived,
            arrived_octets: self.arrived_octets,
            payload_octets: self.ends[1].port.placed_octets,
            acks: self.acks,
            ack_octets: self.ack_octets,
            finished_ns: self.finished_ns,
        }
    }

    fn standing(&self) -> Standing {
        let Some(connection) = &self.ends[0].connection else { return Standing::default() };
        let controller = connection.controller(PATH);
        Standing {
            rtt_ns: connection.rtt(PATH).map_or(0, |rtt| rtt.latest_ns),
            in_flight_octets: connection.in_flight_octets(PATH).unwrap_or(0),
            window_octets: controller.map_or(0, |controller| controller.window_octets()),
            pacing_bps: controller.map_or(0, |controller| controller.pacing_rate_bps()),
        }
    }
}

impl Ports for Port {
    type Fault = &'static str;
    type Source<'a> = &'a mut Self;
    type Sink<'a> = &'a mut Self;

    fn source(&mut self, stream: StreamId) -> Option<&mut Self> {
        (stream.0 == 0).then_some(self)
    }

    fn sink(&mut self, stream: StreamId) -> Option<&mut Self> {
        (stream.0 == 0).then_some(self)
    }
}

impl UlpduSource for Port {
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
        Some(SegmentId { wqe, offset: in_write, len: len as u16 })
    }

    fn gather(&self, id: SegmentId, out: &mut Gather) {
        let last = id.offset + u32::from(id.len) == WRITE_OCTETS;
        let control = Opcode::Write.control();
        let to = u64::from(id.offset);
        out.push_bytes(&TaggedHeader { last, control, stag: STag(1), to }.to_bytes());
        out.push_memory(MemoryPiece { addr: 0, len: u32::from(id.len) });
    }

    fn acked(&mut self, _: SegmentId) {
        self.acked += 1;
    }
}

impl UlpduSink for Port {
    type Fault = &'static str;

    fn place(&mut self, _: u64, ulpdu: &[u8]) -> Result<Placed, Self::Fault> {
        Header::parse(ulpdu).map_err(|_| "no DDP header")?;
        self.placed += 1;
        self.placed_octets += (ulpdu.len() - TAGGED_LEN) as u64;
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, _: u64) -> Result<(), Self::Fault> {
        Ok(())
    }
}

impl RegisteredMemory for Zeros {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        crc.update(&ZEROS[..piece.len as usize])
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        out.extend_from_slice(&ZEROS[..piece.len as usize]);
    }
}

/// The datagrams that the network is given, and their lengths.
fn split(out: &Transmit) -> impl Iterator<Item = (Datagram, u16)> {
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
