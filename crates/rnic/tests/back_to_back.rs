//! Two connections back to back in memory, of each of the four kinds, by the one interface that
//! they have: what one has to send is given to the other, at times that the test makes up.
#![allow(dead_code)]

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use common::ud::{self, QKEY, ROUTE_LEN};
use common::{ALL, Host, Memory, agreed, entropy, flatten};
use weft_rnic::mpa::MpaRole;
use weft_rnic::shuttle::{Identity, PeerRequest, Route, ShuttleConfig};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::{
    Binding, Conn, ConnEvent, ConnectionEnd, Input, LoopbackQp, MpaLink, MpaQp, Sending, ShuttleQp,
    UdQp, WhenClosed, Written,
};
use weft_verbs::{Destination, QpState, SendFlags, SendOp, SendWr};

const MS: u64 = 1_000_000;
const LEN: u32 = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mpa,
    Shuttle,
    Datagram,
    Loopback,
}

const KINDS: [Kind; 4] = [Kind::Mpa, Kind::Shuttle, Kind::Datagram, Kind::Loopback];

fn route(host: usize) -> Route {
    let at = |host: usize| SocketAddr::from(([10, 0, 0, host as u8 + 1], 4000));
    Route { local: at(host), remote: at(1 - host) }
}

/// What has left a side and was not taken yet.
#[derive(Default)]
struct Pipe {
    stream: Vec<u8>,
    datagrams: VecDeque<Vec<u8>>,
}

/// A host, its connection, and what comes to it.
struct Side {
    host: Host,
    conn: Conn,
    inbox: Pipe,
    events: Vec<ConnEvent>,
}

impl Side {
    fn new(host: Host, conn: Conn) -> Self {
        Self { host, conn, inbox: Pipe::default(), events: Vec::new() }
    }

    /// Everything that leaves now goes into `out`; whether anything has.
    fn output(&mut self, now_ns: u64, out: &mut Pipe) -> bool {
        let table = Arc::clone(self.host.device.regions());
        let mut any = false;
        let write = |batch: &weft_rnic::Batch<'_>| {
            any = true;
            let all = flatten(batch, &table.reader());
            if batch.route.is_none() {
                out.stream.extend(&all);
                return Written::Octets(all.len());
            }
            let mut at = 0;
            for length in batch.lengths.iter().map(|length| usize::from(*length)) {
                out.datagrams.push_back(all[at..at + length].to_vec());
                at += length;
            }
            Written::Octets(at)
        };
        let sending = self.conn.poll_transmit(|| now_ns, write);
        assert!(sending != Sending::Blocked, "the pipe has room");
        any
    }

    /// Takes what has come.
    fn input(&mut self, number: usize, now_ns: u64) {
        let consumed = self.conn.handle(Input::Bytes(&self.inbox.stream), now_ns);
        self.inbox.stream.drain(..consumed);
        while let Some(datagram) = self.inbox.datagrams.front_mut() {
            let (route, len) = (route(number), datagram.len());
            let input = Input::Datagram { route, marked: false, bytes: datagram };
            match self.conn.handle(input, now_ns) {
                0 => break,
                consumed => assert_eq!(consumed, len, "all of a datagram, or nothing"),
            }
            self.inbox.datagrams.pop_front();
        }
        self.events.extend(std::iter::from_fn(|| self.conn.poll_event()));
    }

    fn recv(&mut self, wr_id: u64, memory: &Memory, now_ns: u64) {
        self.host.recv(wr_id, &[memory.sge(0, memory.bytes.len() as u32 * 8)]);
        self.conn.handle(Input::Posted, now_ns);
    }

    fn established(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, ConnEvent::Established(_))).count()
    }

    fn ends(&self) -> Vec<ConnectionEnd> {
        let end = |event: &ConnEvent| match event {
            ConnEvent::Ended { end, .. } => Some(*end),
            _ => None,
        };
        self.events.iter().filter_map(end).collect()
    }
}

/// One side, or two that are connected.
struct World {
    kind: Kind,
    sides: Vec<Side>,
    now_ns: u64,
}

