//! Two connections and no socket, for `cargo xtask cost`, which counts the instructions of a side
//! with callgrind: all that a side does is in the functions of [`counted`], and nothing else is.
//!
//! `cost stream PROTECTION OCTETS GBPS RTT_US LOST_PERMILLE BEFORE COUNTED`: one end sends
//! datagrams of OCTETS at a fixed rate. What is done until BEFORE have been placed is not counted.
//! `cost small PROTECTION GBPS RTT_US BEFORE COUNTED`: the same of messages of 64 bytes, as many of
//! them in a datagram of 1472 bytes as there is room for.
//! `cost pingpong PROTECTION BEFORE COUNTED`: messages of 64 bytes to and fro, one at a time; the
//! end that asked for the connection is the sender.
//!
//! Says a line for each side: runs in the acknowledgements that it took (in clear), bytes in
//! flight, bytes of memory kept for what is in flight.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::env;

use weft_shuttle::{
    Identity, PeerRequest, Ports, Route, ShuttleConfig, ShuttleConnection, Transmit, cc,
};
use weft_wire::crc::Crc32c;
use weft_wire::ddp::{TAGGED_LEN, TaggedHeader};
use weft_wire::ids::STag;
use weft_wire::llp::{
    Gather, MemoryPiece, Piece, Placed, RegisteredMemory, SegmentId, UlpduSink, UlpduSource,
};
use weft_wire::rdmap::Opcode;
use weft_wire::shuttle::frame::{Frame, Frames};
use weft_wire::shuttle::hello::protection;
use weft_wire::shuttle::{CTRL_LEN, ConnectionId, PathId, StreamId};

const MESSAGE_OCTETS: u32 = 1 << 20;
const SMALL_OCTETS: u64 = 64;
static ZEROS: [u8; 4096] = [0; 4096];

fn main() {
    let args: Vec<String> = env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    let number = |text: &str| text.parse::<u64>().expect("a number");
    match words[..] {
        ["stream", protected, octets, gbps, rtt_us, lost, before, counted] => {
            let rate_bps = number(gbps) * 1_000_000_000;
            let mut run = CostRun::new(module(protected), number(octets) as u16, rate_bps);
            run.delay_ns = number(rtt_us) * 500;
            run.lost_permille = number(lost);
            run.ends[0].port.left = u64::MAX;
            run.until(number(before));
            run.counts = true;
            run.until(number(before) + number(counted));
            run.report();
        }
        ["small", protected, gbps, rtt_us, before, counted] => {
            let rate_bps = number(gbps) * 1_000_000_000;
            let mut run = CostRun::new(module(protected), 1472, rate_bps);
            run.delay_ns = number(rtt_us) * 500;
            run.ends[0].port.left = u64::MAX;
            run.ends[0].port.message_octets = SMALL_OCTETS as u32;
            run.until(number(before));
            run.counts = true;
            run.until(number(before) + number(counted));
            run.report();
        }
        ["pingpong", protected, before, counted] => {
            let mut run = CostRun::new(module(protected), 1472, u64::MAX);
            run.delay_ns = 1000;
            run.echoes = true;
            run.ends[0].port.left = SMALL_OCTETS;
            run.until(number(before));
            run.counts = true;
            run.until(number(before) + number(counted));
            run.report();
        }
        _ => panic!("see the first lines of examples/cost.rs"),
    }
}

fn module(name: &str) -> u8 {
    match name {
        "none" => protection::NONE,
        "crc32c" => protection::CRC32C,
        "aes128gcm" => protection::AES128GCM,
        other => panic!("{other} is none of none, crc32c, aes128gcm"),
    }
}

/// What is counted: an end's work, done as `io` does it. Each function says its name, because the
/// compiler merges functions that do the same.
mod counted {
    use std::hint::black_box;

    use super::CostEnd;

    #[inline(never)]
    pub fn sender_sends(end: &mut CostEnd, now_ns: u64) -> bool {
        end.send(black_box(now_ns))
    }

    #[inline(never)]
    pub fn sender_hears(end: &mut CostEnd, now_ns: u64, datagram: &mut [u8]) {
        end.hear(black_box(now_ns), datagram);
    }

    #[inline(never)]
    pub fn receiver_sends(end: &mut CostEnd, now_ns: u64) -> bool {
        black_box("receiver");
        end.send(black_box(now_ns))
    }

    #[inline(never)]
    pub fn receiver_hears(end: &mut CostEnd, now_ns: u64, datagram: &mut [u8]) {
        black_box("receiver");
        end.hear(black_box(now_ns), datagram);
    }
}

/// What is to be sent, and what has come.
struct BulkPort {
    /// Bytes of payload that are still to be sent, in messages of this size.
    left: u64,
    message_octets: u32,
    wqe: u32,
    offset: u32,
    placed: u64,
    acked: u64,
}

impl BulkPort {
    fn new() -> Self {
        let message_octets = MESSAGE_OCTETS;
        Self { left: 0, message_octets, wqe: 0, offset: 0, placed: 0, acked: 0 }
    }
}

struct ZeroPayload;

