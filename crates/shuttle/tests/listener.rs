//! One socket for many connections: who a packet is for, who may come in, and at what cost.
//!
//! Rules of `docs/shuttle.md`: S-2, S-10, S-13, S-17 to S-19, S-22.

mod support;

use support::network::Link;
use support::site::World;
use support::{MS, route, seed};
use weft_shuttle::{
    Arrival, ConnectionEnd, Credentials, Endpoint, Identity, Listen, Refusal, Route, ShuttleConfig,
    ShuttleConnection, ShuttleEvent, ShuttleMisuse,
};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Hello, HelloKind, protection, reason};

fn world(config: &ShuttleConfig, link: &Link) -> World {
    World::new(seed(), [config, config], link)
}

fn listen(world: &mut World, retry_above: usize, half_open_max: usize) {
    let config = world.sites[1].config.clone();
    world.sites[1].endpoint.listen(Some(Listen {
        retry_above,
        half_open_max,
        ..Listen::new(config)
    }));
}

/// A Request from nowhere; the nonce makes it one of its own.
fn request(config: &ShuttleConfig, nonce: u64) -> Vec<u8> {
    let cid = ConnectionId((nonce as u32) << 8);
    let identity = Identity { cid, nonce, seed: nonce, entropy: [nonce as u8; 32] };
    let config = config.clone();
    let mut asking = ShuttleConnection::connect(0, config, identity, route(0, 0), b"????").unwrap();
    let mut out = weft_shuttle::Transmit::default();
    let mut ports = support::model::Ports::new(Vec::new());
    assert!(asking.poll_transmit(0, &mut ports, &support::model::Memory, &mut out));
    support::model::flatten(&out.gather)
}

/// Where datagrams of somebody at `port` seem to come from.
fn from(port: u16) -> Route {
    let mut way = route(1, 0);
    way.remote.set_port(port);
    way
}

fn kinds(world: &World, kind: HelloKind) -> Vec<&[u8]> {
    let is = |octets: &[u8]| octets[0] >> 5 == kind as u8;
    world.trace.iter().map(|(_, octets)| &octets[..]).filter(|octets| is(octets)).collect()
}

#[test]
fn many_connections_share_two_sockets() {
    let link = Link { loss: 0.1, duplicate: 0.1, late: 0.2, late_ns: 5 * MS, ..Link::default() };
    let config = ShuttleConfig { handshake_ns: 100_000 * MS, ..ShuttleConfig::default() };
    let mut world = world(&config, &link);
    for _ in 0..40 {
        let key = world.ask();
        world.sites[0].joined[key].ports.post(true, 20_000 + key as u32);
        world.run_for(3 * MS);
    }
    world.run_until(100_000 * MS, |world| [0, 1].map(|site| world.open(site)) == [40, 40]);
    for (number, joined) in world.sites[1].joined.iter_mut().enumerate() {
        joined.ports.post(false, 5000 + number as u32);
    }
    world.run_until(100_000 * MS, World::is_complete);
    assert_eq!(world.sites[1].endpoint.half_open(), 0);
    assert_eq!(world.sites[1].endpoint.stats().requests, 40);
    let placed = |site: usize| -> u64 {
        let ends = world.sites[site].joined.iter().flat_map(|joined| &joined.ports.ends);
        ends.map(|end| end.sink.payload_octets).sum()
    };
    assert_eq!([placed(1), placed(0)], [40 * 20_000 + 780, 40 * 5000 + 780]);
}

#[test]
fn a_request_that_comes_again_gets_the_same_answer() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    world.accepts = false;
    let key = world.ask();
    world.run_for(4000 * MS);
    // It came several times, and the application was asked once.
    assert!(kinds(&world, HelloKind::Request).len() >= 4);
    assert_eq!((world.sites[1].asked.len(), world.sites[1].endpoint.half_open()), (1, 1));
    world.network.down = true;
    assert!(world.accept());
    world.run_for(100 * MS);
    world.network.down = false;
    world.run_until(10_000 * MS, |world| world.open(0) == 1);
    let replies = kinds(&world, HelloKind::Reply);
    assert!(replies.len() >= 2 && replies.iter().all(|reply| reply == &replies[0]));
    world.sites[0].joined[key].ports.post(true, 10_000);
    world.run_until(1000 * MS, World::is_complete);
    assert_eq!(world.sites[1].endpoint.half_open(), 0);
}

