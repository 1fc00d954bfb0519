//! Two queue pairs over Shuttle, and a network that loses, delays, reorders, duplicates and
//! corrupts. Time passes in jumps from one thing that is due to the next.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use weft_rnic::shuttle::{Identity, PeerRequest, Route, ShuttleConfig};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::{Binding, Sending, ShuttleQp, WhenClosed, Written};
use weft_verbs::{Qp, QpState};

use super::player::Player;
use super::{Host, entropy, flatten};

pub const MS: u64 = 1_000_000;

/// A host whose queue pair is bound to a Shuttle connection.
pub struct Side {
    pub host: Host,
    pub shuttle: ShuttleQp,
}

impl Deref for Side {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// How often of 100 times what goes wrong goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    pub lost: u32,
    pub late: u32,
    pub doubled: u32,
    pub corrupt: u32,
}

/// Whether a datagram to an end is lost.
pub type Losing = Box<dyn FnMut(usize, &[u8]) -> bool>;

/// What is on its way, in both directions.
pub struct Network {
    pub weather: Weather,
    /// Says what else is lost, of what is sent to an end.
    pub loses: Option<Losing>,
    random: Box<dyn Fn() -> u32>,
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    sent: u64,
    /// Datagrams as they were sent, and to which end.
    pub trace: Vec<(usize, Vec<u8>)>,
}

impl Network {
    fn happens(&self, percent: u32) -> bool {
        (self.random)() % 100 < percent
    }

    fn send(&mut self, now_ns: u64, to: usize, datagram: &[u8]) {
        self.trace.push((to, datagram.to_vec()));
        if self.loses.as_mut().is_some_and(|loses| loses(to, datagram)) {
            return;
        }
        let copies = if self.happens(self.weather.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let late =
                if self.happens(self.weather.late) { u64::from((self.random)() % 20) } else { 0 };
            let mut copy = datagram.to_vec();
            if self.happens(self.weather.corrupt) {
                let at = (self.random)() as usize % copy.len();
                copy[at] ^= 1 << ((self.random)() % 8);
            }
            if !self.happens(self.weather.lost) {
                self.sent += 1;
                self.flying.insert((now_ns + (5 + late) * MS, self.sent), (to, copy));
            }
        }
    }
}

fn route(host: usize) -> Route {
    let at = |host: usize| ([10, 0, 0, host as u8 + 1], 4000).into();
    Route { local: at(host), remote: at(1 - host) }
}

fn binding(host: usize) -> Binding {
    let seed = host as u64 + 1;
    Binding {
        config: ShuttleConfig {
            ord: 4,
            ird: 4,
            idle_ns: 10_000_000 * MS,
            handshake_ns: 60_000 * MS,
            ..ShuttleConfig::default()
        },
        identity: Identity {
            cid: ConnectionId(0x1100 << host),
            nonce: seed,
            seed,
            entropy: [host as u8; 32],
        },
        route: route(host),
        when_closed: WhenClosed::Stay,
    }
}

fn ready(qp: &Arc<Qp>) -> Arc<Qp> {
    qp.enter(QpState::Rts);
    Arc::clone(qp)
}

/// Two bound sides: the Request and its Reply have been carried.
fn pair([near, far]: [Host; 2], now_ns: u64) -> [Side; 2] {
    let mut ask = ShuttleQp::connect(ready(&near.qp), binding(0), b"", now_ns).unwrap();
    let mut datagrams = Vec::new();
    output(&mut ask, &near, now_ns, |datagram| datagrams.push(datagram.to_vec()));
    let grant = binding(1);
    let mut request = PeerRequest::parse(&datagrams[0], &grant.config, [3; 32]).unwrap();
    let grant = ShuttleQp::accept(ready(&far.qp), grant, &mut request, b"", now_ns).unwrap();
    [Side { host: near, shuttle: ask }, Side { host: far, shuttle: grant }]
}

/// Everything that an shuttle sends now.
fn output(shuttle: &mut ShuttleQp, host: &Host, now_ns: u64, mut take: impl FnMut(&[u8])) {
    let table = Arc::clone(host.device.regions());
    loop {
        let outcome = shuttle.poll_transmit(
            || now_ns,
            |burst| {
                let all = flatten(burst, &table.reader());
                let mut rest = &all[..];
                for length in burst.lengths {
                    let (datagram, later) = rest.split_at(usize::from(*length));
                    take(datagram);
                    rest = later;
                }
                Written::Octets(all.len())
            },
        );
        if outcome == Sending::Done {
            return;
        }
    }
}

/// Something that has a side.
pub trait Holds {
    /// The side.
    fn side(&mut self) -> &mut Side;
}

impl Holds for Side {
    fn side(&mut self) -> &mut Side {
        self
    }
}

impl Holds for Player<Side> {
    fn side(&mut self) -> &mut Side {
        &mut self.side
    }
}

/// Both ends and what is between them.
pub struct World<T> {
    pub ends: [T; 2],
    pub network: Network,
    pub now_ns: u64,
}

impl World<Side> {
    /// The queue pairs of `hosts`, connected.
    pub fn new(hosts: [Host; 2], weather: Weather, seed: u32) -> Self {
        let now_ns = 1000 * MS;
        let (flying, trace) = (BTreeMap::new(), Vec::new());
        let (random, loses) = (entropy(seed), None);
        let network = Network { weather, loses, random, flying, sent: 0, trace };
        Self { ends: pair(hosts, now_ns), network, now_ns }
    }
}

impl<T: Holds> World<T> {
    /// The same with other ends.
    pub fn map<U>(self, change: impl FnMut(T) -> U) -> World<U> {
        World { ends: self.ends.map(change), network: self.network, now_ns: self.now_ns }
    }

    /// Lets whatever is due happen: sends, arrivals, timers. Gives the time of what comes next.
    fn step(&mut self) -> Option<u64> {
        for (at, end) in self.ends.iter_mut().enumerate() {
            let Side { host, shuttle } = end.side();
            let (network, now_ns) = (&mut self.network, self.now_ns);
            output(shuttle, host, now_ns, |datagram| network.send(now_ns, 1 - at, datagram));
        }
        let arrival = self.network.flying.first_key_value().map(|(key, _)| key.0);
        let timers = self.ends.iter_mut().filter_map(|end| end.side().shuttle.poll_timeout());
        timers.chain(arrival).min()
    }

    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        while let Some(entry) = self.network.flying.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (at, mut datagram) = entry.remove();
            let shuttle = &mut self.ends[at].side().shuttle;
            shuttle.receive(self.now_ns, route(at), false, &mut datagram);
        }
        for end in &mut self.ends {
            end.side().shuttle.handle_timeout(self.now_ns);
        }
    }

    /// Lets pass what comes next, or a second at most.
    pub fn run_on(&mut self) {
        let next = self.step().unwrap_or(u64::MAX);
        self.advance(next.min(self.now_ns + 1000 * MS));
    }

    pub fn run_for(&mut self, time_ns: u64) {
        let end = self.now_ns + time_ns;
        while let Some(next) = self.step()
            && next <= end
        {
            self.advance(next);
        }
        self.now_ns = end;
    }

    /// Gives how long it took.
    pub fn run_until_idle(&mut self) -> u64 {
        let begun_ns = self.now_ns;
        let limit = begun_ns + 60_000 * MS;
        loop {
            let next = self.step();
            if self.ends.iter_mut().all(|end| end.side().qp.sq().is_idle()) {
                break;
            }
            let next = next.expect("something is still to come");
            assert!(next < limit, "requests are not complete after a minute");
            self.advance(next);
        }
        self.now_ns - begun_ns
    }
}