impl Ports for BulkPort {
    type Fault = &'static str;
    type Source<'a> = &'a mut Self;
    type Sink<'a> = &'a mut Self;

    fn source(&mut self, _: StreamId) -> Option<&mut Self> {
        Some(self)
    }

    fn sink(&mut self, _: StreamId) -> Option<&mut Self> {
        Some(self)
    }
}

impl UlpduSource for BulkPort {
    fn next(&mut self, mulpdu: u16) -> Option<SegmentId> {
        let fits = u32::from(mulpdu) - TAGGED_LEN as u32;
        let len =
            fits.min(self.message_octets - self.offset).min(self.left.try_into().unwrap_or(fits));
        if len == 0 {
            return None;
        }
        let id = SegmentId { wqe: self.wqe, offset: self.offset, len };
        self.left -= u64::from(len);
        self.offset += len;
        if self.offset == self.message_octets {
            (self.wqe, self.offset) = (self.wqe + 1, 0);
        }
        Some(id)
    }

    fn gather(&self, id: &SegmentId, out: &mut Gather) {
        let last = id.offset + id.len == self.message_octets;
        let (control, to) = (Opcode::Write.control(), u64::from(id.offset));
        out.push_bytes(&TaggedHeader { last, control, stag: STag(1), to }.to_bytes());
        out.push_memory(MemoryPiece { addr: 0, len: id.len });
    }

    fn acked(&mut self, _: SegmentId) {
        self.acked += 1;
    }
}

impl UlpduSink for BulkPort {
    type Fault = &'static str;

    fn place(&mut self, _: u64, _: &[u8]) -> Result<Placed, Self::Fault> {
        self.placed += 1;
        Ok(Placed::Memory)
    }

    fn deliver(&mut self, _: u64) -> Result<(), Self::Fault> {
        Ok(())
    }
}

impl RegisteredMemory for ZeroPayload {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        crc.update(&ZEROS[..piece.len as usize])
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        out.extend_from_slice(&ZEROS[..piece.len as usize]);
    }
}

/// A connection and who uses it.
struct CostEnd {
    /// `None` until somebody asked for it.
    connection: Option<ShuttleConnection>,
    port: BulkPort,
    out: Transmit,
    route: Route,
}

impl CostEnd {
    fn new(end: usize, connection: Option<ShuttleConnection>) -> Self {
        Self { connection, port: BulkPort::new(), out: Transmit::default(), route: route(end) }
    }

    /// Looks at the clock, then puts what may leave into `out`.
    fn send(&mut self, now_ns: u64) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        if connection.poll_timeout().is_some_and(|at_ns| at_ns <= now_ns) {
            connection.handle_timeout(now_ns);
        }
        connection.poll_transmit(now_ns, &mut self.port, &ZeroPayload, &mut self.out)
    }

    fn hear(&mut self, now_ns: u64, datagram: &mut [u8]) {
        let Some(connection) = &mut self.connection else { return };
        let taken = connection.handle_datagram(now_ns, self.route, false, datagram, &mut self.port);
        taken.expect("nothing is at fault");
    }
}

/// A datagram on its way, without the zeros in its middle.
struct Flying {
    at_ns: u64,
    octets: Vec<u8>,
    zeros_at: usize,
    zeros: usize,
}

/// Both ends and the way between them.
struct CostRun {
    ends: [CostEnd; 2],
    config: ShuttleConfig,
    flying: [VecDeque<Flying>; 2],
    whole: Vec<u8>,
    delay_ns: u64,
    lost_permille: u64,
    /// What arrives is answered by as much.
    echoes: bool,
    now_ns: u64,
    random: u64,
    /// What is done now is counted.
    counts: bool,
    /// Runs in acknowledgements that were counted.
    runs: [u64; 2],
}

impl CostRun {
    fn new(protection: u8, datagram_octets: u16, rate_bps: u64) -> Self {
        let initial_rate_bps = Some(rate_bps);
        let controller_params =
            cc::Params { datagram_octets, initial_rate_bps, ..cc::Params::default() };
        let controller = if rate_bps == u64::MAX { cc::none } else { cc::fixed };
        let config = ShuttleConfig {
            protection,
            datagram_octets,
            controller,
            controller_params,
            ..ShuttleConfig::default()
        };
        let asked = ShuttleConnection::connect(0, config.clone(), identity(0), route(0), b"");
        let asking = asked.expect("a sound configuration");
        Self {
            ends: [CostEnd::new(0, Some(asking)), CostEnd::new(1, None)],
            config,
            flying: [VecDeque::new(), VecDeque::new()],
            whole: Vec::new(),
            delay_ns: 0,
            lost_permille: 0,
            echoes: false,
            now_ns: 0,
            random: 1,
            counts: false,
            runs: [0; 2],
        }
    }

    /// Runs until so many segments are placed at the receiver.
    fn until(&mut self, placed: u64) {
        while self.ends[1].port.placed < placed {
            self.step();
        }
    }