#[test]
fn a_refusal_is_said_again() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    world.accepts = false;
    let key = world.ask();
    world.run_for(20 * MS);
    let ticket = world.sites[1].asked.pop_front().unwrap();
    let now_ns = world.now_ns;
    let refused = world.sites[1].endpoint.reject(now_ns, ticket, 7, b"no").unwrap();
    assert_eq!(refused.0.remote, route(0, 0).local);
    // It is lost; the next Request brings it again.
    world.run_for(1000 * MS);
    let expected = [
        ShuttleEvent::Rejected { private_data: b"no".to_vec() },
        ShuttleEvent::Ended(ConnectionEnd::Rejected(7)),
    ];
    assert_eq!(world.sites[0].joined[key].events, expected);
    assert_eq!(kinds(&world, HelloKind::Reject), [&refused.1[..]]);
    let again = world.sites[1].endpoint.reject(now_ns, ticket, 7, b"no");
    assert_eq!(again, Err(ShuttleMisuse::Gone));
}

#[test]
fn an_owner_that_ends_refuses_all_who_wait_and_nobody_else() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    world.ask();
    world.run_until(1000 * MS, |world| world.open(0) == 1);
    world.accepts = false;
    let waiting = [world.ask(), world.ask()];
    world.run_for(20 * MS);
    let now_ns = world.now_ns;
    assert_eq!(world.sites[1].endpoint.reject_all(now_ns, 7).len(), 2);
    assert_eq!(world.sites[1].endpoint.reject_all(now_ns, 7), []);
    // They are lost; the next Requests bring them again.
    world.run_for(1000 * MS);
    for key in waiting {
        let end = ShuttleEvent::Ended(ConnectionEnd::Rejected(7));
        assert_eq!(world.sites[0].joined[key].events.last(), Some(&end));
    }
    assert_eq!((world.open(0), world.sites[1].endpoint.half_open()), (1, 0));
}

/// Whoever cannot receive gets no further than a cookie; whoever can gets in.
#[test]
fn a_flood_from_false_addresses_keeps_nobody_out() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    listen(&mut world, 8, 40);
    world.accepts = false;
    for nonce in 1..5000 {
        let octets = request(&ShuttleConfig::default(), nonce);
        let (port, now_ns) = (5000 + (nonce % 50_000) as u16, world.now_ns);
        world.sites[1].receive(now_ns, from(port), &octets);
    }
    let flood = world.sites[1].endpoint.stats();
    assert_eq!((flood.requests, flood.retries), (8, 4991));
    assert_eq!(world.sites[1].endpoint.half_open(), 8);
    assert!(world.sites[1].answered_octets < 5000 * 60);
    world.sites[1].asked.clear();
    world.accepts = true;
    let begun_ns = world.now_ns;
    for _ in 0..20 {
        world.ask();
    }
    world.run_until(1000 * MS, |world| world.open(0) == 20);
    // Two round trips of 10 ms instead of one.
    assert!(world.now_ns - begun_ns <= 25 * MS, "{}", world.now_ns - begun_ns);
    assert_eq!(kinds(&world, HelloKind::Retry).len(), 20);
    let rtt = world.sites[0].joined[0].connection.rtt(weft_wire::shuttle::PathId(0)).unwrap();
    assert_eq!(rtt.min_ns, 10 * MS);
}

#[test]
fn retries_work_under_a_cipher() {
    let config = ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([5; 32]),
        handshake_ns: 100_000 * MS,
        ..ShuttleConfig::default()
    };
    let mut world = world(&config, &Link { loss: 0.2, duplicate: 0.2, ..Link::default() });
    listen(&mut world, 0, 40);
    for _ in 0..20 {
        let key = world.ask();
        world.sites[0].joined[key].ports.post(true, 10_000);
    }
    world.run_until(100_000 * MS, |world| world.open(1) == 20 && world.is_complete());
    assert_eq!(world.sites[1].endpoint.stats().requests, 20);
}

#[test]
fn a_cookie_is_good_for_its_owner_and_for_a_while() {
    let config = ShuttleConfig::default();
    let mut endpoint: Endpoint<()> = Endpoint::new([1; 32]);
    endpoint.listen(Some(Listen { retry_above: 0, ..Listen::new(config.clone()) }));
    let mut ask = |now_ns: u64, port: u16, octets: &[u8]| match endpoint.handle_datagram(
        now_ns,
        from(port),
        octets,
    ) {
        Arrival::Answer(answer) => {
            let hello = Hello::parse(&answer).unwrap();
            assert_eq!(hello.kind, HelloKind::Retry);
            Some(hello.cookie.to_vec())
        }
        Arrival::Request(_) => None,
        other => panic!("{other:?}"),
    };
    let plain = request(&config, 9);
    let with = |cookie: &[u8]| Hello { cookie, ..Hello::parse(&plain).unwrap() }.encode();
    let cookie = ask(0, 5000, &plain).unwrap();
    assert!(ask(0, 5001, &with(&cookie)).is_some(), "from another address");
    assert!(ask(60_000 * MS, 5000, &with(&cookie)).is_some(), "too late");
    assert!(ask(60_000 * MS, 5000, &with(b"0123456789abcdef")).is_some(), "invented");
    let cookie = ask(60_000 * MS, 5000, &plain).unwrap();
    assert!(ask(63_000 * MS, 5000, &with(&cookie)).is_none(), "right");
}

