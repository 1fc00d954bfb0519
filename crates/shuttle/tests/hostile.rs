//! Packets that are forged, replayed or mutated change nothing.
//!
//! Rules of `docs/shuttle.md`: S-5, S-42, S-44, S-81.

#[path = "../../../fuzz/src/mutate.rs"]
#[allow(dead_code, reason = "what it mutates is made here")]
mod mutate;
mod support;

use std::cell::RefCell;
use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use support::network::Link;
use support::{MS, Pair, route, seed};
use weft_shuttle::{MAX_PATHS, PeerRequest, Route, ShuttleConfig, ShuttleEvent};
use weft_wire::shuttle::frame::{Ack, Frame, Frames, Ranges};
use weft_wire::shuttle::hello::{Hello, protection};
use weft_wire::shuttle::{CTRL_LEN, CtrlHeader, PathId, StreamId};

/// An open connection in use, and every datagram that was sent.
fn in_use(protection: u8) -> Pair {
    let config = ShuttleConfig { protection, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.tracing = true;
    pair.open();
    for host in &mut pair.hosts {
        host.ports.post(true, 20_000);
        host.ports.post(false, 3000);
    }
    pair.run_for(500 * MS);
    assert!(pair.is_complete());
    pair
}

fn give(pair: &mut Pair, to: usize, datagram: &[u8]) {
    give_from(pair, to, route(to, 0), datagram);
}

fn give_from(pair: &mut Pair, to: usize, way: Route, datagram: &[u8]) {
    let host = &mut pair.hosts[to];
    let connection = host.connection.as_mut().unwrap();
    connection
        .handle_datagram(pair.now_ns, way, false, &mut datagram.to_vec(), &mut host.ports)
        .unwrap();
}

#[test]
fn replayed_packets_change_nothing() {
    let mut pair = in_use(protection::NONE);
    let before = [0, 1].map(|host| pair.connection(host).stats());
    let trace = pair.trace.clone();
    for (from, _, datagram) in &trace {
        give(&mut pair, 1 - from, datagram);
        give(&mut pair, *from, datagram);
    }
    pair.run_for(500 * MS);
    let after = [0, 1].map(|host| pair.connection(host).stats());
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(before.packets_in, after.packets_in);
        assert_eq!(before.datagrams_out, after.datagrams_out);
        assert!(after.stale_packets > before.stale_packets);
    }
}

/// Mutations without the checksum's or the tag's consent do nothing; the model in the ports would
/// notice a segment.
#[test]
fn mutated_packets_change_nothing() {
    let pair = RefCell::new(in_use(protection::CRC32C));
    let seeds: Vec<Vec<u8>> =
        pair.borrow().trace.iter().map(|(_, _, datagram)| datagram.clone()).collect();
    let taken = |pair: &mut Pair| [0, 1].map(|host| pair.connection(host).stats().packets_in);
    let before = taken(&mut pair.borrow_mut());
    mutate::mutations(&seeds, 20_000, |datagram| {
        let mut pair = pair.borrow_mut();
        give(&mut pair, 0, datagram);
        give(&mut pair, 1, datagram);
        drop(PeerRequest::parse(datagram, &ShuttleConfig::default(), [0; 32]));
    });
    let mut pair = pair.into_inner();
    assert_eq!(taken(&mut pair), before);
    pair.hosts[0].ports.post(true, 10_000);
    pair.run_until(1000 * MS, Pair::is_complete);
}

/// A control packet of host 0 on path 0 as the protocol has it, with any frames in it.
fn forge(pair: &Pair, pn: u32, frame: &Frame<'_>) -> Vec<u8> {
    forge_on(pair, PathId(0), pn, frame)
}

/// The same on any path.
fn forge_on(pair: &Pair, path: PathId, pn: u32, frame: &Frame<'_>) -> Vec<u8> {
    let hello = |host: usize| {
        let sent = pair.trace.iter().find(|(from, ..)| *from == host).unwrap();
        Hello::parse(&sent.2).unwrap()
    };
    let (request, reply) = (hello(0), hello(1));
    let header = CtrlHeader { cid: reply.from, path, pn, phase: 0, ack_now: false };
    let mut octets = header.to_bytes().to_vec();
    frame.encode(&mut octets);
    let mut hasher = SipHasher24::new_with_keys(request.nonce, reply.nonce);
    hasher.write(&[1]);
    hasher.write(&octets);
    octets.extend(hasher.finish().to_be_bytes());
    octets
}

