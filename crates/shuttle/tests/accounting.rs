//! Datagrams that are not of a connection, and segments that were there before, are counted and
//! change nothing.
//!
//! Rules of `docs/shuttle.md`: S-5, S-13, S-19, S-80.

mod support;

use support::network::{Link, Network};
use support::{Answer, MS, Pair, route, seed};
use weft_shuttle::{Credentials, ShuttleConfig};
use weft_wire::shuttle::hello::{Hello, HelloKind, protection};
use weft_wire::shuttle::{ConnectionId, CtrlHeader, DataHeader, Packet, PathId, StreamId};

fn give(pair: &mut Pair, to: usize, datagram: &[u8]) {
    let host = &mut pair.hosts[to];
    let connection = host.connection.as_mut().unwrap();
    let mut datagram = datagram.to_vec();
    connection
        .handle_datagram(pair.now_ns, route(to, 0), false, &mut datagram, &mut host.ports)
        .unwrap();
}

fn foreign(pair: &mut Pair, host: usize) -> u64 {
    pair.connection(host).stats().foreign_datagrams
}

/// A data packet without protection, with an empty segment.
fn data(cid: ConnectionId, path: u8) -> Vec<u8> {
    let ctrl = CtrlHeader { cid, path: PathId(path), pn: 99, phase: 0, ack_now: false };
    DataHeader { ctrl, dsn: 99, frontier: 0, several: false }.to_bytes().to_vec()
}

#[test]
fn what_is_not_of_this_connection_is_counted_as_foreign() {
    let config = ShuttleConfig { protection: protection::NONE, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    let cid = pair.connection(1).cid();
    let other_stream = ConnectionId(cid.0 | 0xff);
    let probe = Hello::probe(cid, 9).encode();
    let strange = [b"not a packet".to_vec(), probe, data(cid, 7), data(other_stream, 0)];
    for (before, datagram) in (0..).zip(&strange) {
        assert_eq!(foreign(&mut pair, 1), before);
        give(&mut pair, 1, datagram);
    }
    assert_eq!(foreign(&mut pair, 1), 4);
    let now_ns = pair.now_ns;
    pair.connection(1).handle_unreachable(now_ns);
    give(&mut pair, 1, &data(cid, 0));
    assert_eq!(foreign(&mut pair, 1), 5, "it has ended");
}

/// S-80.
#[test]
fn data_without_its_checksum_is_foreign() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    let cid = pair.connection(1).cid();
    give(&mut pair, 1, &data(cid, 0));
    assert_eq!(foreign(&mut pair, 1), 1);
}

#[test]
fn a_forged_answer_is_foreign_and_the_true_one_still_opens() {
    let credentials = Credentials::PreShared([5; 32]);
    let protection = protection::AES128GCM;
    let config = ShuttleConfig { protection, credentials, ..ShuttleConfig::default() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.tracing = true;
    pair.answer = Answer::Ignore;
    pair.run_for(MS);
    let request = pair.trace[0].2.clone();
    let asked = Hello::parse(&request).unwrap();
    let forged = Hello {
        to: asked.from,
        from: ConnectionId(0x100),
        echo: asked.nonce,
        key_message: &[7; 48],
        ..Hello::new(HelloKind::Reply)
    };
    give(&mut pair, 0, &forged.encode());
    assert_eq!(foreign(&mut pair, 0), 1);
    // An answer to somebody else, and one to nobody's Retry.
    give(&mut pair, 0, &Hello { echo: !asked.nonce, ..forged }.encode());
    assert_eq!(foreign(&mut pair, 0), 2);
    pair.answer = Answer::Accept;
    pair.open();
}

/// Hosts of which the second has accepted, and its answer is lost.
fn unanswered() -> (Pair, Vec<u8>) {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    pair.tracing = true;
    pair.run_until(1000 * MS, |pair| pair.hosts[1].connection.is_some());
    let request = pair.trace[0].2.clone();
    pair.network = Network::new(seed(), &Link::default());
    pair.trace.clear();
    (pair, request)
}

#[test]
fn only_the_request_that_was_accepted_is_answered_again() {
    let replies = |pair: &Pair| pair.trace.iter().filter(|packet| packet.0 == 1).count();
    let (mut pair, request) = unanswered();
    let asked = Hello::parse(&request).unwrap();
    let other = Hello { nonce: !asked.nonce, ..asked }.encode();
    for (before, datagram) in (0..).zip([&request[..1199], &other]) {
        assert_eq!(foreign(&mut pair, 1), before);
        give(&mut pair, 1, datagram);
        pair.run_for(MS);
        assert_eq!(replies(&pair), 0);
    }
    let counted = foreign(&mut pair, 1);
    give(&mut pair, 1, &request);
    pair.run_for(MS);
    assert_eq!((replies(&pair), foreign(&mut pair, 1)), (1, counted));
}

/// Nothing is lost: a segment that is sent again, since its packet was late, comes twice.
#[test]
fn segments_that_come_again_are_counted_and_settle_nothing() {
    let link = Link { late: 0.2, late_ns: 60 * MS, ..Link::default() };
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link, 1);
    pair.open();
    assert!(pair.connection(0).is_settled());
    pair.hosts[0].ports.post(true, 1_000_000);
    pair.connection(0).wake(StreamId(0));
    pair.run_for(MS);
    assert!(!pair.connection(0).is_settled(), "what was sent is not placed yet");
    pair.run_until(10_000 * MS, Pair::is_complete);
    pair.run_for(1000 * MS);
    assert!(pair.connection(0).is_settled());
    let (sent, received) = (pair.connection(0).stats(), pair.connection(1).stats());
    let segments = pair.hosts[1].ports.ends[0].sink.segments;
    assert!(sent.segments_resent > 0, "{sent:?}");
    // The rest of the late packets come when the receiver was told not to wait for them.
    assert!((1..=sent.segments_resent).contains(&received.duplicate_segments), "{received:?}");
    assert_eq!(sent.segments_out, segments + sent.segments_resent);
}

