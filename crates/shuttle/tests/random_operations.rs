//! Anything that can happen to a connection, in any order: work, losses, reordering, duplicates,
//! flipped bits, delays, paths that begin, move and die, keys that change, credits that run out.
//! The model below the streams knows what memory, deliveries and completions must be: nothing
//! lost, nothing twice, nothing early, tails last.
//!
//! `WEFT_RUNS` says how many runs, `WEFT_SEED` which is the first. Each run follows from its seed,
//! which a failure prints.
//!
//! Rules of `docs/shuttle.md`: S-3, S-30 to S-37, S-42 to S-45, S-50 to S-57, S-70 to S-73, S-83.

mod support;

use std::{env, fmt::Debug, thread};

use support::model::Message;
use support::network::{Link, Random};
use support::{MS, Pair, route, seed};
use weft_shuttle::{
    ConnectionEnd, Credentials, Credit, Placement, ShuttleConfig, ShuttleEvent, cc,
};
use weft_wire::ids::Msn;
use weft_wire::shuttle::StreamId;
use weft_wire::shuttle::hello::{placement, protection, recovery};

/// Enough for every day.
const RUNS: u64 = 300;
const STREAMS: u8 = 3;
/// Silence after which the network carries again.
const SILENCE_NS_MAX: u64 = 10_000 * MS;
const PLACEMENTS: [(u8, Placement); 3] = [
    (placement::STRICT, Placement::Strict),
    (placement::TAIL, Placement::Tail),
    (placement::LOOSE, Placement::Loose),
];

/// Says which run it was.
struct Tell(u64);

impl Drop for Tell {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("the run that failed: WEFT_SEED={} WEFT_RUNS=1", self.0);
        }
    }
}

/// One run: the two ends, and what is to come.
struct Run {
    random: Random,
    pair: Pair,
    /// Who is behind an address translator.
    translated: usize,
    paths: u16,
    /// Receives posted for each stream of each host, where they count.
    receives: Option<[[u32; STREAMS as usize]; 2]>,
    /// Whether applications say that messages wait for receives.
    tells: bool,
    corrupts: bool,
}

fn of<T: Copy + Debug>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

fn link(random: &mut Random, corrupts: bool) -> Link {
    let part = |random: &mut Random, most: f64| match random.below(3) {
        0 => most * random.below(1000) as f64 / 1000.0,
        _ => 0.0,
    };
    Link {
        delay_ns: random.below(40 * MS) + 1000,
        rate_bps: of(random, &[0, 5_000_000, 50_000_000, 1_000_000_000]),
        // A queue longer than the idle timeout would be an outage.
        queue_ns: of(random, &[5 * MS, 50 * MS, 2000 * MS]),
        loss: part(random, 0.3),
        duplicate: part(random, 0.3),
        late: part(random, 0.5),
        late_ns: random.below(60 * MS),
        corrupt: if corrupts { part(random, 0.05) } else { 0.0 },
    }
}

fn config(random: &mut Random) -> (ShuttleConfig, Placement) {
    let (bit, placement) = of(random, &PLACEMENTS);
    let protections =
        [protection::NONE, protection::CRC32C, protection::AES128GCM, protection::CHACHA20POLY1305];
    let recoveries = [recovery::FULL, recovery::FULL, recovery::TAIL_DUP, recovery::OFF];
    let rate_bps = of(random, &[2_000_000, 20_000_000, 200_000_000]);
    let params = cc::Params { initial_rate_bps: Some(rate_bps), ..cc::Params::default() };
    let controllers: [cc::Make; 5] = [cc::weave, cc::bbr1, cc::cubic, cc::fixed, cc::none];
    let config = ShuttleConfig {
        protection: of(random, &protections),
        credentials: Credentials::PreShared([5; 32]),
        placement: bit,
        recovery: of(random, &recoveries),
        lost_twice: random.below(2) == 0,
        packets_per_key: of(random, &[1, 20, 200, 1 << 22]),
        streams: u16::from(STREAMS),
        datagram_octets_goal: of(random, &[1200, 1472, 8972]),
        held_octets: of(random, &[0, 5000, 1 << 20]),
        handshake_ns: 200_000 * MS,
        initial_rtt_ns: of(random, &[5 * MS, 100 * MS]),
        controller: controllers[random.below(5) as usize],
        controller_params: params,
        ..ShuttleConfig::default()
    };
    (config, placement)
}

