//! Who gives up an attempt tells the peer, and nobody else can.
//!
//! Rule of `docs/shuttle.md`: S-25.

mod support;

use support::network::Link;
use support::site::World;
use support::{MS, route, seed};
use weft_shuttle::{
    ConnectionEnd, Credentials, ShuttleConfig, ShuttleEvent, ShuttleMisuse, Ticket,
};
use weft_wire::shuttle::hello::{Hello, HelloKind, protection};

fn config() -> ShuttleConfig {
    ShuttleConfig { may_withdraw: true, ..ShuttleConfig::default() }
}

fn keyed() -> ShuttleConfig {
    let credentials = Credentials::PreShared([5; 32]);
    ShuttleConfig { protection: protection::AES128GCM, credentials, ..config() }
}

/// A Request that waits at site 1, under a key of site 0.
fn asking(config: &ShuttleConfig) -> (World, usize, Ticket) {
    let mut world = World::new(seed(), [config, config], &Link::default());
    world.accepts = false;
    let key = world.ask();
    world.run_for(100 * MS);
    let ticket = *world.sites[1].asked.front().expect("a request waits");
    (world, key, ticket)
}

fn give_up(world: &mut World, key: usize) {
    let now_ns = world.now_ns;
    world.sites[0].joined[key].connection.close(now_ns, 0);
}

/// The first handshake packet of this kind that site 0 has sent.
fn sent(world: &World, kind: HelloKind) -> Option<&[u8]> {
    let is = |(from, octets): &&(usize, Vec<u8>)| *from == 0 && octets[0] >> 5 == kind as u8;
    world.trace.iter().find(is).map(|(_, octets)| &octets[..])
}

#[test]
fn a_request_that_is_withdrawn_waits_no_longer_and_is_not_new_again() {
    for config in [config(), keyed()] {
        let (mut world, key, ticket) = asking(&config);
        let request = sent(&world, HelloKind::Request).unwrap().to_vec();
        give_up(&mut world, key);
        world.run_for(100 * MS);
        let ended = [ShuttleEvent::Ended(ConnectionEnd::Local)];
        assert_eq!(world.sites[0].joined[key].events, ended);
        let (now_ns, to_listener) = (world.now_ns, route(1, 0));
        let site = &mut world.sites[1];
        let late = site.endpoint.accept(now_ns, ticket, config, b"yes");
        assert_eq!(late.err(), Some(ShuttleMisuse::Gone));
        assert_eq!(site.receive(now_ns, to_listener, &request), None);
        assert_eq!(site.asked.len(), 1, "it is no other Request");
    }
}

#[test]
fn a_connection_that_is_withdrawn_before_its_reply_arrives_ends() {
    for config in [config(), keyed()] {
        let (mut world, key, _) = asking(&config);
        assert!(world.accept());
        give_up(&mut world, key);
        world.run_for(100 * MS);
        let ended = [ShuttleEvent::Ended(ConnectionEnd::Withdrawn)];
        assert_eq!(world.sites[1].joined[0].events, ended);
    }
}

#[test]
fn an_attempt_that_nobody_answers_in_time_is_withdrawn() {
    let (mut world, key, ticket) = asking(&config());
    world.run_for(10_000 * MS);
    let ended = [ShuttleEvent::Ended(ConnectionEnd::NoAnswer)];
    assert_eq!(world.sites[0].joined[key].events, ended);
    assert!(world.sites[1].endpoint.request(ticket).is_none());
}

/// Who sees a Request under a key sees all but what withdraws it.
#[test]
fn others_withdraw_nothing() {
    let (mut world, _, ticket) = asking(&keyed());
    let asked = Hello::parse(sent(&world, HelloKind::Request).unwrap()).unwrap();
    assert_eq!(asked.withdrawal, None);
    let reject = Hello { from: asked.from, nonce: asked.nonce, ..Hello::new(HelloKind::Reject) };
    let forged = [None, Some(0), Some(asked.nonce)]
        .map(|withdrawal| Hello { withdrawal, ..reject }.encode());
    let forge = |world: &mut World| {
        for octets in &forged {
            let now_ns = world.now_ns;
            world.sites[1].receive(now_ns, route(1, 0), octets);
        }
    };
    forge(&mut world);
    assert!(world.sites[1].endpoint.request(ticket).is_some());
    world.network.down = true;
    assert!(world.accept());
    forge(&mut world);
    world.network.down = false;
    world.run_until(10_000 * MS, |world| [0, 1].map(|site| world.open(site)) == [1, 1]);
}

#[test]
fn what_was_never_asked_or_cannot_be_withdrawn_is_given_up_in_silence() {
    let mut world = World::new(seed(), [&config(), &config()], &Link::default());
    let key = world.ask();
    give_up(&mut world, key);
    world.run_for(100 * MS);
    assert!(world.trace.is_empty());
    let (mut world, key, ticket) = asking(&ShuttleConfig::default());
    give_up(&mut world, key);
    world.run_for(100 * MS);
    assert_eq!(sent(&world, HelloKind::Reject), None);
    assert!(world.sites[1].endpoint.request(ticket).is_some());
}

/// S-20. A responder may have no limit of its own for the handshake.
#[test]
fn a_responder_that_is_closed_does_not_wait_for_an_initiator_that_is_gone() {
    let config = ShuttleConfig { handshake_ns: u64::MAX / 4, ..ShuttleConfig::default() };
    let (mut world, _, _) = asking(&config);
    world.sites[0].joined.clear();
    assert!(world.accept());
    let now_ns = world.now_ns;
    let connection = &mut world.sites[1].joined[0].connection;
    connection.close(now_ns, 0);
    assert_eq!(connection.poll_timeout(), Some(now_ns + 10_000 * MS));
    connection.handle_timeout(now_ns + 10_000 * MS);
    assert_eq!(connection.poll_event(), Some(ShuttleEvent::Ended(ConnectionEnd::Local)));
}

#[test]
fn who_outlives_a_withdrawal_ends_when_it_is_closed() {
    let config = ShuttleConfig { outlives_withdrawal: true, ..config() };
    let (mut world, key, _) = asking(&config);
    assert!(world.accept());
    give_up(&mut world, key);
    world.run_for(100 * MS);
    assert!(world.sites[1].joined[0].events.is_empty());
    let now_ns = world.now_ns;
    let connection = &mut world.sites[1].joined[0].connection;
    connection.close(now_ns, 0);
    assert_eq!(connection.poll_event(), Some(ShuttleEvent::Ended(ConnectionEnd::Local)));
}
