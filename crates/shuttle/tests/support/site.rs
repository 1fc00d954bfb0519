//! Two sites, each with one socket that all its connections share.

use std::collections::VecDeque;

use weft_shuttle::{
    Arrival, Endpoint, Listen, Refusal, Route, ShuttleConfig, ShuttleConnection, ShuttleEvent,
    Ticket, Transmit,
};

use super::model::{self, End, Memory, Ports};
use super::network::{Link, Network};
use super::{MS, route};

/// A connection and what lies above it.
pub struct Joined {
    pub connection: ShuttleConnection,
    pub ports: Ports,
    pub events: Vec<ShuttleEvent>,
}

/// One site.
pub struct Site {
    pub endpoint: Endpoint<usize>,
    /// By the endpoint's keys.
    pub joined: Vec<Joined>,
    /// Requests that wait for an answer.
    pub asked: VecDeque<Ticket>,
    pub refused: Vec<Refusal>,
    /// Bytes that the endpoint itself answered with.
    pub answered_octets: usize,
    pub config: ShuttleConfig,
    out: Transmit,
}

/// Site 0 asks, site 1 grants.
pub struct World {
    pub sites: [Site; 2],
    pub network: Network,
    pub now_ns: u64,
    /// Whether site 1 accepts at once what it is asked.
    pub accepts: bool,
    /// The other halves of what lies above the connections that were asked for.
    halves: Vec<Option<End>>,
    /// Datagrams as they were sent: by whom, which bytes.
    pub trace: Vec<(usize, Vec<u8>)>,
}

impl Site {
    fn new(seed: u64, config: &ShuttleConfig) -> Self {
        let mut octets = [7; 32];
        octets[..8].copy_from_slice(&seed.to_be_bytes());
        Self {
            endpoint: Endpoint::new(octets),
            joined: Vec::new(),
            asked: VecDeque::new(),
            refused: Vec::new(),
            answered_octets: 0,
            config: config.clone(),
            out: Transmit::default(),
        }
    }

    fn join(&mut self, connection: ShuttleConnection, end: End) -> usize {
        let key = self.joined.len();
        self.endpoint.attach(connection.cid(), key);
        let ports = Ports::new(vec![end]);
        self.joined.push(Joined { connection, ports, events: Vec::new() });
        key
    }

    /// Takes a datagram; gives what goes back.
    pub fn receive(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Option<Vec<u8>> {
        let answer = match self.endpoint.handle_datagram(now_ns, route, datagram) {
            Arrival::Connection(key) => {
                let Joined { connection, ports, .. } = &mut self.joined[*key];
                let datagram = &mut datagram.to_vec();
                connection
                    .handle_datagram(now_ns, route, false, datagram, ports)
                    .expect("no segment is at fault");
                return None;
            }
            Arrival::Request(ticket) => {
                self.asked.push_back(ticket);
                return None;
            }
            Arrival::Answer(answer) => answer,
            Arrival::Refused { answer, why } => {
                self.refused.push(why);
                answer
            }
            Arrival::Nothing => return None,
        };
        assert!(answer.len() <= datagram.len(), "an answer longer than what it answers");
        self.answered_octets += answer.len();
        Some(answer)
    }
}

impl World {
    pub fn new(seed: u64, configs: [&ShuttleConfig; 2], link: &Link) -> Self {
        let mut sites = [Site::new(seed, configs[0]), Site::new(!seed, configs[1])];
        let listen = Listen::new(configs[1].clone());
        sites[1].endpoint.listen(Some(listen));
        Self {
            sites,
            network: Network::new(seed, link),
            now_ns: 1000 * MS,
            accepts: true,
            halves: Vec::new(),
            trace: Vec::new(),
        }
    }

    /// Site 0 asks for one more connection; gives its key.
    pub fn ask(&mut self) -> usize {
        let (left, right) = End::pair();
        let number = self.halves.len() as u32;
        self.halves.push(Some(right));
        let site = &mut self.sites[0];
        let identity = site.endpoint.identity(self.now_ns).unwrap();
        let (config, way) = (site.config.clone(), route(0, 0));
        let private_data = number.to_be_bytes();
        let connection =
            ShuttleConnection::connect(self.now_ns, config, identity, way, &private_data).unwrap();
        site.join(connection, left)
    }

    /// Site 1 accepts what it was asked first; `false` if it is too late.
    pub fn accept(&mut self) -> bool {
        let site = &mut self.sites[1];
        let ticket = site.asked.pop_front().expect("a request waits");
        let Some((request, _)) = site.endpoint.request(ticket) else { return false };
        let number = u32::from_be_bytes(request.private_data().try_into().unwrap());
        let config = site.config.clone();
        let granted = site.endpoint.accept(self.now_ns, ticket, config, b"yes").unwrap();
        let end = self.halves[number as usize].take().expect("one request, one connection");
        site.join(granted, end);
        true
    }

    pub fn run_for(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        self.transmit();
        while let Some(next) = self.next_ns()
            && next <= end
        {
            self.now_ns = next.max(self.now_ns);
            self.step();
            self.transmit();
        }
        self.now_ns = end;
    }

    pub fn run_until(&mut self, limit_ns: u64, done: impl Fn(&Self) -> bool) {
        let end = self.now_ns + limit_ns;
        while !done(self) {
            assert!(self.now_ns < end, "not done in time");
            self.run_for(5 * MS);
        }
    }

    fn next_ns(&self) -> Option<u64> {
        let joined = self.sites.iter().flat_map(|site| &site.joined);
        let timers = joined.filter_map(|joined| joined.connection.poll_timeout());
        timers.chain(self.network.next_ns()).min()
    }

    fn step(&mut self) {
        while let Some((to, way, datagram)) = self.network.poll(self.now_ns) {
            if let Some(answer) = self.sites[to].receive(self.now_ns, way, &datagram) {
                self.trace.push((to, answer.clone()));
                self.network.send(self.now_ns, to, way, answer);
            }
            while self.accepts && !self.sites[1].asked.is_empty() {
                self.accept();
            }
        }
        for Joined { connection, .. } in self.sites.iter_mut().flat_map(|site| &mut site.joined) {
            if connection.poll_timeout().is_some_and(|at| at <= self.now_ns) {
                connection.handle_timeout(self.now_ns);
            }
        }
    }

    fn transmit(&mut self) {
        let Self { sites, network, trace, now_ns, .. } = self;
        for (at, site) in sites.iter_mut().enumerate() {
            let Site { endpoint, joined, out, .. } = site;
            for Joined { connection, ports, events } in joined {
                while connection.poll_transmit(*now_ns, ports, &Memory, out) {
                    let octets = model::flatten(&out.gather);
                    let mut rest = &octets[..];
                    for len in &out.lengths {
                        let (datagram, after) = rest.split_at(usize::from(*len));
                        rest = after;
                        trace.push((at, datagram.to_vec()));
                        network.send(*now_ns, at, out.route.unwrap(), datagram.to_vec());
                    }
                }
                while let Some(event) = connection.poll_event() {
                    if matches!(event, ShuttleEvent::Established { .. }) {
                        endpoint.handle_established(connection.cid());
                    }
                    events.push(event);
                }
            }
        }
    }

    /// Connections of `site` that are open.
    pub fn open(&self, site: usize) -> usize {
        self.sites[site].joined.iter().filter(|joined| joined.connection.is_open()).count()
    }

    /// Whether everything that was posted is completed.
    pub fn is_complete(&self) -> bool {
        let joined = self.sites.iter().flat_map(|site| &site.joined);
        joined.flat_map(|joined| &joined.ports.ends).all(End::is_complete)
    }
}
