//! What a connection tells its owner: who asked, whether the peer was heard, which packets pass.
//!
//! Rules of `docs/shuttle.md`: S-9, S-10, S-15.

mod support;

use std::sync::mpsc::{Sender, channel};

use support::model::{Memory, Ports, flatten};
use support::network::{Link, Network};
use support::{Answer, MS, Pair, route, seed};
use weft_shuttle::{
    Credentials, Identity, PeerRequest, ShuttleConfig, ShuttleConnection, ShuttleMisuse, Transmit,
};
use weft_wire::shuttle::hello::protection;
use weft_wire::shuttle::{ConnectionId, Packet, PathId, StreamId};
use weft_wire::tap::{PacketTap, TapDirection, TapEnds, Tapped};

fn pair() -> Pair {
    Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1)
}

#[test]
fn both_ends_know_who_asked_and_by_which_nonce_while_the_handshake_lasts() {
    let mut pair = pair();
    let nonce = pair.connection(0).request_nonce().expect("it asks");
    pair.run_until(1000 * MS, |pair| pair.hosts[1].connection.is_some());
    assert!(pair.connection(0).is_initiator() && !pair.connection(1).is_initiator());
    assert_eq!(pair.connection(1).request_nonce(), Some(nonce));
    pair.open();
    assert_eq!(pair.connection(0).request_nonce(), Some(nonce));
    assert_eq!(pair.connection(1).request_nonce(), None);
}

#[test]
fn who_asks_has_heard_the_peer_once_it_answers_or_sent_a_cookie() {
    let mut silent = pair();
    silent.answer = Answer::Ignore;
    silent.run_for(100 * MS);
    assert!(!silent.connection(0).has_heard());
    let config = ShuttleConfig { cookie: vec![7; 16], ..ShuttleConfig::default() };
    let mut probed = Pair::new(seed(), &config, &Link::default(), 1);
    assert!(probed.connection(0).has_heard(), "the cookie was an answer to a Probe");
    let mut pair = pair();
    pair.run_until(1000 * MS, |pair| pair.hosts[1].connection.is_some());
    assert!(pair.connection(1).has_heard(), "the Request");
    pair.open();
    assert!(pair.connection(0).has_heard());
}

/// The number of packets that pass, and whether they are sent.
struct Counter(Sender<bool>);

impl PacketTap for Counter {
    fn see(&mut self, direction: TapDirection, ends: Option<TapEnds>, _: Tapped<'_>) {
        assert_eq!(ends, Some(route(0, 0).into()));
        self.0.send(matches!(direction, TapDirection::Sent)).unwrap();
    }
}

#[test]
fn a_tap_sees_each_packet_once() {
    let mut pair = pair();
    let (tell, told) = channel();
    pair.connection(0).set_tap(Box::new(Counter(tell)));
    pair.tracing = true;
    pair.open();
    for host in &mut pair.hosts {
        host.ports.post(true, 5000);
        host.ports.post(false, 3000);
    }
    pair.run_until(1000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
    let (sent, received): (Vec<bool>, Vec<bool>) = told.try_iter().partition(|sent| *sent);
    let traced = |from: usize| pair.trace.iter().filter(|packet| packet.0 == from).count();
    assert_eq!((sent.len(), received.len()), (traced(0), traced(1)));
}

/// A receiver with a small socket buffer loses nothing where it may not read in a round trip.
#[test]
fn on_a_short_path_no_more_is_in_flight_than_the_peers_buffer_holds() {
    let link = Link { delay_ns: 500_000, ..Link::default() };
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link, 1);
    pair.open();
    pair.connection(0).set_peer_room(4000);
    pair.hosts[0].ports.post(true, 1_000_000);
    let mut most = 0;
    for _ in 0..100 {
        pair.run_for(MS / 10);
        most = most.max(pair.connection(0).in_flight_octets(PathId(0)).unwrap());
    }
    assert!((2000..=4000).contains(&most), "{most}");
    pair.connection(0).set_peer_room(u64::MAX);
    pair.run_until(1000 * MS, Pair::is_complete);
}