/// An immediate acknowledgement is asked for with what leaves last, and seldom.
#[test]
fn who_sends_often_asks_for_few_immediate_acknowledgements() {
    let link = Link { delay_ns: 20 * MS, ..Link::default() };
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &link, 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.tracing = true;
    // One that leaves alone asks, and of those of the next 20 ms one in a millisecond may.
    for _ in 0..200 {
        pair.hosts[0].ports.post(true, 10);
        pair.connection(0).wake(StreamId(0));
        pair.run_for(MS / 10);
    }
    let asks = |packet: &&(usize, u64, Vec<u8>)| match Packet::parse(&packet.2) {
        Ok(Packet::Data(header)) => packet.0 == 0 && header.ctrl.ack_now,
        _ => false,
    };
    let asked = pair.trace.iter().filter(asks).count();
    assert!((10..=21).contains(&asked), "{asked} of {}", pair.trace.len());
}

/// S-17: a Retry is for the Request that it names, and says something new.
#[test]
fn a_retry_for_another_request_or_without_a_new_cookie_is_foreign() {
    let mut pair = Pair::new(seed(), &ShuttleConfig::default(), &Link::default(), 1);
    (pair.tracing, pair.answer) = (true, Answer::Ignore);
    pair.run_for(MS);
    let asked = Hello::parse(&pair.trace[0].2).map(|hello| (hello.from, hello.nonce)).unwrap();
    let retry = |echo: u64, cookie: &[u8]| {
        Hello { to: asked.0, echo, cookie, ..Hello::new(HelloKind::Retry) }.encode()
    };
    let requests = |pair: &mut Pair| {
        pair.run_for(MS);
        pair.trace.iter().filter(|packet| packet.0 == 0).count()
    };
    give(&mut pair, 0, &retry(!asked.1, b"cookie"));
    give(&mut pair, 0, &retry(asked.1, b""));
    assert_eq!((foreign(&mut pair, 0), requests(&mut pair)), (2, 1));
    give(&mut pair, 0, &retry(asked.1, &[1; 8]));
    give(&mut pair, 0, &retry(asked.1, &[1; 8]));
    assert_eq!((foreign(&mut pair, 0), requests(&mut pair)), (3, 2), "it came before");
    give(&mut pair, 0, &retry(asked.1, b""));
    assert_eq!((foreign(&mut pair, 0), requests(&mut pair)), (4, 2), "none");
    // Four are followed.
    for (cookies, foreigns) in (2..).zip([4, 4, 4, 5]) {
        let retry = retry(asked.1, &[cookies; 8]);
        give(&mut pair, 0, &retry);
        assert_eq!(foreign(&mut pair, 0), foreigns, "{cookies}");
        assert_eq!(requests(&mut pair), usize::from(cookies.min(4)) + 1);
        let repeated = Hello::parse(&pair.trace.last().unwrap().2).unwrap().cookie.to_vec();
        assert_eq!(repeated, [cookies.min(4); 8]);
    }
    give(&mut pair, 0, &retry(asked.1, &[4; 8]));
    assert_eq!((foreign(&mut pair, 0), requests(&mut pair)), (6, 5));
}
