//! Links, routes over them, and the loop that carries packets from one to the next.
//!
//! Invariant: what happens is a function of the links, their seeds and the flows; [`Network::hash`]
//! tells two runs apart that differ in a single arrival.

use degen::link::Link;

use crate::agenda::{NEVER_NS, TimerTournament};
use crate::flow::{FlowDirection, FlowPacket, PacketBody, SimFlow};

/// A packet between two links.
#[derive(Clone, Debug)]
pub struct SimPacket {
    flow: u32,
    /// How many links of its route it has behind it.
    hop: u16,
    way: FlowDirection,
    lane: u8,
    octets: u32,
    markable: bool,
    marked: bool,
    body: PacketBody,
}

/// The links that a flow's packets pass, in order, by their numbers.
#[derive(Clone, Debug, Default)]
pub struct FlowRoute {
    /// From the sender of the data.
    pub forward: Vec<usize>,
    /// Back to it.
    pub back: Vec<usize>,
}

/// A flow and its routes.
struct Routed {
    flow: Box<dyn SimFlow>,
    routes: Vec<FlowRoute>,
}

/// Links, flows, and the time.
pub struct Network {
    links: Vec<Link<SimPacket>>,
    flows: Vec<Routed>,
    agenda: TimerTournament,
    now_ns: u64,
    events: u64,
    hash: u64,
}

impl Network {
    /// A network at time 0 in which nothing has been sent.
    ///
    /// # Panics
    /// A flow has no route, or one that is empty or names a link that is not there.
    pub fn new(
        links: Vec<Link<SimPacket>>,
        flows: Vec<(Box<dyn SimFlow>, Vec<FlowRoute>)>,
    ) -> Self {
        assert!(flows.iter().all(|(_, routes)| !routes.is_empty()), "a flow without a route");
        for route in flows.iter().flat_map(|(_, routes)| routes) {
            for way in [&route.forward, &route.back] {
                assert!(!way.is_empty() && way.iter().all(|link| *link < links.len()), "{way:?}");
            }
        }
        let mut agenda = TimerTournament::new(links.len() + flows.len());
        for (number, (flow, _)) in flows.iter().enumerate() {
            agenda.set(links.len() + number, flow.next_due_ns());
        }
        let flows = flows.into_iter().map(|(flow, routes)| Routed { flow, routes }).collect();
        Self { links, flows, agenda, now_ns: 0, events: 0, hash: FNV_OFFSET }
    }

    /// Lets everything happen that is due by `until_ns`.
    pub fn run_until(&mut self, until_ns: u64) {
        while let (source, due_ns) = self.agenda.first()
            && due_ns <= until_ns
        {
            self.now_ns = due_ns;
            self.events += 1;
            match source.checked_sub(self.links.len()) {
                None => self.arrive(source),
                Some(flow) => self.transmit(flow),
            }
        }
        self.now_ns = until_ns;
    }

    /// Takes what has come over a link to the next one, or to its flow.
    fn arrive(&mut self, link: usize) {
        if let Some(delivery) = self.links[link].poll(self.now_ns) {
            let mut packet = delivery.packet;
            packet.marked |= delivery.marked;
            packet.hop += 1;
            // What is corrupt fails a checksum somewhere, so nobody sees it.
            if delivery.corrupt.is_none() {
                self.forward(packet);
            }
        }
        self.agenda.set(link, self.links[link].next_due_ns().unwrap_or(NEVER_NS));
    }

    fn forward(&mut self, packet: SimPacket) {
        let flow = packet.flow as usize;
        let route = &self.flows[flow].routes[usize::from(packet.lane)];
        let hops = if packet.way == FlowDirection::Forward { &route.forward } else { &route.back };
        if let Some(next) = hops.get(usize::from(packet.hop)).copied() {
            self.enter(next, packet);
            return;
        }
        self.note(&packet);
        let SimPacket { way, lane, body, marked, .. } = packet;
        self.flows[flow].flow.handle(self.now_ns, way, lane, body, marked);
        self.transmit(flow);
    }

    /// Sends what a flow has to send, and asks when it is due again.
    fn transmit(&mut self, flow: usize) {
        while let Some(outgoing) = self.flows[flow].flow.poll_transmit(self.now_ns) {
            self.events += 1;
            let FlowPacket { way, lane, octets, markable, body } = outgoing;
            let route = &self.flows[flow].routes[usize::from(lane)];
            let first =
                if way == FlowDirection::Forward { route.forward[0] } else { route.back[0] };
            let flow = flow as u32;
            let marked = false;
            self.enter(
                first,
                SimPacket { flow, hop: 0, way, lane, octets, markable, marked, body },
            );
        }
        let due_ns = self.flows[flow].flow.next_due_ns();
        self.agenda.set(self.links.len() + flow, due_ns);
    }

    fn enter(&mut self, link: usize, packet: SimPacket) {
        let link_state = &mut self.links[link];
        link_state.handle(self.now_ns, packet.octets, packet.markable, packet);
        let due_ns = link_state.next_due_ns().unwrap_or(NEVER_NS);
        self.agenda.set(link, due_ns);
    }

    fn note(&mut self, packet: &SimPacket) {
        let number = match packet.body {
            PacketBody::Data(number) => number,
            PacketBody::Ack { runs, .. } => !runs,
            PacketBody::Datagram(_) => u64::from(packet.octets),
        };
        for word in [self.now_ns, u64::from(packet.flow), number] {
            self.hash = (self.hash ^ word).wrapping_mul(FNV_PRIME).rotate_left(29);
        }
    }

    /// What tells this run from others: time, flow and number of every packet that arrived.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// How many packets were sent or moved over a link, timers counted too.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// A flow, by its number.
    pub fn flow(&self, number: usize) -> &dyn SimFlow {
        &*self.flows[number].flow
    }

    /// How long a packet would wait now at a link's bottleneck, in nanoseconds.
    pub fn queue_ns(&mut self, link: usize) -> u64 {
        let link = &mut self.links[link];
        let octets = link.queue_bytes(self.now_ns);
        link.rate(self.now_ns).map_or(0, |rate| rate.ns_for(octets))
    }

    /// A link, by its number.
    pub fn link(&self, number: usize) -> &Link<SimPacket> {
        &self.links[number]
    }
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