impl World {
    fn new(kind: Kind) -> Self {
        let now_ns = 1000 * MS;
        let sides = match kind {
            Kind::Mpa => mpa_pair(now_ns),
            Kind::Shuttle => shuttle_pair(now_ns),
            Kind::Datagram => [0, 1].map(ud_side).into(),
            Kind::Loopback => {
                let host = Host::new(5);
                host.qp.enter(QpState::Rts);
                let loopback = LoopbackQp::new(Arc::clone(&host.qp), 2);
                vec![Side::new(host, Conn::Loopback(Box::new(loopback)))]
            }
        };
        let mut world = Self { kind, sides, now_ns };
        world.run();
        world
    }

    /// The number of the side that hears the first one.
    fn peer(&self) -> usize {
        self.sides.len() - 1
    }

    /// Carries what there is both ways, and lets the time pass from one thing that is due to the
    /// next, for half a second.
    fn run(&mut self) {
        let end_ns = self.now_ns + 500 * MS;
        for _ in 0..10_000 {
            let mut moved = false;
            for from in 0..self.sides.len() {
                let to = self.sides.len() - 1 - from;
                let mut pipe = std::mem::take(&mut self.sides[to].inbox);
                moved |= self.sides[from].output(self.now_ns, &mut pipe);
                self.sides[to].inbox = pipe;
                self.sides[to].input(to, self.now_ns);
            }
            if moved {
                continue;
            }
            let due = self.sides.iter().filter_map(|side| side.conn.poll_timeout()).min();
            let Some(due_ns) = due.filter(|due_ns| *due_ns < end_ns) else {
                self.now_ns = end_ns;
                return;
            };
            self.now_ns = self.now_ns.max(due_ns);
            for side in &mut self.sides {
                side.conn.handle(Input::Timeout, due_ns);
            }
        }
        panic!("{:?} never comes to rest", self.kind);
    }

    /// The first side sends `len` bytes of `memory`.
    fn send(&mut self, wr_id: u64, memory: &Memory, len: u32) {
        let (from, to) = (&self.sides[0].host, &self.sides[self.peer()].host);
        let sges = [memory.sge(0, len)];
        if self.kind != Kind::Datagram {
            return from.send(wr_id, SendOp::Send, &sges);
        }
        let to = Destination { path: ud::path(&route(0)), qpn: to.qp.num(), qkey: QKEY };
        let wr = SendWr { wr_id, op: SendOp::Send, flags: SendFlags::SIGNALED, sges: &sges };
        from.qp.post_datagram(&wr, &to).unwrap();
    }

    /// Bytes before the payload in a receive.
    fn header_len(&self) -> usize {
        if self.kind == Kind::Datagram { ROUTE_LEN } else { 0 }
    }
}

fn mpa_pair(now_ns: u64) -> Vec<Side> {
    let side = |(role, seed)| {
        let host = Host::new(seed);
        let (agreed, when_closed) = (&agreed(), WhenClosed::Fail);
        let (emss, stall_ns, confirm) = (1460, 60_000 * MS, false);
        let batch_bytes = 512 << 10;
        let link = MpaLink { role, agreed, emss, batch_bytes, stall_ns, confirm, when_closed };
        let mut mpa = MpaQp::new(Arc::clone(&host.qp), &link, now_ns);
        mpa.set_rnr_timer(10_000 * MS);
        Side::new(host, Conn::Mpa(Box::new(mpa)))
    };
    [(MpaRole::Initiator, 7), (MpaRole::Responder, 11)].map(side).into()
}

fn shuttle_pair(now_ns: u64) -> Vec<Side> {
    let binding = |host: usize| Binding {
        config: ShuttleConfig { ord: 4, ird: 4, ..ShuttleConfig::default() },
        identity: Identity {
            cid: ConnectionId(0x1100 << host),
            nonce: host as u64,
            seed: host as u64 + 1,
            entropy: [host as u8; 32],
        },
        route: route(host),
        when_closed: WhenClosed::Fail,
    };
    let hosts = [Host::new(7), Host::new(11)];
    for host in &hosts {
        host.qp.set_attrs(|attrs| attrs.rnr_retry = 7);
        host.qp.enter(QpState::Rts);
    }
    let [near, far] = hosts;
    let asks = ShuttleQp::connect(Arc::clone(&near.qp), binding(0), b"hello", now_ns).unwrap();
    let mut near = Side::new(near, Conn::Shuttle(Box::new(asks)));
    let mut pipe = Pipe::default();
    assert!(near.output(now_ns, &mut pipe));
    let asked = pipe.datagrams.pop_front().unwrap();
    let mut request = PeerRequest::parse(&asked, &binding(1).config, [3; 32]).unwrap();
    let qp = Arc::clone(&far.qp);
    let grants = ShuttleQp::accept(qp, binding(1), &mut request, b"welcome", now_ns).unwrap();
    vec![near, Side::new(far, Conn::Shuttle(Box::new(grants)))]
}