#[test]
fn those_who_wait_are_bounded_and_forgotten() {
    let config = ShuttleConfig::default();
    let mut world = world(&config, &Link::default());
    listen(&mut world, 1000, 30);
    for nonce in 1..100 {
        let now_ns = world.now_ns;
        world.sites[1].receive(now_ns, from(5000), &request(&config, nonce));
    }
    assert_eq!(world.sites[1].endpoint.half_open(), 30);
    assert_eq!(world.sites[1].endpoint.stats().crowded_out, 69);
    world.now_ns += 11_000 * MS;
    let ticket = world.sites[1].asked[0];
    let now_ns = world.now_ns;
    let late = world.sites[1].endpoint.accept(now_ns, ticket, config.clone(), b"");
    assert_eq!(late.err(), Some(ShuttleMisuse::Gone));
    assert_eq!(world.sites[1].endpoint.half_open(), 0);
    assert!(world.sites[1].endpoint.request(ticket).is_none());
}

#[test]
fn a_granted_connection_that_nobody_wants_ends() {
    let config = ShuttleConfig::default();
    let mut world = world(&config, &Link::default());
    let octets = request(&config, 77);
    let ask = |world: &mut World| {
        let now_ns = world.now_ns;
        world.sites[1].receive(now_ns, from(5000), &octets);
    };
    ask(&mut world);
    let ticket = world.sites[1].asked.pop_front().unwrap();
    let now_ns = world.now_ns;
    let granted = world.sites[1].endpoint.accept(now_ns, ticket, config, b"").unwrap();
    let cid = granted.cid();
    let (end, _) = support::model::End::pair();
    world.sites[1].endpoint.attach(cid, 0);
    let (ports, events) = (support::model::Ports::new(vec![end]), Vec::new());
    world.sites[1].joined.push(support::site::Joined { connection: granted, ports, events });
    // Requests that come again do not keep it alive.
    for _ in 0..6 {
        world.run_for(2000 * MS);
        ask(&mut world);
    }
    assert_eq!(world.sites[1].joined[0].events, [ShuttleEvent::Ended(ConnectionEnd::NoAnswer)]);
    assert_eq!(world.sites[1].endpoint.half_open(), 0);
}

#[test]
fn a_late_request_does_not_ask_again() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    world.ask();
    world.run_until(1000 * MS, |world| world.open(1) == 1);
    let octets = kinds(&world, HelloKind::Request)[0].to_vec();
    let again = |world: &mut World| {
        let now_ns = world.now_ns;
        let answer = world.sites[1].receive(now_ns, route(1, 0), &octets);
        (answer, world.sites[1].asked.len())
    };
    assert_eq!(again(&mut world), (None, 0));
    let now_ns = world.now_ns;
    world.sites[0].joined[0].connection.close(now_ns, 0);
    world.run_for(5000 * MS);
    let cid = world.sites[1].joined[0].connection.cid();
    let now_ns = world.now_ns;
    assert!(world.sites[1].joined[0].connection.is_forgettable(now_ns));
    world.sites[1].endpoint.release(now_ns, cid);
    assert_eq!(again(&mut world), (None, 0));
    world.now_ns += 31_000 * MS;
    assert_eq!(again(&mut world), (None, 1));
}