/// S-15: who grants can ask its owner before it answers.
#[test]
fn a_request_tells_the_key_of_who_sent_it() {
    let [asks, grants] = [7, 8].map(|octet| [octet; 32]);
    let [asking, granting] = [asks, grants].map(Credentials::public_key);
    let config = |private, peer| ShuttleConfig {
        protection: protection::AES128GCM | protection::CRC32C,
        credentials: Credentials::Static { private, peer },
        ..ShuttleConfig::default()
    };
    let request = |config: ShuttleConfig| {
        let identity = Identity { cid: ConnectionId(0x100), nonce: 1, seed: 1, entropy: [1; 32] };
        let connection = ShuttleConnection::connect(0, config, identity, route(0, 0), b"").unwrap();
        let (mut connection, mut out) = (connection, Transmit::default());
        assert!(connection.poll_transmit(0, &mut Ports::new(Vec::new()), &Memory, &mut out));
        flatten(&out.gather)
    };
    let sealed = request(config(asks, Some(granting)));
    let parsed = PeerRequest::parse(&sealed, &config(grants, None), [2; 32]).unwrap();
    assert_eq!(parsed.peer_key(), Some(asking));
    let clear = request(ShuttleConfig::default());
    let parsed = PeerRequest::parse(&clear, &config(grants, None), [2; 32]).unwrap();
    assert_eq!(parsed.peer_key(), None);
}

#[test]
fn an_ended_connection_can_be_forgotten_once_no_close_of_the_peer_can_come_again() {
    let mut pair = pair();
    pair.open();
    pair.run_for(1000 * MS);
    let closed_ns = pair.now_ns;
    assert!(!pair.connection(0).is_forgettable(u64::MAX), "it is open");
    pair.connection(0).close(closed_ns, 3);
    // The Close is there after 5 ms, and its answer is lost.
    pair.run_for(6 * MS);
    pair.network = Network::new(seed(), &Link::default());
    let ended_ns = closed_ns + 5 * MS;
    let forget_ns = ended_ns + 2000 * MS;
    assert!(!pair.connection(1).is_forgettable(forget_ns - 1));
    assert!(pair.connection(1).is_forgettable(forget_ns));
    assert!(!pair.connection(0).is_forgettable(forget_ns), "it closes");
}

#[test]
fn an_application_that_has_nothing_more_is_not_polled_again() {
    for (streams, is_last) in [(1, true), (2, false)] {
        let config = ShuttleConfig { streams, ..ShuttleConfig::default() };
        let mut pair = Pair::new(seed(), &config, &Link::default(), streams as u8);
        pair.open();
        for stream in 0..streams as u8 {
            pair.connection(0).open_stream(StreamId(stream), 1).unwrap();
        }
        pair.run_for(1000 * MS);
        pair.post(0, 0, support::model::Message { write: true, octets: 100 });
        let (now_ns, host) = (pair.now_ns, &mut pair.hosts[0]);
        let connection = host.connection.as_mut().unwrap();
        assert!(connection.poll_transmit(now_ns, &mut host.ports, &Memory, &mut host.out));
        assert_eq!(host.out.is_last, is_last, "{streams} streams");
        assert!(!connection.poll_transmit(now_ns, &mut host.ports, &Memory, &mut host.out));
        pair.post(0, 0, support::model::Message { write: true, octets: 1_000_000 });
        let (now_ns, host) = (pair.now_ns, &mut pair.hosts[0]);
        let connection = host.connection.as_mut().unwrap();
        assert!(connection.poll_transmit(now_ns, &mut host.ports, &Memory, &mut host.out));
        assert!(!host.out.is_last, "a burst of many");
    }
}

