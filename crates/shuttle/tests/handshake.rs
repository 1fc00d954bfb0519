//! A connection begins in one round trip and ends in one exchange, whatever is lost.
//!
//! Rules of `docs/shuttle.md`: S-10 to S-14, S-20, S-21.

mod support;

use support::model::{Memory, Ports, flatten};
use support::network::{Link, Network};
use support::{Answer, MS, Pair, route, seed};
use weft_shuttle::{
    ConnectionEnd, Identity, PeerRequest, ShuttleConfig, ShuttleConnection, ShuttleEvent, TimeWait,
    Transmit,
};
use weft_wire::shuttle::hello::{Hello, HelloKind, Modules, placement, protection, recovery};
use weft_wire::shuttle::{ConnectionId, Packet, PathId};

fn established(private_data: &[u8]) -> ShuttleEvent {
    ShuttleEvent::Established { private_data: private_data.to_vec(), ord: 16, ird: 16 }
}

fn config() -> ShuttleConfig {
    ShuttleConfig { ord: 16, ..ShuttleConfig::default() }
}

/// Two that are connected, under this protection, whose datagrams are kept from now on.
fn traced(protection: u8) -> Pair {
    let config = ShuttleConfig { protection, ..config() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.tracing = true;
    pair
}

/// The kinds of datagrams sent so far, in order, as sender and letter.
fn kinds(pair: &Pair) -> Vec<(usize, char)> {
    let kind = |octets: &[u8]| match Packet::parse(octets).unwrap() {
        Packet::Hello { .. } => 'h',
        Packet::Data(_) => 'd',
        Packet::Ctrl(_) => 'c',
    };
    pair.trace.iter().map(|(host, _, octets)| (*host, kind(octets))).collect()
}

#[test]
fn two_packets_go_before_data_and_two_end_it() {
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.tracing = true;
    pair.hosts[0].ports.post(true, 100);
    pair.run_until(100 * MS, |pair| pair.is_complete() && pair.is_open());
    assert_eq!(kinds(&pair)[..3], [(0, 'h'), (1, 'h'), (0, 'd')]);
    assert_eq!(pair.trace[2].1 - pair.trace[0].1, 10 * MS);
    let [reply, peer] = [&pair.hosts[0].events, &pair.hosts[1].events];
    assert_eq!(reply[..], [established(b"yes")]);
    assert_eq!(peer.len(), 1);

    pair.run_for(1000 * MS);
    pair.trace.clear();
    let now_ns = pair.now_ns;
    pair.connection(0).close(now_ns, 3);
    pair.run_for(5000 * MS);
    assert_eq!(kinds(&pair), [(0, 'c'), (1, 'c')]);
    assert_eq!(pair.hosts[0].events.last(), Some(&ShuttleEvent::Ended(ConnectionEnd::Local)));
    assert_eq!(pair.hosts[1].events.last(), Some(&ShuttleEvent::Ended(ConnectionEnd::Peer(3))));
    let now_ns = pair.now_ns;
    assert!(pair.connection(0).is_forgettable(now_ns));
    assert!(pair.connection(1).is_forgettable(now_ns));
}

#[test]
fn ends_that_are_watched_send_nothing_and_stay_until_they_are_watched_no_more() {
    const HOUR_NS: u64 = 3600 * 1000 * MS;
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    pair.connection(0).set_watched(true, 0);
    pair.connection(1).set_watched(true, 0);
    pair.tracing = true;
    pair.run_for(HOUR_NS);
    assert_eq!(kinds(&pair), []);
    assert!(pair.is_open() && pair.connection(0).poll_timeout().is_none());

    let now_ns = pair.now_ns;
    pair.connection(0).set_watched(false, now_ns);
    pair.run_for(30_000 * MS);
    assert!(pair.is_open() && !kinds(&pair).is_empty(), "the other end answers");
}

/// The peer's Closed is lost, and the peer drops its connection: what it keeps answers the next
/// Close, under each kind of protection.
#[test]
fn what_is_kept_of_a_connection_answers_a_close_that_comes_again() {
    for protection in [protection::NONE, protection::CRC32C, protection::AES128GCM] {
        let mut pair = traced(protection);
        let now_ns = pair.now_ns;
        assert_eq!(pair.connection(1).time_wait(), None);
        pair.connection(0).close(now_ns, 3);
        // The link takes 5 ms: the Close is there, the answer is on its way.
        pair.run_for(7 * MS);
        pair.network = Network::new(seed(), &Link::default());
        let kept = pair.connection(1).time_wait().expect("it is closed and has answered");
        assert_eq!(kept.cid(), pair.connection(1).cid());
        assert!(kept.forget_ns() > pair.now_ns);
        pair.hosts[1].connection = None;
        pair.answer = Answer::Ignore;
        pair.trace.clear();
        pair.run_for(500 * MS);
        let (_, now_ns, close) = pair.trace.first().expect("the Close is repeated").clone();
        assert_eq!(pair.hosts[0].events.last(), Some(&established(b"yes")));
        assert_eq!(TimeWait::cid_of(&close), Some(kept.cid()));
        assert_eq!(kept.answer(&close[..8]), None, "no answer is longer than what it answers");
        let mut closed = kept.answer(&close).unwrap().to_vec();
        let host = &mut pair.hosts[0];
        let connection = host.connection.as_mut().unwrap();
        connection
            .handle_datagram(now_ns, route(0, 0), false, &mut closed, &mut host.ports)
            .unwrap();
        assert_eq!(connection.poll_event(), Some(ShuttleEvent::Ended(ConnectionEnd::Local)));
    }
}

/// Both close at once and answer each other: what they keep answers Closes, and not these answers,
/// which would go to and fro for as long as they are kept.
#[test]
fn ends_that_have_closed_at_once_do_not_answer_answers() {
    for protection in [protection::NONE, protection::CRC32C, protection::AES128GCM] {
        let mut pair = traced(protection);
        let now_ns = pair.now_ns;
        for end in [0, 1] {
            pair.connection(end).close(now_ns, 3);
        }
        pair.run_for(20 * MS);
        let kept = [0, 1].map(|end| pair.connection(end).time_wait().expect("it has answered"));
        let sent = |from| pair.trace.iter().filter(move |(host, ..)| *host == from);
        for (end, kept) in kept.iter().enumerate() {
            let answers = sent(1 - end).map(|(_, _, octets)| kept.answer(octets).is_some());
            assert_eq!(answers.collect::<Vec<_>>(), [true, false], "a Close, and its answer");
        }
    }
}

#[test]
fn a_refusal_carries_private_data() {
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.answer = Answer::Reject;
    pair.run_for(100 * MS);
    let expected = [
        ShuttleEvent::Rejected { private_data: b"no".to_vec() },
        ShuttleEvent::Ended(ConnectionEnd::Rejected(7)),
    ];
    assert_eq!(pair.hosts[0].events, expected);
}

#[test]
fn nobody_answers() {
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.answer = Answer::Ignore;
    pair.run_for(11_000 * MS);
    assert_eq!(pair.hosts[0].events, [ShuttleEvent::Ended(ConnectionEnd::NoAnswer)]);
    let requests = pair.network.counts[0].sent;
    assert!((4..10).contains(&requests), "{requests}");
}

#[test]
fn a_third_of_the_packets_may_be_lost() {
    let first = seed();
    for seed in (0..200).map(|run| first.wrapping_add(run)) {
        let link = Link { loss: 0.33, duplicate: 0.1, ..Link::default() };
        let config = ShuttleConfig { handshake_ns: 200_000 * MS, ..config() };
        let mut pair = Pair::new(seed, &config, &link, 1);
        pair.run_until(200_000 * MS, Pair::is_open);
        pair.hosts[1].ports.post(false, 5000);
        pair.run_until(60_000 * MS, Pair::is_complete);
        let established = |event: &&ShuttleEvent| matches!(event, ShuttleEvent::Established { .. });
        for host in &pair.hosts {
            assert_eq!(host.events.iter().filter(established).count(), 1, "{seed}");
        }
        let now_ns = pair.now_ns;
        pair.connection(1).close(now_ns, 0);
        let over = |pair: &Pair| {
            let ended = |event: &ShuttleEvent| matches!(event, ShuttleEvent::Ended(_));
            pair.hosts[1].events.iter().any(ended)
        };
        pair.run_until(60_000 * MS, over);
    }
}

#[test]
fn silence_ends_an_idle_connection_unless_somebody_speaks() {
    for (keep_alive, ends) in [(true, 0), (false, 2)] {
        let config = ShuttleConfig { keep_alive, idle_ns: 1000 * MS, ..config() };
        let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
        pair.open();
        pair.run_for(10_000 * MS);
        let silence = ShuttleEvent::Ended(ConnectionEnd::Silence);
        let ended = pair.hosts.iter().filter(|host| host.events.contains(&silence)).count();
        assert_eq!(ended, ends);
    }
    let config = ShuttleConfig { idle_ns: 1000 * MS, ..config() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    pair.open();
    pair.network.down = true;
    pair.run_for(1500 * MS);
    assert_eq!(pair.hosts[0].events.last(), Some(&ShuttleEvent::Ended(ConnectionEnd::Silence)));
}

/// S-21: the shorter of both ends' idle times holds at both.
#[test]
fn the_shorter_idle_time_holds() {
    let [short, long] = [1000, 50_000].map(|ms| ShuttleConfig { idle_ns: ms * MS, ..config() });
    for configs in [[short.clone(), long.clone()], [long, short]] {
        let mut pair = Pair::with_configs(seed(), configs, &Link::default(), 1);
        pair.open();
        pair.network.down = true;
        pair.run_for(1500 * MS);
        for host in &pair.hosts {
            assert_eq!(host.events.last(), Some(&ShuttleEvent::Ended(ConnectionEnd::Silence)));
        }
    }
}

#[test]
fn an_owner_in_doubt_gets_a_sign_of_life() {
    let config = ShuttleConfig { keep_alive: false, ..config() };
    let mut pair = Pair::new(seed(), &config, &Link::default(), 1);
    // Before the handshake is over there is nobody to send it to.
    pair.connection(0).ask();
    pair.open();
    pair.run_for(1000 * MS);
    pair.tracing = true;
    pair.run_for(1000 * MS);
    assert_eq!(kinds(&pair), []);
    let asked_ns = pair.now_ns;
    pair.connection(0).ask();
    pair.run_for(100 * MS);
    assert_eq!(kinds(&pair), [(0, 'c'), (1, 'c')]);
    assert_eq!(pair.connection(0).heard_ns(), asked_ns + 10 * MS);
}

#[test]
fn a_request_says_who_sends_it_and_what_for() {
    let identity = |nonce| Identity { cid: ConnectionId(0x500), nonce, seed: 1, entropy: [1; 32] };
    let request = |nonce| {
        let config = ShuttleConfig { ord: 3, ird: 7, ..ShuttleConfig::default() };
        let to = route(0, 0);
        let asks = ShuttleConnection::connect(0, config, identity(nonce), to, b"for this");
        let (mut out, mut ports) = (Transmit::default(), Ports::new(Vec::new()));
        assert!(asks.unwrap().poll_transmit(0, &mut ports, &Memory, &mut out));
        let datagram = flatten(&out.gather);
        PeerRequest::parse(&datagram, &ShuttleConfig::default(), [0; 32]).unwrap()
    };
    let (first, again, other) = (request(5), request(5), request(6));
    assert_eq!((first.ord(), first.ird(), first.private_data()), (3, 7, &b"for this"[..]));
    assert_eq!(first.identity(), (ConnectionId(0x500), 5));
    assert_eq!(first.identity(), again.identity());
    assert_ne!(first.identity(), other.identity());
}

/// The modules of the answer are one of each kind, of those that were offered.
#[test]
fn an_answer_without_one_module_of_each_kind_ends_the_attempt() {
    let good = Modules {
        protection: protection::CRC32C,
        placement: placement::TAIL,
        recovery: recovery::FULL,
    };
    let bad = [
        Modules { protection: protection::CRC32C | protection::NONE, ..good },
        Modules { protection: protection::AES128GCM, ..good },
        Modules { protection: 0, ..good },
        Modules { placement: placement::TAIL | placement::LOOSE, ..good },
        Modules { placement: 0, ..good },
        Modules { recovery: recovery::FULL | recovery::OFF, ..good },
        Modules { recovery: 0, ..good },
    ];
    for modules in bad.into_iter().chain([good]) {
        let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
        (pair.answer, pair.tracing) = (Answer::Ignore, true);
        pair.run_for(MS);
        let request = pair.trace[0].2.clone();
        let asked = Hello::parse(&request).unwrap();
        let reply = Hello {
            to: asked.from,
            from: ConnectionId(0x100),
            nonce: 8,
            echo: asked.nonce,
            modules,
            limits: asked.limits,
            ..Hello::new(HelloKind::Reply)
        };
        let host = &mut pair.hosts[0];
        let (connection, mut reply) = (host.connection.as_mut().unwrap(), reply.encode());
        connection
            .handle_datagram(pair.now_ns, route(0, 0), false, &mut reply, &mut host.ports)
            .unwrap();
        let event = connection.poll_event().expect("it takes the answer or gives up");
        match modules == good {
            true => assert!(matches!(event, ShuttleEvent::Established { .. }), "{event:?}"),
            false => assert_eq!(event, ShuttleEvent::Ended(ConnectionEnd::BadAnswer)),
        }
    }
}

#[test]
fn modules_are_what_both_accept() {
    let ours = ShuttleConfig { protection: protection::NONE | protection::CRC32C, ..config() };
    let placements = placement::STRICT | placement::LOOSE;
    let theirs =
        ShuttleConfig { protection: protection::NONE, placement: placement::LOOSE, ..config() };
    let ours = ShuttleConfig { placement: placements, ..ours };
    let mut pair = Pair::with_configs(seed(), [ours, theirs], &Link::default(), 1);
    pair.open();
    for host in 0..2 {
        let modules = pair.connection(host).modules().unwrap();
        assert_eq!(modules.protection, protection::NONE);
        assert_eq!(modules.placement, placement::LOOSE);
    }
}

/// Who was at work is asked soon whether it is still there, and who is calm more and more seldom.
#[test]
fn a_sign_of_life_is_asked_for_after_a_second_and_then_after_twice_the_time() {
    let often = ShuttleConfig { keep_alive_ns: 1000 * MS, ..config() };
    let mut pair = Pair::with_configs(seed(), [often, config()], &Link::default(), 1);
    pair.open();
    pair.hosts[1].ports.post(true, 100);
    pair.run_until(1000 * MS, Pair::is_complete);
    pair.run_for(100 * MS);
    pair.tracing = true;
    pair.run_for(16_000 * MS);
    let asked: Vec<_> = pair.trace.iter().filter(|packet| packet.0 == 0).map(|p| p.1).collect();
    let apart: Vec<_> = asked.windows(2).map(|pair| (pair[1] - pair[0]) / (1000 * MS)).collect();
    assert_eq!(apart, [2, 4, 8], "{asked:?}");
}

/// Neither end says anything for longer than silence may last, because neither runs.
#[test]
fn the_time_in_which_both_ends_were_stopped_is_no_silence() {
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    let stopped_ns = 3 * config().idle_ns;
    pair.now_ns += stopped_ns;
    (0..2).for_each(|host| pair.connection(host).handle_stop(stopped_ns));
    pair.run_for(1000 * MS);
    assert!(pair.is_open(), "{:?} {:?}", pair.hosts[0].events, pair.hosts[1].events);
    assert!(pair.hosts.iter().all(|host| host.events.len() == 1));
    pair.hosts[0].ports.post(true, 100);
    pair.run_until(1000 * MS, Pair::is_complete);
}

/// A turn of the other thread may have sent something while this one was stopped.
#[test]
fn a_handshake_across_a_stop_measures_no_round_trip() {
    for host in [0, 1] {
        let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
        // The Request or the Reply has left, and its answer is on its way.
        pair.run_until(1000 * MS, |pair| pair.hosts[host].connection.is_some());
        pair.run_for(MS);
        pair.now_ns += 3000 * MS;
        pair.connection(host).handle_stop(3000 * MS);
        pair.open();
        let rtt = pair.connection(host).rtt(PathId(0));
        assert!(rtt.is_none_or(|rtt| rtt.smoothed_ns < 1000 * MS), "{rtt:?}");
    }
}

#[test]
fn what_was_on_its_way_while_an_end_was_stopped_measures_no_round_trip() {
    let mut pair = Pair::new(seed(), &config(), &Link::default(), 1);
    pair.open();
    pair.run_for(1000 * MS);
    let before = pair.connection(0).rtt(PathId(0)).unwrap();
    pair.hosts[0].ports.post(true, 100);
    pair.run_for(MS);
    // The answer waits for the process that is stopped.
    pair.run_for(8 * MS);
    let mut connection = pair.hosts[0].connection.take().unwrap();
    pair.now_ns += 3000 * MS;
    connection.handle_stop(3000 * MS);
    pair.hosts[0].connection = Some(connection);
    pair.run_until(1000 * MS, Pair::is_complete);
    let after = pair.connection(0).rtt(PathId(0)).unwrap();
    assert!(after.smoothed_ns < 2 * before.smoothed_ns, "{before:?} {after:?}");
}
