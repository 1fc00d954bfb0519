//! Who is told to the owner of an endpoint: nobody who has not shown that it receives, and nobody
//! by what was recorded.
//!
//! Rules of `docs/shuttle.md`: S-9, S-13, S-15, S-17 to S-19, S-23, S-24.

mod support;

use std::sync::atomic::{AtomicU64, Ordering};

use support::{MS, route};
use weft_shuttle::{
    Arrival, Credentials, Endpoint, Identity, Listen, Refusal, Route, ShuttleConfig,
    ShuttleConnection,
};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Hello, HelloKind, protection, reason};

fn keyed() -> ShuttleConfig {
    ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([5; 32]),
        ..ShuttleConfig::default()
    }
}

/// An initiator, and the datagram that it has to send.
struct Asking(ShuttleConnection);

impl Asking {
    fn new(config: &ShuttleConfig, nonce: u64, cookie: &[u8]) -> Self {
        let cid = ConnectionId(0x7700);
        let identity = Identity { cid, nonce, seed: nonce, entropy: [nonce as u8; 32] };
        let config = ShuttleConfig { cookie: cookie.to_vec(), ..config.clone() };
        Self(ShuttleConnection::connect(0, config, identity, route(0, 0), b"hello").unwrap())
    }

    fn request(&mut self) -> Vec<u8> {
        let mut out = weft_shuttle::Transmit::default();
        let mut ports = support::model::Ports::new(Vec::new());
        assert!(self.0.poll_transmit(0, &mut ports, &support::model::Memory, &mut out));
        support::model::flatten(&out.gather)
    }

    fn hear(&mut self, datagram: &[u8]) {
        let mut ports = support::model::Ports::new(Vec::new());
        let mut datagram = datagram.to_vec();
        let _ = self.0.handle_datagram(0, route(0, 0), false, &mut datagram, &mut ports);
    }
}

/// An endpoint of a process that has just begun.
fn listening(config: &ShuttleConfig, seed: u8) -> Endpoint<()> {
    let mut endpoint = Endpoint::new([seed; 32]);
    endpoint.listen(Some(Listen { retry_above: 0, ..Listen::new(config.clone()) }));
    endpoint
}

fn from(port: u16) -> Route {
    let mut way = route(1, 0);
    way.remote.set_port(port);
    way
}

/// The cookie that a datagram is answered with.
fn cookie(endpoint: &mut Endpoint<()>, port: u16, datagram: &[u8]) -> Vec<u8> {
    let Arrival::Answer(answer) = endpoint.handle_datagram(0, from(port), datagram) else {
        panic!("no answer");
    };
    assert!(answer.len() <= datagram.len());
    Hello::parse(&answer).unwrap().cookie.to_vec()
}

fn is_told(arrival: &Arrival<'_, ()>) -> bool {
    matches!(arrival, Arrival::Request(_))
}

#[test]
fn nobody_is_told_of_before_it_has_shown_that_it_receives() {
    for config in [ShuttleConfig::default(), keyed()] {
        let mut endpoint = listening(&config, 1);
        let mut asking = Asking::new(&config, 9, &[]);
        let request = asking.request();
        for _ in 0..3 {
            let Arrival::Answer(retry) = endpoint.handle_datagram(0, from(5000), &request) else {
                panic!("told");
            };
            asking.hear(&retry);
        }
        let again = asking.request();
        assert!(is_told(&endpoint.handle_datagram(0, from(5000), &again)));
        assert_eq!(endpoint.stats().requests, 1);
    }
}

#[test]
fn a_probe_brings_the_cookie_of_the_request() {
    for config in [ShuttleConfig::default(), keyed()] {
        let mut endpoint = listening(&config, 1);
        let probe = Hello::probe(ConnectionId(0x7700), 9).encode();
        let cookie = cookie(&mut endpoint, 5000, &probe);
        let request = Asking::new(&config, 9, &cookie).request();
        assert!(!is_told(&endpoint.handle_datagram(0, from(5001), &request)), "elsewhere");
        assert!(is_told(&endpoint.handle_datagram(0, from(5000), &request)));
    }
}

