//! Whole-stack flows: two of Shuttle's own connections, with the handshake, the acknowledgements,
//! the repair and the controllers of the product.
//!
//! What lies above the seam is as simple as can be: Writes of a gibibyte out of memory that is all
//! zero, and a sink that counts. Invariant: what counts as arrived was placed, once.

mod lanes;

use std::collections::VecDeque;

use weft_shuttle::cc;
use weft_shuttle::{Identity, PeerRequest, Route, ShuttleConfig, ShuttleConnection, Transmit};
use weft_wire::shuttle::{ConnectionId, PathId, StreamId};

use crate::agenda::NEVER_NS;
use crate::flow::{FlowDirection, FlowPacket, FlowTally, PacketBody, SimFlow, Standing};
use crate::reference::Shape;
use lanes::{Lanes, ZeroSource, split};

/// Ports of the paths, from the first on.
const PORT: u16 = 4000;

/// Two connections and what lies above them.
pub struct StackFlow {
    shape: Shape,
    /// Who asks and sends, and who grants and receives.
    ends: [SimEndpoint; 2],
    paths: u8,
    is_set_up: bool,
    waiting: VecDeque<FlowPacket>,
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
struct SimEndpoint {
    connection: Option<ShuttleConnection>,
    lanes: Lanes,
    number: u8,
    config: ShuttleConfig,
    identity: Identity,
}

/// How whole connections are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackConfig {
    /// One of [`weft_wire::shuttle::hello::protection`] that needs no keys.
    pub protection: u8,
    /// Streams of the connection, 1 to [`weft_shuttle::MAX_STREAMS`].
    pub streams: u16,
}

impl StackFlow {
    /// A flow that asks for its connection when it starts, over so many `paths`; `make` makes its
    /// controllers, maybe with what an earlier connection learnt.
    pub fn new(
        shape: Shape,
        whole: StackConfig,
        (controller, params, saved): (cc::Make, cc::Params, Option<cc::Saved>),
        paths: u8,
    ) -> Self {
        let datagram_octets = shape.datagram_octets as u16;
        let seed = params.seed;
        let config = ShuttleConfig {
            protection: whole.protection,
            streams: whole.streams,
            datagram_octets,
            datagram_octets_max: datagram_octets,
            saved,
            controller,
            controller_params: params,
            ..ShuttleConfig::default()
        };
        let octets = shape.size_octets.unwrap_or(u64::MAX / 2);
        let ends = [0, 1].map(|end| {
            let nonce = seed.wrapping_mul(2).wrapping_add(u64::from(end));
            let cid = ConnectionId(nonce as u32 & !0xff);
            SimEndpoint {
                connection: None,
                lanes: Lanes::new(whole.streams, if end == 0 { octets } else { 0 }),
                number: end,
                config: config.clone(),
                identity: Identity { cid, nonce, seed: nonce, entropy: [end; 32] },
            }
        });
        Self {
            shape,
            ends,
            paths,
            is_set_up: false,
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
        let SimEndpoint { connection, config, identity, number, .. } = &mut self.ends[0];
        if connection.is_none() && now_ns >= self.shape.start_ns {
            let asked = ShuttleConnection::connect(
                now_ns,
                config.clone(),
                *identity,
                route(*number, 0),
                b"",
            );
            *connection = Some(asked.expect("a plan's packets are long enough for Shuttle"));
        }
        if let Some(connection) = connection
            && !self.is_set_up
            && connection.is_open()
        {
            self.is_set_up = true;
            for stream in 0..config.streams {
                let opened = connection.open_stream(StreamId(stream as u8), 1);
                opened.expect("both ends allow as many streams");
            }
            for path in 1..self.paths {
                let opened = connection.open_path(now_ns, route(*number, path));
                opened.expect("a plan has no more paths than a connection");
            }
        }
    }

    fn poll_ends(&mut self, now_ns: u64) {
        self.start(now_ns);
        if now_ns >= self.shape.stop_ns {
            self.ends[0].lanes.stop();
        }
        for (end, way) in self.ends.iter_mut().zip([FlowDirection::Forward, FlowDirection::Back]) {
            let Some(connection) = &mut end.connection else { continue };
            if connection.poll_timeout().is_some_and(|due_ns| due_ns <= now_ns) {
                connection.handle_timeout(now_ns);
            }
            while connection.poll_event().is_some() {}
            if connection.poll_transmit(now_ns, &mut end.lanes, &ZeroSource, &mut self.out) {
                let route = self.out.route.expect("what is sent has a route");
                let lane = (route.local.port() - PORT) as u8;
                for (datagram, length) in split(&self.out) {
                    let octets = u32::from(length) + self.shape.overhead_octets;
                    let (markable, body) = (self.shape.ecn, PacketBody::Datagram(datagram));
                    self.waiting.push_back(FlowPacket { way, lane, octets, markable, body });
                    self.acks += u64::from(way == FlowDirection::Back);
                    self.ack_octets +=
                        if way == FlowDirection::Back { u64::from(octets) } else { 0 };
                }
            }
        }
        if self.ends[0].lanes.are_done() {
            self.finished_ns.get_or_insert(now_ns);
        }
    }
}

/// A path as its end sees it.
fn route(end: u8, path: u8) -> Route {
    let at = |end: u8| ([10, 0, 0, end + 1], PORT + u16::from(path)).into();
    Route { local: at(end), remote: at(1 - end) }
}

impl SimEndpoint {
    fn receive(&mut self, now_ns: u64, lane: u8, marked: bool, datagram: &mut [u8]) {
        let route = route(self.number, lane);
        if self.connection.is_none() {
            let parsed = PeerRequest::parse(datagram, &self.config, self.identity.entropy);
            let Ok(mut request) = parsed else { return };
            let (config, identity) = (self.config.clone(), self.identity);
            let accepted =
                ShuttleConnection::accept(now_ns, config, identity, route, &mut request, b"");
            self.connection = accepted.ok();
        }
        if let Some(connection) = &mut self.connection {
            let taken =
                connection.handle_datagram(now_ns, route, marked, datagram, &mut self.lanes);
            taken.expect("the sink faults nothing but what has no DDP header");
        }
    }
}

impl SimFlow for StackFlow {
    fn handle(
        &mut self,
        now_ns: u64,
        way: FlowDirection,
        lane: u8,
        body: PacketBody,
        marked: bool,
    ) {
        let PacketBody::Datagram(datagram) = body else { return };
        datagram.restore(&mut self.whole);
        let octets = self.whole.len() as u64 + u64::from(self.shape.overhead_octets);
        let end = &mut self.ends[usize::from(way == FlowDirection::Forward)];
        let before = end.lanes.placed();
        end.receive(now_ns, lane, marked, &mut self.whole);
        if end.lanes.placed() > before {
            self.arrived += 1;
            self.arrived_octets += octets;
        }
    }