fn ud_side(number: usize) -> Side {
    let host = ud::host(7 + 4 * number as u32);
    let conn = UdQp::new(Arc::clone(&host.qp), ud::config(ud::Open));
    Side::new(host, Conn::Datagram(Box::new(conn)))
}

/// Memory with a pattern, which no other call gives.
fn pattern(host: &Host, seed: u32) -> Memory {
    let mut memory = host.memory(4096, ALL);
    let next = entropy(seed);
    memory.bytes.fill_with(|| u64::from(next()) << 32 | u64::from(next()));
    memory
}

#[test]
fn messages_arrive_whole_and_in_order() {
    for kind in KINDS {
        let mut world = World::new(kind);
        let (peer, now_ns) = (world.peer(), world.now_ns);
        let sources = [1, 2, 3].map(|seed| pattern(&world.sides[0].host, seed));
        let sinks = [(); 3].map(|()| world.sides[peer].host.memory(4096, ALL));
        for (wr_id, sink) in (10..).zip(&sinks) {
            world.sides[peer].recv(wr_id, sink, now_ns);
        }
        for (wr_id, source) in (1..).zip(&sources) {
            world.send(wr_id, source, LEN);
        }
        world.run();
        let mut done = world.sides[0].host.completions();
        done.extend(world.sides[peer].host.completions());
        let of = |at: usize| done.iter().filter(move |wc| (wc.wr_id >= 10) == (at == 1));
        assert!(done.iter().all(|wc| wc.status == 0), "{kind:?}: {done:?}");
        assert_eq!(of(0).map(|wc| wc.wr_id).collect::<Vec<_>>(), [1, 2, 3], "{kind:?}");
        assert_eq!(of(1).map(|wc| wc.wr_id).collect::<Vec<_>>(), [10, 11, 12], "{kind:?}");
        let head = world.header_len();
        assert!(of(1).all(|wc| wc.byte_len as usize == head + LEN as usize), "{kind:?}");
        for (source, sink) in sources.iter().zip(&sinks) {
            let (sent, got) = (source.octets(), sink.octets());
            assert_eq!(got[head..head + LEN as usize], sent[..LEN as usize], "{kind:?}");
        }
        let stats = [world.sides[0].conn.stats(), world.sides[peer].conn.stats()];
        let moved = [stats[0].octets_out, stats[1].octets_in];
        assert_eq!(moved, [3 * u64::from(LEN); 2], "{kind:?}");
    }
}

#[test]
fn memory_of_the_peer_is_written_and_read_where_there_is_a_connection() {
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Datagram) {
        let mut world = World::new(kind);
        let (near, far) = (&world.sides[0].host, &world.sides[world.peer()].host);
        let (source, sink) = (pattern(near, 1), near.memory(4096, ALL));
        let target = far.memory(4096, ALL);
        let (to, stag) = (target.addr(), target.key);
        near.send(1, SendOp::Write { to, stag }, &[source.sge(0, 4096)]);
        near.send(2, SendOp::Read { to, stag }, &[sink.sge(0, 4096)]);
        let word = near.memory(8, ALL);
        let (op, flags) = (SendOp::FetchAdd { to, stag, add: 5 }, SendFlags::SIGNALED);
        let wr = SendWr { wr_id: 3, op, flags: flags | SendFlags::FENCE, sges: &[word.sge(0, 8)] };
        near.qp.post_send(&wr).unwrap();
        world.run();
        let done = world.sides[0].host.statuses();
        assert_eq!(done, [(1, 0), (2, 0), (3, 0)], "{kind:?}: {:?}", world.sides[0].events);
        assert_eq!((&sink.bytes, word.bytes[0]), (&source.bytes, source.bytes[0]), "{kind:?}");
        assert_eq!(target.bytes[0], source.bytes[0].wrapping_add(5), "{kind:?}");
    }
}