/// A record of a keyed Request, with a cookie that is made for whoever sends it again.
#[test]
fn what_was_recorded_does_not_open_under_a_new_cookie() {
    let config = keyed();
    let mut old = listening(&config, 1);
    let probe = Hello::probe(ConnectionId(0x7700), 9).encode();
    let first = cookie(&mut old, 5000, &probe);
    let record = Asking::new(&config, 9, &first).request();
    assert!(is_told(&old.handle_datagram(0, from(5000), &record)));
    let mut new = listening(&config, 2);
    let mut newer = listening(&config, 3);
    for (endpoint, port) in [(&mut old, 5001), (&mut new, 5000), (&mut newer, 5001)] {
        assert!(!is_told(&endpoint.handle_datagram(0, from(port), &record)));
        let cookie = cookie(endpoint, port, &probe);
        let replay = Hello { cookie: &cookie, ..Hello::parse(&record).unwrap() }.encode();
        let arrival = endpoint.handle_datagram(0, from(port), &replay);
        assert!(matches!(arrival, Arrival::Refused { why: Refusal::Stranger, .. }), "{arrival:?}");
        assert_eq!(endpoint.half_open(), usize::from(endpoint.stats().requests == 1));
    }
    assert_eq!((old.stats().requests, new.stats().requests), (1, 0));
}

/// As long as its cookie is known a Request that was refused, or that nobody has answered, is not
/// told again.
#[test]
fn a_request_is_told_once_in_the_life_of_its_cookie() {
    for refuses in [true, false] {
        let config = keyed();
        let mut endpoint = listening(&config, 1);
        let probe = Hello::probe(ConnectionId(0x7700), 9).encode();
        let cookie = cookie(&mut endpoint, 5000, &probe);
        let record = Asking::new(&config, 9, &cookie).request();
        let Arrival::Request(ticket) = endpoint.handle_datagram(0, from(5000), &record) else {
            panic!("not told");
        };
        if refuses {
            endpoint.reject(0, ticket, 7, b"no").unwrap();
        }
        // Nothing is heard for a while, and then now and then.
        for at_ms in [10_500, 12_000, 14_000, 15_900, 17_000, 25_000, 60_000, 120_000] {
            let arrival = endpoint.handle_datagram(at_ms * MS, from(5000), &record);
            assert!(!is_told(&arrival), "after {at_ms} ms");
        }
        assert_eq!(endpoint.stats().requests, 1);
    }
}

/// Refusals are forgotten when there are many; the cookies of the forgotten are too.
#[test]
fn refusals_that_are_forgotten_are_not_told_again() {
    let config = ShuttleConfig::default();
    let mut endpoint = listening(&config, 1);
    let mut first = None;
    for nonce in 1..1100 {
        let probe = Hello::probe(ConnectionId(0x7700), nonce).encode();
        let cookie = cookie(&mut endpoint, 5000, &probe);
        let record = Asking::new(&config, nonce, &cookie).request();
        let Arrival::Request(ticket) = endpoint.handle_datagram(0, from(5000), &record) else {
            panic!("not told");
        };
        endpoint.reject(0, ticket, 7, b"no").unwrap();
        first.get_or_insert(record);
    }
    let arrival = endpoint.handle_datagram(0, from(5000), &first.unwrap());
    assert!(!is_told(&arrival), "{arrival:?}");
}

#[test]
fn who_speaks_another_version_is_told_so_in_its_own() {
    let mut endpoint = listening(&ShuttleConfig::default(), 1);
    let old = Hello { from: ConnectionId(0x7700), nonce: 9, ..Hello::new(HelloKind::Request) };
    let arrival = endpoint.handle_datagram(0, from(5000), &old.encode_as(1));
    let Arrival::Refused { answer, why: Refusal::Version } = arrival else {
        panic!("{arrival:?}");
    };
    let (version, hello) = Hello::parse_foreign(&answer).unwrap();
    assert_eq!((version, hello.kind, hello.echo), (1, HelloKind::Reject, 9));
    let mut asking = Asking::new(&ShuttleConfig::default(), 9, &[]);
    asking.request();
    let own =
        Hello { kind: HelloKind::Reject, to: old.from, echo: 9, ..Hello::new(HelloKind::Reject) };
    asking.hear(&Hello { reason: reason::VERSION, ..own }.encode());
    let ended = std::iter::from_fn(|| asking.0.poll_event()).last();
    assert_eq!(
        ended,
        Some(weft_shuttle::ShuttleEvent::Ended(weft_shuttle::ConnectionEnd::Version))
    );
    let probe = Hello::probe(ConnectionId(0x7700), 9).encode_as(1);
    assert!(matches!(endpoint.handle_datagram(0, from(5000), &probe), Arrival::Answer(_)));
}

/// The time of day of a listener that judges Requests by their stamps, in milliseconds.
const NOON_MS: u64 = 1_795_640_000_000;

