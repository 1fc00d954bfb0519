//! Two connections joined by a network that loses, delays, reorders and duplicates, with a model
//! of what may be placed, delivered and completed when.
#![allow(dead_code, reason = "each test that includes this uses a part of it")]

pub mod model;
pub mod network;
pub mod site;

use std::env;
use std::hash::{BuildHasher, RandomState};

use model::{End, Memory, Message, Ports};
use network::{Link, Network, Random};
use weft_shuttle::{
    Identity, PeerRequest, Route, ShuttleConfig, ShuttleConnection, ShuttleEvent, Transmit,
};
use weft_wire::shuttle::{ConnectionId, StreamId};

pub const MS: u64 = 1_000_000;

/// The seed of a test: `WEFT_SEED`, or a fresh one. It is printed, so a failure can be repeated.
pub fn seed() -> u64 {
    let given = env::var("WEFT_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
    println!("WEFT_SEED={seed}");
    seed
}

/// One end: the connection once there is one, and what lies above the seam.
pub struct Host {
    pub connection: Option<ShuttleConnection>,
    pub ports: Ports,
    pub events: Vec<ShuttleEvent>,
    pub route: Route,
    config: ShuttleConfig,
    identity: Identity,
    pub out: Transmit,
}

/// What the listening host does with a Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Accept,
    Reject,
    Ignore,
}

/// Two hosts and the network between them.
pub struct Pair {
    pub hosts: [Host; 2],
    pub network: Network,
    pub now_ns: u64,
    steps: u32,
    pub answer: Answer,
    /// Datagrams as they were sent: by whom, when, which bytes.
    pub trace: Vec<(usize, u64, Vec<u8>)>,
    /// Lengths of the datagrams that left together, and by whom they were sent.
    pub bundles: Vec<(usize, Vec<u16>)>,
    pub tracing: bool,
    /// The network marks each packet (CE).
    pub marking: bool,
}

pub fn route(host: usize, path: u16) -> Route {
    let at = |host: usize| ([10, 0, 0, host as u8 + 1], 4000 + path).into();
    Route { local: at(host), remote: at(1 - host) }
}

impl Host {
    fn new(host: usize, config: ShuttleConfig, random: &mut Random, ends: Vec<End>) -> Self {
        let cid = ConnectionId(random.next() as u32 & !0xff);
        let (nonce, seed, entropy) = (random.next(), random.next(), [host as u8 + 1; 32]);
        let identity = Identity { cid, nonce, seed, entropy };
        Self {
            connection: None,
            ports: Ports::new(ends),
            events: Vec::new(),
            route: route(host, 0),
            config,
            identity,
            out: Transmit::default(),
        }
    }
}

impl Pair {
    /// Host 0 asks host 1 for a connection over `link`, with `streams` streams.
    pub fn new(seed: u64, config: &ShuttleConfig, link: &Link, streams: u8) -> Self {
        Self::with_configs(seed, [config.clone(), config.clone()], link, streams)
    }

    pub fn with_configs(seed: u64, configs: [ShuttleConfig; 2], link: &Link, streams: u8) -> Self {
        let mut random = Random(seed);
        let (left, right) = (0..streams).map(|_| End::pair()).unzip();
        let [a, b] = configs;
        let hosts = [Host::new(0, a, &mut random, left), Host::new(1, b, &mut random, right)];
        let mut pair = Self {
            hosts,
            network: Network::new(random.next(), link),
            now_ns: 1000 * MS,
            steps: 0,
            answer: Answer::Accept,
            trace: Vec::new(),
            bundles: Vec::new(),
            tracing: false,
            marking: false,
        };
        let host = &mut pair.hosts[0];
        let (config, identity) = (host.config.clone(), host.identity);
        host.connection = Some(
            ShuttleConnection::connect(pair.now_ns, config, identity, host.route, b"ask").unwrap(),
        );
        pair
    }

    pub fn connection(&mut self, host: usize) -> &mut ShuttleConnection {
        self.hosts[host].connection.as_mut().expect("a connection")
    }

    /// Runs until `done`, or panics after `limit_ns` of the network's time.
    pub fn run_until(&mut self, limit_ns: u64, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now_ns + limit_ns;
        loop {
            self.transmit();
            if done(self) {
                return;
            }
            let events = [&self.hosts[0].events, &self.hosts[1].events];
            let Some(next) = self.next_ns() else { panic!("nothing to wait for: {events:?}") };
            assert!(next <= end, "not done in time, at {} ms", self.now_ns / MS);
            self.advance(next);
            self.step();
        }
    }