#[test]
fn nothing_is_asked_of_a_connection_that_is_not_open() {
    let mut pair = pair();
    let now_ns = pair.now_ns;
    let opened = pair.connection(0).open_path(now_ns, route(0, 1));
    assert_eq!(opened.err(), Some(ShuttleMisuse::NotOpen));
    assert_eq!(pair.connection(0).open_stream(StreamId(0), 1), Err(ShuttleMisuse::NotOpen));
    let credit = pair.connection(0).set_credit(now_ns, StreamId(0), None);
    assert_eq!(credit, Err(ShuttleMisuse::NotOpen));
}

/// A question to the peer is in flight until it is answered, unlike an acknowledgement.
#[test]
fn a_query_is_acknowledged_and_an_acknowledgement_is_not() {
    let mut pair = pair();
    pair.open();
    pair.run_for(1000 * MS);
    pair.hosts[1].ports.ends[0].sink.receives = Some(0);
    pair.hosts[0].ports.post(false, 100);
    // The message is acknowledged after a round trip of 10 ms, and waits for its receive.
    pair.run_for(12 * MS);
    let in_flight = |pair: &mut Pair, host| pair.connection(host).in_flight_octets(PathId(0));
    assert_eq!([0, 1].map(|host| in_flight(&mut pair, host)), [Some(0), Some(0)]);
    pair.tracing = true;
    pair.run_until(1000 * MS, |pair| pair.trace.iter().any(|packet| packet.0 == 0));
    let asked = pair.trace.last().unwrap().2.len() as u64;
    assert_eq!(in_flight(&mut pair, 0), Some(asked));
}

/// S-15: who has no cipher has no key agreement either, though anybody could answer this one.
#[test]
fn who_has_no_cipher_takes_no_sealed_request() {
    let sealed = ShuttleConfig { protection: protection::AES128GCM, ..ShuttleConfig::default() };
    let identity = Identity { cid: ConnectionId(0x100), nonce: 1, seed: 1, entropy: [1; 32] };
    let asking = ShuttleConnection::connect(0, sealed.clone(), identity, route(0, 0), b"");
    let (mut asking, mut out) = (asking.unwrap(), Transmit::default());
    assert!(asking.poll_transmit(0, &mut Ports::new(Vec::new()), &Memory, &mut out));
    let datagram = flatten(&out.gather);
    assert!(PeerRequest::parse(&datagram, &sealed, [2; 32]).is_ok());
    assert!(PeerRequest::parse(&datagram, &ShuttleConfig::default(), [2; 32]).is_err());
}

#[test]
fn what_leaves_and_arrives_is_counted() {
    let mut pair = pair();
    pair.tracing = true;
    pair.open();
    for host in &mut pair.hosts {
        host.ports.post(true, 50_000);
    }
    pair.run_until(1000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
    let is_ctrl = |sent: &[u8]| matches!(Packet::parse(sent), Ok(Packet::Ctrl(_)));
    let is_data = |sent: &[u8]| matches!(Packet::parse(sent), Ok(Packet::Data(_)));
    let traced = |from: usize, kind: &dyn Fn(&[u8]) -> bool| {
        pair.trace.iter().filter(|packet| packet.0 == from && kind(&packet.2)).count() as u64
    };
    let counts = [0, 1].map(|host| {
        let [ctrl, data] = [traced(host, &is_ctrl), traced(host, &is_data)];
        let from_peer = traced(1 - host, &is_ctrl) + traced(1 - host, &is_data);
        (traced(host, &|_| true), ctrl, data, from_peer)
    });
    for (host, (all, ctrl, data, from_peer)) in counts.into_iter().enumerate() {
        let stats = pair.connection(host).stats();
        assert_eq!((stats.datagrams_out, stats.control_out), (all, ctrl), "{host}");
        assert_eq!((stats.segments_out, stats.packets_in), (data, from_peer), "{host}");
        assert_eq!((stats.segments_resent, stats.octets_resent, stats.stale_packets), (0, 0, 0));
    }
}