/// A listener that has its clock, and began at that time.
fn timed(config: &ShuttleConfig) -> Endpoint<()> {
    let mut endpoint = Endpoint::new([4; 32]);
    let clock: fn() -> u64 = || NOON_MS;
    let listen = Listen { retry_above: 0, clock: Some(clock), ..Listen::new(config.clone()) };
    endpoint.listen(Some(listen));
    endpoint
}

/// A Request that was made `late_ms` after the listener began.
fn stamped(config: &ShuttleConfig, nonce: u64, late_ms: i64) -> Vec<u8> {
    let unix_ms = Some(NOON_MS.saturating_add_signed(late_ms));
    Asking::new(&ShuttleConfig { unix_ms, ..config.clone() }, nonce, &[]).request()
}

#[test]
fn who_has_just_asked_under_the_key_needs_no_cookie_once() {
    let mut endpoint = timed(&keyed());
    let request = stamped(&keyed(), 9, 0);
    let Arrival::Request(ticket) = endpoint.handle_datagram(0, from(5000), &request) else {
        panic!("not told");
    };
    let receipt = endpoint.receipt(ticket).expect("a receipt");
    let again = endpoint.handle_datagram(0, from(5000), &request);
    assert_eq!(again, Arrival::Answer(receipt.clone()), "repeated");
    let mut asking = Asking::new(&keyed(), 9, &[]);
    let other = Hello { echo: 8, ..Hello::parse(&receipt).unwrap() }.encode();
    for (datagram, heard) in [(other, false), (receipt, true)] {
        asking.hear(&datagram);
        assert_eq!(asking.0.has_heard(), heard);
    }
    assert!(!cookie(&mut endpoint, 5001, &request).is_empty(), "recorded");
    assert_eq!((endpoint.stats().requests, endpoint.stats().retries), (1, 1));
    assert!(is_told(&endpoint.handle_datagram(0, from(5001), &stamped(&keyed(), 10, 1000))));
}

#[test]
fn a_stamp_of_another_time_or_address_or_key_is_worth_nothing() {
    let config = keyed();
    let mut endpoint = timed(&config);
    let stranger = ShuttleConfig { credentials: Credentials::PreShared([6; 32]), ..config.clone() };
    for request in [
        stamped(&config, 1, -1),
        stamped(&config, 2, 1001),
        stamped(&stranger, 3, 0),
        Asking::new(&config, 4, &[]).request(),
    ] {
        assert!(!cookie(&mut endpoint, 5000, &request).is_empty());
    }
    let other = Route { local: ([10, 0, 0, 99], 7).into(), ..from(5000) };
    let request = stamped(&config, 5, 0);
    assert!(!is_told(&endpoint.handle_datagram(0, other, &request)));
    assert!(is_told(&endpoint.handle_datagram(0, from(5000), &request)), "where it was sent to");
    let anybody = ShuttleConfig { credentials: Credentials::Anonymous, ..config };
    let mut endpoint = timed(&anybody);
    assert!(!is_told(&endpoint.handle_datagram(0, from(5000), &stamped(&anybody, 6, 0))));
    assert_eq!(endpoint.stats().requests, 0);
}

/// A clock that is set an hour ahead and back.
#[test]
fn a_request_is_not_new_again_after_the_clock_was_set_back() {
    static CLOCK_MS: AtomicU64 = AtomicU64::new(NOON_MS);
    let clock: fn() -> u64 = || CLOCK_MS.load(Ordering::Relaxed);
    let mut endpoint = Endpoint::new([4; 32]);
    let listen = Listen { retry_above: 0, clock: Some(clock), ..Listen::new(keyed()) };
    endpoint.listen(Some(listen));
    let request = stamped(&keyed(), 9, 0);
    assert!(is_told(&endpoint.handle_datagram(0, from(5000), &request)));
    CLOCK_MS.store(NOON_MS + 3_600_000, Ordering::Relaxed);
    assert!(is_told(&endpoint.handle_datagram(0, from(5000), &stamped(&keyed(), 10, 3_600_000))));
    CLOCK_MS.store(NOON_MS, Ordering::Relaxed);
    assert!(!is_told(&endpoint.handle_datagram(0, from(5001), &request)));
}

#[test]
fn among_many_everybody_needs_a_cookie() {
    let mut endpoint = timed(&keyed());
    for nonce in 0..64 {
        let arrival = endpoint.handle_datagram(0, from(5000), &stamped(&keyed(), nonce + 1, 0));
        assert!(is_told(&arrival), "{nonce}");
    }
    assert!(!cookie(&mut endpoint, 5000, &stamped(&keyed(), 65, 0)).is_empty());
}