    fn poll_transmit(&mut self, now_ns: u64) -> Option<FlowPacket> {
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
        connections.filter_map(ShuttleConnection::poll_timeout).min().unwrap_or(NEVER_NS)
    }

    fn tally(&self) -> FlowTally {
        let Some(connection) = &self.ends[0].connection else { return FlowTally::default() };
        let stats = connection.stats();
        let paths = (0..self.paths).filter_map(|path| connection.recovery_stats(PathId(path)));
        let (lost, spurious) = paths.fold((0, 0), |(lost, spurious), path| {
            (lost + path.lost_packets, spurious + path.spurious_packets)
        });
        FlowTally {
            sent: stats.segments_out,
            resent: stats.segments_resent,
            lost,
            spurious,
            arrived: self.arrived,
            arrived_octets: self.arrived_octets,
            payload_octets: self.ends[1].lanes.placed_octets(),
            acks: self.acks,
            ack_octets: self.ack_octets,
            finished_ns: self.finished_ns,
            ..FlowTally::default()
        }
    }

    fn streams(&self) -> Vec<u64> {
        self.ends[1].lanes.by_stream()
    }

    fn standing(&self) -> Standing {
        let Some(connection) = &self.ends[0].connection else { return Standing::default() };
        let paths = || (0..self.paths).map(PathId);
        let sum = |of: fn(&dyn cc::Controller) -> u64| {
            let each = paths().filter_map(|path| connection.controller(path)).map(of);
            each.fold(0, u64::saturating_add)
        };
        Standing {
            rtt_ns: connection.rtt(PathId(0)).map_or(0, |rtt| rtt.latest_ns),
            in_flight_octets: paths().filter_map(|path| connection.in_flight_octets(path)).sum(),
            window_octets: sum(|controller| controller.window_octets()),
            pacing_bps: sum(|controller| controller.pacing_rate_bps()),
        }
    }
}