/// Frames that a peer may well send, whatever it means by them: the connection goes on.
#[test]
fn a_peer_may_send_any_frames() {
    let mut pair = in_use(protection::CRC32C);
    let huge = (1_u64 << 62) - 1;
    let mut room = Vec::new();
    let (ranges, _) = Ranges::encode([(70_000, 80_000), (3, 3)], 100, &mut room).unwrap();
    let ack = Ack {
        path: PathId(0),
        largest: 80_000,
        floor: 60_000,
        delay_us: huge,
        arrived_us: 0,
        marked: huge,
        dropped: huge,
        ranges,
    };
    let before = pair.connection(1).stats().packets_in;
    let frames = [
        Frame::Ack(ack),
        Frame::Ack(Ack { path: PathId(7), ..ack }),
        Frame::Stream { stream: StreamId(0), frontier: huge },
        Frame::Stream { stream: StreamId(9), frontier: 1 },
        Frame::Credit { stream: StreamId(0), limit: u32::MAX / 2, wait_us: u32::MAX },
        Frame::Query { stream: StreamId(0) },
        Frame::Query { stream: StreamId(77) },
        Frame::Floor { path: PathId(200), pn: 5 },
        Frame::Response { token: 5 },
        Frame::Challenge { token: huge },
        Frame::Rate { path: PathId(0), rate_bps: 0 },
        Frame::Rate { path: PathId(200), rate_bps: 0 },
        Frame::Interval { path: PathId(0), interval_us: huge },
        Frame::Interval { path: PathId(200), interval_us: 1 },
        Frame::Interval { path: PathId(0), interval_us: 0 },
        Frame::Rate { path: PathId(0), rate_bps: huge },
        Frame::Closed,
        Frame::Floor { path: PathId(0), pn: 1 },
    ];
    for (pn, frame) in (1000..).zip(&frames) {
        let octets = forge(&pair, pn, frame);
        give(&mut pair, 1, &octets);
        pair.run_for(50 * MS);
    }
    let taken = pair.connection(1).stats().packets_in - before;
    assert!(taken >= frames.len() as u64, "{taken}");
    for host in &pair.hosts {
        assert!(matches!(host.events[..], [ShuttleEvent::Established { .. }]));
    }
    pair.hosts[1].ports.post(true, 10_000);
    pair.hosts[0].ports.post(true, 10_000);
    pair.run_until(1000 * MS, Pair::is_complete);
}

/// S-71: the address that a Challenge came from may be that of somebody else.
#[test]
fn a_response_is_no_longer_than_what_asked_for_it() {
    let mut pair = in_use(protection::CRC32C);
    let before = pair.trace.len();
    let asked = forge(&pair, 1000, &Frame::Challenge { token: 1 }).len();
    for pn in 1000..1020 {
        let challenge = forge(&pair, pn, &Frame::Challenge { token: u64::from(pn) });
        give(&mut pair, 1, &challenge);
        pair.run_for(MS);
    }
    let answers: Vec<_> = pair.trace[before..].iter().filter(|(from, ..)| *from == 1).collect();
    assert!(answers.len() >= 20, "{}", answers.len());
    let longest = answers.iter().map(|(.., sent)| sent.len()).max().unwrap();
    assert!(longest <= 2 * asked, "{longest} for {asked}");
}

/// S-72: the address of a third host as the sender of what a peer sends.
#[test]
fn a_false_address_gets_at_most_twice_what_came_from_it_as_challenges() {
    let mut pair = in_use(protection::CRC32C);
    pair.network.dead_path = Some(9);
    let before = pair.trace.len();
    let mut given = 0;
    for pn in 1000..1040 {
        let ping = forge(&pair, pn, &Frame::Ping);
        given += ping.len();
        give_from(&mut pair, 1, route(1, 9), &ping);
        pair.run_for(1000 * MS);
    }
    let is_challenge = |sent: &[u8]| {
        let frames = sent.get(CTRL_LEN..).unwrap_or_default();
        matches!(Frames::new(frames).next(), Some(Ok(Frame::Challenge { .. })))
    };
    let sent = pair.trace[before..].iter().map(|(from, _, sent)| (*from, sent));
    let lengths = sent.filter(|(from, sent)| *from == 1 && is_challenge(sent)).map(|s| s.1.len());
    let (count, sum) = lengths.fold((0, 0), |(count, sum), len| (count + 1, sum + len));
    assert!(count >= 10, "{count} Challenges");
    assert!(sum <= 2 * given, "{sum} for {given}");
}

/// Each path costs a controller and a window of packet numbers.
#[test]
fn a_peer_opens_no_more_paths_than_a_connection_may_have() {
    let mut pair = in_use(protection::CRC32C);
    for path in 1..=u8::MAX {
        let challenge = Frame::Challenge { token: u64::from(path) };
        let octets = forge_on(&pair, PathId(path), 1, &challenge);
        give(&mut pair, 1, &octets);
    }
    let mut has = |path: &u8| pair.connection(1).rtt(PathId(*path)).is_some();
    assert_eq!((0..=u8::MAX).filter(|path| has(path)).count(), MAX_PATHS);
    pair.hosts[1].ports.post(true, 10_000);
    pair.run_until(1000 * MS, Pair::is_complete);
}

/// S-5, S-81.
#[test]
fn control_packets_that_are_forged_or_of_no_path_are_counted_as_foreign() {
    let mut pair = in_use(protection::CRC32C);
    let foreign = |pair: &mut Pair| pair.connection(1).stats().foreign_datagrams;
    let before = foreign(&mut pair);
    let mut forged = forge(&pair, 1000, &Frame::Ping);
    *forged.last_mut().unwrap() ^= 1;
    give(&mut pair, 1, &forged);
    assert_eq!(foreign(&mut pair), before + 1);
    // Only a Challenge opens a path, and only one that may be.
    let most = MAX_PATHS as u8;
    for (path, frame) in [(1, Frame::Ping), (most, Frame::Challenge { token: 1 })] {
        let octets = forge_on(&pair, PathId(path), 1, &frame);
        give(&mut pair, 1, &octets);
        assert!(pair.connection(1).rtt(PathId(path)).is_none());
    }
    assert_eq!(foreign(&mut pair), before + 3);
}