    /// Runs until `done` of what has arrived, before anything is sent because of it.
    pub fn run_up_to(&mut self, limit_ns: u64, mut done: impl FnMut(&Self) -> bool) {
        let end = self.now_ns + limit_ns;
        while !done(self) {
            self.transmit();
            let next = self.next_ns().filter(|next| *next <= end);
            self.advance(next.expect("something that happens in time"));
            self.step();
        }
    }

    /// Runs for `ns` of the network's time.
    pub fn run_for(&mut self, ns: u64) {
        let end = self.now_ns + ns;
        self.transmit();
        while let Some(next) = self.next_ns()
            && next <= end
        {
            self.advance(next);
            self.step();
            self.transmit();
        }
        self.now_ns = end;
    }

    /// Time must not stand still: an end that has something to do at once does it.
    fn advance(&mut self, next_ns: u64) {
        self.steps = if next_ns > self.now_ns { 0 } else { self.steps + 1 };
        assert!(self.steps < 10_000, "time stands still at {} ns", self.now_ns);
        self.now_ns = next_ns.max(self.now_ns);
    }

    fn next_ns(&self) -> Option<u64> {
        let timers = self.hosts.iter().filter_map(|host| host.connection.as_ref()?.poll_timeout());
        timers.chain(self.network.next_ns()).min()
    }

    fn step(&mut self) {
        while let Some((to, route, datagram)) = self.network.poll(self.now_ns) {
            self.receive(to, route, datagram);
        }
        for host in &mut self.hosts {
            if let Some(connection) = &mut host.connection
                && connection.poll_timeout().is_some_and(|at| at <= self.now_ns)
            {
                connection.handle_timeout(self.now_ns);
            }
        }
    }

    fn receive(&mut self, to: usize, route: Route, mut datagram: Vec<u8>) {
        let (datagram, marked) = (&mut datagram[..], self.marking);
        let host = &mut self.hosts[to];
        if let Some(connection) = &mut host.connection {
            connection
                .handle_datagram(self.now_ns, route, marked, datagram, &mut host.ports)
                .expect("no segment is at fault");
            return;
        }
        let parsed = PeerRequest::parse(datagram, &host.config, [9; 32]);
        let Ok(mut request) = parsed else { return };
        match self.answer {
            Answer::Ignore => {}
            Answer::Reject => {
                let octets = request.reject(7, b"no").unwrap();
                self.network.send(self.now_ns, to, route, octets);
            }
            Answer::Accept => {
                assert_eq!(request.private_data(), b"ask");
                let (config, identity) = (host.config.clone(), host.identity);
                let now_ns = self.now_ns;
                let accepted = ShuttleConnection::accept(
                    now_ns,
                    config,
                    identity,
                    route,
                    &mut request,
                    b"yes",
                );
                host.connection = Some(accepted.unwrap());
                let connection = host.connection.as_mut().unwrap();
                connection
                    .handle_datagram(now_ns, route, false, datagram, &mut host.ports)
                    .unwrap();
            }
        }
    }

    fn transmit(&mut self) {
        for (at, host) in self.hosts.iter_mut().enumerate() {
            let Some(connection) = &mut host.connection else { continue };
            let mut bursts = 0;
            while connection.poll_transmit(self.now_ns, &mut host.ports, &Memory, &mut host.out) {
                bursts += 1;
                assert!(bursts < 100_000, "it never stops sending");
                if self.tracing {
                    self.bundles.push((at, host.out.lengths.clone()));
                }
                let octets = model::flatten(&host.out.gather);
                let mut rest = &octets[..];
                for len in &host.out.lengths {
                    let (datagram, after) = rest.split_at(usize::from(*len));
                    rest = after;
                    if self.tracing {
                        self.trace.push((at, self.now_ns, datagram.to_vec()));
                    }
                    let route = host.out.route.expect("a route");
                    let cuttable = host.out.may_fragment;
                    let datagram = datagram.to_vec();
                    self.network.send_whole(self.now_ns, at, route, datagram, cuttable);
                }
                assert!(rest.is_empty());
            }
            host.events.extend(std::iter::from_fn(|| connection.poll_event()));
        }
    }

    /// Posts a message on `stream` of `host`.
    pub fn post(&mut self, host: usize, stream: u8, message: Message) {
        self.hosts[host].ports.ends[usize::from(stream)].source.post(message);
        self.connection(host).wake(StreamId(stream));
    }

    /// Whether both ends are open.
    pub fn is_open(&self) -> bool {
        self.hosts
            .iter()
            .all(|host| host.connection.as_ref().is_some_and(ShuttleConnection::is_open))
    }

    /// Opens the connection.
    pub fn open(&mut self) {
        self.run_until(20_000 * MS, Self::is_open);
    }

    /// Whether everything that was posted is completed at both ends.
    pub fn is_complete(&self) -> bool {
        self.hosts.iter().all(|host| host.ports.ends.iter().all(End::is_complete))
    }
}