    /// Lets both ends do what they can, then the time pass until there is more.
    fn step(&mut self) {
        for end in 0..2 {
            self.deliver(end);
            self.transmit(end);
        }
        let connections = self.ends.iter().filter_map(|end| end.connection.as_ref());
        let timers = connections.filter_map(ShuttleConnection::poll_timeout);
        let arrivals = self.flying.iter().filter_map(|way| Some(way.front()?.at_ns));
        let next_ns = timers.chain(arrivals).min().expect("something is due");
        self.now_ns = next_ns.max(self.now_ns);
    }

    /// Everything that has come to `end`.
    fn deliver(&mut self, end: usize) {
        while self.flying[end].front().is_some_and(|flying| flying.at_ns <= self.now_ns)
            && let Some(flying) = self.flying[end].pop_front()
        {
            if end == 1 && self.draw() % 1000 < self.lost_permille {
                continue;
            }
            flying.write_to(&mut self.whole);
            self.runs[end] += u64::from(self.counts) * runs_in(&self.whole);
            let (whole, to) = (&mut self.whole, &mut self.ends[end]);
            let placed = to.port.placed;
            match (end, self.counts) {
                _ if to.connection.is_none() => to.connection = Some(accept(&self.config, whole)),
                (_, false) => to.hear(self.now_ns, whole),
                (0, true) => counted::sender_hears(to, self.now_ns, whole),
                (_, true) => counted::receiver_hears(to, self.now_ns, whole),
            }
            if self.echoes && to.port.placed > placed {
                to.port.left = SMALL_OCTETS;
            }
        }
    }

    /// Everything that `end` has to send.
    fn transmit(&mut self, end: usize) {
        loop {
            let from = &mut self.ends[end];
            let sent = match (end, self.counts) {
                (_, false) => from.send(self.now_ns),
                (0, true) => counted::sender_sends(from, self.now_ns),
                (_, true) => counted::receiver_sends(from, self.now_ns),
            };
            if !sent {
                return;
            }
            fly(&from.out, self.now_ns + self.delay_ns, &mut self.flying[1 - end]);
            if from.out.is_last {
                return;
            }
        }
    }

    /// Knuth's MMIX generator.
    fn draw(&mut self) -> u64 {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// What callgrind does not know.
    fn report(&self) {
        let ends = self.ends.iter().filter_map(|end| end.connection.as_ref());
        for (end, runs) in ends.zip(self.runs) {
            let in_flight = end.in_flight_octets(PathId(0)).unwrap_or(0);
            println!("{runs} {in_flight} {}", end.kept_octets());
        }
    }
}

impl Flying {
    fn write_to(&self, whole: &mut Vec<u8>) {
        let (before, after) = self.octets.split_at(self.zeros_at);
        whole.clear();
        whole.extend_from_slice(before);
        whole.resize(before.len() + self.zeros, 0);
        whole.extend_from_slice(after);
    }
}

/// Runs in the acknowledgements of a control packet that is not sealed.
fn runs_in(datagram: &[u8]) -> u64 {
    let is_ctrl = datagram[0] >> 5 == 6;
    let frames = Frames::new(datagram.get(CTRL_LEN..).filter(|_| is_ctrl).unwrap_or(&[]));
    let acks = frames.map_while(Result::ok).filter_map(|frame| match frame {
        Frame::Ack(ack) => Some(ack.ranges.iter().count() as u64),
        _ => None,
    });
    acks.sum()
}

fn accept(config: &ShuttleConfig, datagram: &mut [u8]) -> ShuttleConnection {
    let request = PeerRequest::parse(datagram, config, [7; 32]);
    let mut request = request.expect("the first packet is a Request");
    ShuttleConnection::accept(0, config.clone(), identity(1), route(1), &mut request, b"")
        .expect("the same configuration")
}

/// Puts the datagrams of `out` on their way.
fn fly(out: &Transmit, at_ns: u64, way: &mut VecDeque<Flying>) {
    let mut pieces = out.gather.pieces().iter();
    let mut left: &[u8] = &[];
    for length in &out.lengths {
        let octets = Vec::with_capacity(48);
        let mut flying = Flying { at_ns, octets, zeros_at: 0, zeros: 0 };
        let mut wanted = usize::from(*length);
        while wanted > 0 {
            if left.is_empty() {
                match *pieces.next().expect("the pieces hold all datagrams") {
                    Piece::Slab { start, len } => left = out.gather.staged(start, len),
                    Piece::Memory(piece) => {
                        flying.zeros_at = flying.octets.len();
                        flying.zeros = piece.len as usize;
                        wanted -= flying.zeros;
                    }
                }
            }
            let (taken, after) = left.split_at(wanted.min(left.len()));
            flying.octets.extend_from_slice(taken);
            wanted -= taken.len();
            left = after;
        }
        way.push_back(flying);
    }
}

fn identity(end: usize) -> Identity {
    let number = end as u64 + 1;
    let cid = ConnectionId((number as u32) << 8);
    Identity { cid, nonce: number, seed: number, entropy: [end as u8; 32] }
}

fn route(end: usize) -> Route {
    let at = |end: usize| ([10, 0, 0, end as u8 + 1], 4000).into();
    Route { local: at(end), remote: at(1 - end) }
}