#[test]
fn wrong_keys_are_told_at_once_at_both_ends() {
    let keyed = |key: u8| ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([key; 32]),
        ..ShuttleConfig::default()
    };
    let known = |private: u8, peer: Option<u8>| ShuttleConfig {
        protection: protection::CHACHA20POLY1305,
        credentials: Credentials::Static {
            private: [private; 32],
            peer: peer.map(|peer| Credentials::public_key([peer; 32])),
        },
        ..ShuttleConfig::default()
    };
    let clear = ShuttleConfig::default();
    let cases = [
        (keyed(1), keyed(2), Refusal::Stranger, ConnectionEnd::Stranger),
        (known(1, Some(2)), known(3, None), Refusal::Stranger, ConnectionEnd::Stranger),
        (known(1, Some(2)), keyed(2), Refusal::Stranger, ConnectionEnd::Stranger),
        (keyed(2), known(2, None), Refusal::Stranger, ConnectionEnd::Stranger),
        (keyed(1), clear.clone(), Refusal::NothingInCommon, ConnectionEnd::NothingInCommon),
        (clear, keyed(1), Refusal::NothingInCommon, ConnectionEnd::NothingInCommon),
    ];
    for (ours, theirs, refusal, end) in cases {
        let mut world = World::new(seed(), [&ours, &theirs], &Link::default());
        let key = world.ask();
        world.run_for(400 * MS);
        assert!(world.sites[1].refused.iter().all(|why| *why == refusal));
        assert!(!world.sites[1].refused.is_empty());
        assert_eq!(world.sites[0].joined[key].events.last(), Some(&ShuttleEvent::Ended(end)));
    }
}

/// A key agreement is dear: a crowd of strangers has to show first that it receives.
#[test]
fn strangers_are_slowed_down() {
    let keyed = |key: u8| ShuttleConfig {
        protection: protection::CHACHA20POLY1305,
        credentials: Credentials::PreShared([key; 32]),
        ..ShuttleConfig::default()
    };
    let mut world = World::new(seed(), [&keyed(1), &keyed(2)], &Link::default());
    listen(&mut world, 5, 100);
    for nonce in 1..50 {
        let now_ns = world.now_ns;
        world.sites[1].receive(now_ns, from(5000), &request(&keyed(1), nonce));
    }
    let stats = world.sites[1].endpoint.stats();
    assert_eq!((stats.refused, stats.retries, stats.requests), (5, 44, 0));
}

/// Who watches can answer first, but what is not under the key has to wait for what is.
#[test]
fn a_forged_refusal_does_not_stop_a_handshake_under_a_key() {
    let config = ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([5; 32]),
        ..ShuttleConfig::default()
    };
    let mut world = world(&config, &Link::default());
    let key = world.ask();
    world.run_for(0);
    let asked = Hello::parse(kinds(&world, HelloKind::Request)[0]).unwrap();
    let (to, echo) = (asked.from, asked.nonce);
    let answer = |kind, echo| Hello { to, echo, cookie: &[9; 16], ..Hello::new(kind) };
    let forged = [
        Hello { reason: reason::STRANGER, ..answer(HelloKind::Reject, echo) },
        Hello { reason: 3, ..answer(HelloKind::Reject, echo) },
        answer(HelloKind::Reply, echo),
        answer(HelloKind::Retry, echo + 1),
        answer(HelloKind::Reject, echo + 1),
    ];
    for hello in forged {
        let octets = Hello { cookie: &[], ..hello }.encode();
        let now_ns = world.now_ns;
        world.sites[0].receive(now_ns, route(0, 0), &octets);
        world.sites[0].receive(now_ns, route(0, 0), &hello.encode());
    }
    world.run_for(100 * MS);
    assert!(world.sites[0].joined[key].connection.is_open());
    assert_eq!(kinds(&world, HelloKind::Request).len(), 1);
}

/// Retries that go on and on make an initiator neither flood nor stop.
#[test]
fn retries_without_end_are_not_followed() {
    let mut world = world(&ShuttleConfig::default(), &Link::default());
    world.network.down = true;
    let key = world.ask();
    world.run_for(0);
    let asked = Hello::parse(kinds(&world, HelloKind::Request)[0]).unwrap();
    let (to, echo) = (asked.from, asked.nonce);
    for number in 0..100 {
        let cookie = &[number; 16];
        let octets = Hello { to, echo, cookie, ..Hello::new(HelloKind::Retry) }.encode();
        let now_ns = world.now_ns;
        world.sites[0].receive(now_ns, route(0, 0), &octets);
        world.run_for(0);
    }
    assert_eq!(kinds(&world, HelloKind::Request).len(), 5);
    world.network.down = false;
    world.run_until(5000 * MS, |world| world.open(0) == 1);
    assert!(world.sites[0].joined[key].connection.is_open());
}

#[test]
fn a_short_request_gets_no_answer() {
    let config = ShuttleConfig::default();
    let mut world = world(&config, &Link::default());
    let inner = Hello::parse(&request(&config, 5)).unwrap().encode_inner();
    assert!(inner.len() < 200);
    let now_ns = world.now_ns;
    assert_eq!(world.sites[1].receive(now_ns, from(5000), &inner), None);
    assert!(world.sites[1].asked.is_empty());
}
