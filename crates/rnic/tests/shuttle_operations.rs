//! Random operations on two queue pairs over Shuttle, through a network that loses, delays,
//! reorders, duplicates and corrupts.

mod common;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use common::player::{Op, Player, act, check, op};
use common::{Host, entropy};
use proptest::prelude::*;
use weft_rnic::shuttle::{Config, Identity, Request, Route};
use weft_rnic::wire::llp::{Piece, RegisteredMemory};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::{Association, Binding, Sending, WhenClosed, Written};
use weft_verbs::{Qp, QpState};

const MS: u64 = 1_000_000;

/// A host whose queue pair is bound to a Shuttle connection.
struct Side {
    host: Host,
    association: Association,
}

impl Deref for Side {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.host
    }
}

/// How often of 100 times what goes wrong goes wrong.
#[derive(Clone, Copy, Debug)]
struct Weather {
    lost: u32,
    late: u32,
    doubled: u32,
    corrupt: u32,
}

/// What is on its way, in both directions.
struct Network {
    weather: Weather,
    random: Box<dyn Fn() -> u32>,
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    sent: u64,
}

impl Network {
    fn happens(&self, percent: u32) -> bool {
        (self.random)() % 100 < percent
    }

    fn send(&mut self, now_ns: u64, to: usize, datagram: &[u8]) {
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
        config: Config { ord: 4, ird: 4, ..Config::default() },
        identity: Identity {
            cid: ConnectionId(0x1100 << host),
            nonce: seed,
            seed,
            entropy: [host as u8; 32],
        },
        route: route(host),
        when_closed: WhenClosed::Fail,
    }
}

fn ready(qp: &Arc<Qp>) -> Arc<Qp> {
    qp.enter(QpState::Rts);
    Arc::clone(qp)
}

/// Two bound sides: the Request and its Reply have been carried.
fn pair(now_ns: u64) -> [Side; 2] {
    let (near, far) = (Host::new(7), Host::new(11));
    let mut ask = Association::connect(ready(&near.qp), binding(0), b"", now_ns).unwrap();
    let mut datagrams = Vec::new();
    output(&mut ask, &near, now_ns, |datagram| datagrams.push(datagram.to_vec()));
    let grant = binding(1);
    let mut request = Request::parse(&datagrams[0], &grant.config, [3; 32]).unwrap();
    let grant = Association::accept(ready(&far.qp), grant, &mut request, b"", now_ns).unwrap();
    [Side { host: near, association: ask }, Side { host: far, association: grant }]
}

/// Everything that an association sends now.
fn output(association: &mut Association, host: &Host, now_ns: u64, mut take: impl FnMut(&[u8])) {
    let table = Arc::clone(host.device.regions());
    loop {
        let outcome = association.transmit(now_ns, |burst| {
            let (transmit, regions) = (burst.transmit(), table.reader());
            let mut all = Vec::new();
            for piece in transmit.gather.pieces() {
                match piece {
                    Piece::Slab { start, len } => {
                        all.extend_from_slice(transmit.gather.staged(*start, *len));
                    }
                    Piece::Memory(memory) => regions.copy_to(*memory, &mut all),
                }
            }
            let mut rest = &all[..];
            for length in &transmit.lengths {
                let (datagram, later) = rest.split_at(usize::from(*length));
                take(datagram);
                rest = later;
            }
            Written::Octets(all.len())
        });
        if outcome == Sending::Done {
            return;
        }
    }
}

struct World {
    players: [Player<Side>; 2],
    network: Network,
    now_ns: u64,
}

impl World {
    fn new(weather: Weather, seed: u32) -> Self {
        let now_ns = 1000 * MS;
        let [near, far] = pair(now_ns);
        let network = Network { weather, random: entropy(seed), flying: BTreeMap::new(), sent: 0 };
        Self { players: [Player::new(near, 1), Player::new(far, 2)], network, now_ns }
    }

    /// Lets whatever is due happen: sends, arrivals, timers. Gives the time of what comes next.
    fn step(&mut self) -> Option<u64> {
        for (at, player) in self.players.iter_mut().enumerate() {
            let Side { host, association } = &mut player.side;
            let (network, now_ns) = (&mut self.network, self.now_ns);
            output(association, host, now_ns, |datagram| network.send(now_ns, 1 - at, datagram));
        }
        let arrival = self.network.flying.first_key_value().map(|(key, _)| key.0);
        let timers = self.players.iter().filter_map(|p| p.side.association.poll_timeout());
        timers.chain(arrival).min()
    }

    fn advance(&mut self, to_ns: u64) {
        self.now_ns = self.now_ns.max(to_ns);
        while let Some(entry) = self.network.flying.first_entry()
            && entry.key().0 <= self.now_ns
        {
            let (at, mut datagram) = entry.remove();
            let association = &mut self.players[at].side.association;
            association.receive(self.now_ns, route(at), false, &mut datagram);
        }
        for player in &mut self.players {
            player.side.association.handle_timeout(self.now_ns);
        }
    }

    fn run_for(&mut self, time_ns: u64) {
        let end = self.now_ns + time_ns;
        while let Some(next) = self.step()
            && next <= end
        {
            self.advance(next);
        }
        self.now_ns = end;
    }

    fn run_until_idle(&mut self) {
        let idle = |player: &Player<Side>| player.side.qp.sq().is_idle();
        let limit = self.now_ns + 60_000 * MS;
        while !self.players.iter().all(idle) {
            let next = self.step().expect("something is still to come");
            assert!(next < limit, "requests are not complete after a minute");
            self.advance(next);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Do(Op),
    Pass { ms: u64 },
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        5 => op().prop_map(Step::Do),
        1 => (0u64..30).prop_map(|ms| Step::Pass { ms }),
    ];
    (any::<bool>(), step)
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u32..20, 0u32..50, 0u32..10, 0u32..5).prop_map(|(lost, late, doubled, corrupt)| Weather {
        lost,
        late,
        doubled,
        corrupt,
    })
}

fn run(steps: &[(bool, Step)], weather: Weather, seed: u32) {
    let mut world = World::new(weather, seed);
    for (by_first, step) in steps {
        let [a, b] = &mut world.players;
        let (me, peer) = if *by_first { (a, b) } else { (b, a) };
        match step {
            Step::Do(op) => act(op, me, peer),
            Step::Pass { ms } => world.run_for(ms * MS),
        }
    }
    world.run_until_idle();
    world.players.iter().for_each(check);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_completions_are_what_the_model_says(
        steps in prop::collection::vec(step(), 1..50),
        weather in weather(),
        seed in any::<u32>(),
    ) {
        run(&steps, weather, seed);
    }
}