#[test]
fn a_read_over_tcp_brings_what_was_there_before_an_atomic_that_follows_it() {
    let mut world = World::new(Kind::Mpa);
    let (near, far) = (&world.sides[0].host, &world.sides[world.peer()].host);
    let (sink, word, target) = (near.memory(4096, ALL), near.memory(8, ALL), pattern(far, 1));
    let (before, to, stag) = (target.bytes.clone(), target.addr(), target.key);
    near.send(1, SendOp::Read { to, stag }, &[sink.sge(0, 4096)]);
    near.send(2, SendOp::FetchAdd { to, stag, add: 5 }, &[word.sge(0, 8)]);
    world.run();
    let done = world.sides[0].host.statuses();
    assert_eq!(done, [(1, 0), (2, 0)], "{:?}", world.sides[0].events);
    assert!(sink.bytes == before, "what was read is older than the atomic");
    assert_eq!((word.bytes[0], target.bytes[0]), (before[0], before[0].wrapping_add(5)));
}

#[test]
fn a_message_waits_for_its_receive() {
    for kind in KINDS {
        let mut world = World::new(kind);
        let peer = world.peer();
        let source = pattern(&world.sides[0].host, 1);
        let sink = world.sides[peer].host.memory(4096, ALL);
        world.send(1, &source, LEN);
        world.run();
        let [near, far] = [0, peer].map(|side| &world.sides[side]);
        assert!(far.conn.is_held() && !near.conn.is_dead() && !far.conn.is_dead(), "{kind:?}");
        world.sides[peer].recv(10, &sink, world.now_ns);
        world.run();
        assert!(!world.sides[peer].conn.is_held(), "{kind:?}");
        let done = world.sides[peer].host.completions();
        assert!(done.iter().any(|wc| (wc.wr_id, wc.status) == (10, 0)), "{kind:?}: {done:?}");
    }
}

#[test]
fn each_end_is_told_once_of_the_beginning_and_of_the_end() {
    for kind in KINDS {
        let mut world = World::new(kind);
        // The first message is what an acceptor knows its peer by.
        let (peer, source) = (world.peer(), pattern(&world.sides[0].host, 1));
        let sink = world.sides[peer].host.memory(4096, ALL);
        world.sides[peer].recv(10, &sink, world.now_ns);
        world.send(1, &source, LEN);
        world.run();
        let connected = matches!(kind, Kind::Mpa | Kind::Shuttle);
        for side in &world.sides {
            assert_eq!((side.established(), side.ends()), (connected.into(), vec![]), "{kind:?}");
        }
        let now_ns = world.now_ns;
        world.sides[0].conn.handle(Input::Close, now_ns);
        world.run();
        if kind == Kind::Mpa {
            // The stream itself has ended.
            world.sides[1].conn.handle(Input::PeerGone, now_ns);
            world.run();
        }
        assert_eq!(world.sides[0].ends(), [ConnectionEnd::Local], "{kind:?}");
        assert!(world.sides[0].conn.is_dead(), "{kind:?}");
        if connected {
            assert_eq!(world.sides[1].ends(), [ConnectionEnd::Peer(0)], "{kind:?}");
            assert!(world.sides[1].conn.is_dead(), "{kind:?}");
        }
        assert!(world.sides.iter().all(|side| side.established() <= 1), "{kind:?}");
    }
}

#[test]
fn a_stop_of_the_process_counts_for_no_timer() {
    for kind in [Kind::Mpa, Kind::Shuttle] {
        let mut world = World::new(kind);
        let due = |world: &World| world.sides[0].conn.poll_timeout();
        if kind == Kind::Mpa {
            // Half a frame: the rest of it is waited for.
            world.sides[0].conn.handle(Input::Bytes(&[0, 23, 65]), world.now_ns);
        }
        let before = due(&world).expect("something is waited for");
        world.sides[0].conn.handle(Input::Stopped { for_ns: 7_000 * MS }, world.now_ns);
        assert!(due(&world).is_some_and(|after| after >= before + 7_000 * MS), "{kind:?}");
    }
}