impl Run {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let (config, placement) = config(&mut random);
        let corrupts = config.protection != protection::NONE;
        let link = link(&mut random, corrupts);
        let mut pair = Pair::new(seed, &config, &link, STREAMS);
        pair.network.strict_nat = random.below(2) == 0;
        for end in pair.hosts.iter_mut().flat_map(|host| &mut host.ports.ends) {
            end.sink.placement = placement;
            end.sink.lossy = config.recovery == recovery::OFF;
        }
        let translated = random.below(2) as usize;
        // Without repair a Send can lose what its receive waits for.
        let counts = config.recovery != recovery::OFF && random.below(3) == 0;
        let receives = counts.then_some([[0; STREAMS as usize]; 2]);
        let tells = counts && random.below(2) == 0;
        Self { random, pair, translated, paths: 1, receives, tells, corrupts }
    }

    fn open(&mut self) {
        self.pair.run_until(200_000 * MS, Pair::is_open);
        for host in 0..2 {
            for stream in 0..STREAMS {
                let weight = 1 + self.random.below(4) as u32;
                self.pair.connection(host).open_stream(StreamId(stream), weight).unwrap();
            }
        }
        if self.receives.is_some() {
            for end in self.pair.hosts.iter_mut().flat_map(|host| &mut host.ports.ends) {
                end.sink.receives = Some(0);
            }
        }
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0..=4 => self.post(),
            5 => {
                let at = self.random.below(2) as usize;
                self.pair.network.links[at] = link(&mut self.random, self.corrupts);
            }
            6 => {
                let ports = self.pair.network.rebound[self.translated] + 100;
                self.pair.network.rebound[self.translated] = ports;
            }
            7 => self.pair.network.down = self.random.below(2) == 0,
            8 => {
                let path = self.random.below(u64::from(self.paths) + 1) as u16;
                self.pair.network.dead_path = (path < self.paths).then_some(path);
            }
            9 => self.open_path(),
            10 => self.pair.network.carries = of(&mut self.random, &[1200, 1400, 9000, usize::MAX]),
            11 => self.pair.network.fragments = self.random.below(2) == 0,
            _ => self.receive_more(),
        }
        self.tell_credits();
        let most = of(&mut self.random, &[1, 5, 50, 50, 500, 4000]);
        let wait_ns = self.random.below(most * MS);
        self.pair.run_for(wait_ns);
        if wait_ns > 1000 * MS {
            self.heal();
        }
        self.limit_silence();
    }

    /// Outages that follow each other closely may together outlast the idle timeout of 30 s, by
    /// which a connection ends as it should. Both ends probe at least every 10 s, and an end that
    /// waits for acknowledgements every second, with small packets too.
    fn limit_silence(&mut self) {
        let heard_ns = [0, 1].map(|host| self.pair.connection(host).heard_ns());
        if self.pair.now_ns - heard_ns[0].min(heard_ns[1]) > SILENCE_NS_MAX {
            self.heal();
            self.pair.network.links = [0, 1].map(|_| Link { loss: 0.02, ..Link::default() });
            self.pair.run_for(15_000 * MS);
        }
    }

    fn post(&mut self) {
        let (host, stream) = (self.random.below(2) as usize, self.random.below(3) as u8);
        let octets = match self.random.below(5) {
            0 => 0,
            1 => self.random.below(200),
            2 => 1000 + self.random.below(500),
            3 => self.random.below(500_000),
            _ => self.random.below(100_000),
        };
        let message = Message { write: self.random.below(2) == 0, octets: octets as u32 };
        self.pair.post(host, stream, message);
    }

    /// The initiator begins another path, unless only its first one is kept open behind its
    /// translator.
    fn open_path(&mut self) {
        let now_ns = self.pair.now_ns;
        let way = route(0, self.paths);
        let one = self.pair.network.strict_nat;
        if !one && self.paths < 4 && self.pair.connection(0).open_path(now_ns, way).is_ok() {
            self.paths += 1;
        }
    }

    /// Posts receives on a stream.
    fn receive_more(&mut self) {
        let (host, stream) = (self.random.below(2) as usize, self.random.below(3) as usize);
        let more = self.random.below(4) as u32;
        self.receive(host, stream, more);
    }

    fn receive(&mut self, at: usize, stream: usize, more: u32) {
        let Some(receives) = &mut self.receives else { return };
        receives[at][stream] += more;
        let posted = receives[at][stream];
        let (now_ns, id) = (self.pair.now_ns, StreamId(stream as u8));
        let host = &mut self.pair.hosts[at];
        host.ports.ends[stream].sink.receives = Some(posted);
        let connection = host.connection.as_mut().unwrap();
        connection.retry(now_ns, id, &mut host.ports).unwrap();
        self.tell_credits();
    }

    /// Half of the applications tell their peers which message waits for a receive; the others'
    /// messages wait where they arrive.
    fn tell_credits(&mut self) {
        if !self.tells {
            return;
        }
        let now_ns = self.pair.now_ns;
        for (host, stream) in (0..2).flat_map(|host| (0..STREAMS).map(move |s| (host, s))) {
            let held = self.pair.hosts[host].ports.ends[usize::from(stream)].sink.held;
            let limit = held.map(|held| Msn(held.0.wrapping_sub(1)));
            let credit = limit.map(|limit| Credit { limit, wait_us: 640 });
            self.pair.connection(host).set_credit(now_ns, StreamId(stream), credit).unwrap();
        }
    }

    fn heal(&mut self) {
        let network = &mut self.pair.network;
        network.down = false;
        network.dead_path = None;
    }

    /// Everything arrives in the end, and is what was sent.
    fn finish(mut self) {
        self.heal();
        let network = &mut self.pair.network;
        network.links = [0, 1].map(|_| Link { loss: 0.02, ..Link::default() });
        network.carries = usize::MAX;
        for (host, stream) in (0..2).flat_map(|host| (0..3).map(move |stream| (host, stream))) {
            self.receive(host, stream, 1000);
        }
        self.pair.run_until(300_000 * MS, Pair::is_complete);
        for (host, stream) in (0..2).flat_map(|host| (0..3).map(move |stream| (host, stream))) {
            let source = &self.pair.hosts[host].ports.ends[stream].source;
            let sink = &self.pair.hosts[1 - host].ports.ends[stream].sink;
            assert_eq!(sink.segments + sink.missed, source.handed());
            assert!(sink.missed > 0 || sink.payload_octets == source.posted_octets());
        }
        self.close();
    }

    /// Who may have moved says good-bye; the answer may go where it was before.
    fn close(mut self) {
        let (now_ns, closer) = (self.pair.now_ns, self.translated);
        self.pair.connection(closer).close(now_ns, 5);
        self.pair.run_for(40_000 * MS);
        let last = |host: usize| self.pair.hosts[host].events.last().cloned();
        let ends = [ConnectionEnd::Local, ConnectionEnd::Silence]
            .map(|end| Some(ShuttleEvent::Ended(end)));
        assert!(ends.contains(&last(closer)), "{:?}", last(closer));
        assert_eq!(last(1 - closer), Some(ShuttleEvent::Ended(ConnectionEnd::Peer(5))));
    }
}

#[test]
fn whatever_happens_everything_arrives_once() {
    let runs = env::var("WEFT_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(RUNS);
    let first = seed();
    for seed in (0..runs).map(|run| first.wrapping_add(run)) {
        let tell = Tell(seed);
        let mut run = Run::new(seed);
        run.open();
        for _ in 0..5 + run.random.below(80) {
            run.step();
        }
        run.finish();
        drop(tell);
    }
}
