//! What an endpoint counts of Requests and of what is none.
//!
//! Rules of `docs/shuttle.md`: S-9, S-13, S-17, S-18, S-23.

mod support;

use support::model::{Memory, Ports, flatten};
use support::route;
use weft_shuttle::{
    Arrival, Credentials, Endpoint, EndpointStats, Identity, Listen, Route, ShuttleConfig,
    ShuttleConnection, Transmit,
};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Hello, HelloKind, Modules, placement, protection, recovery};

fn request(config: &ShuttleConfig, nonce: u64) -> Vec<u8> {
    let (cid, entropy) = (ConnectionId((nonce as u32) << 8), [nonce as u8; 32]);
    let identity = Identity { cid, nonce, seed: nonce, entropy };
    let asking = ShuttleConnection::connect(0, config.clone(), identity, route(0, 0), b"");
    let (mut asking, mut out) = (asking.unwrap(), Transmit::default());
    assert!(asking.poll_transmit(0, &mut Ports::new(Vec::new()), &Memory, &mut out));
    flatten(&out.gather)
}

/// An endpoint, and what it is expected to have counted.
struct Counting {
    endpoint: Endpoint<()>,
    expected: EndpointStats,
}

impl Counting {
    fn new(listen: Listen) -> Self {
        let mut endpoint = Endpoint::new([1; 32]);
        endpoint.listen(Some(listen));
        Self { endpoint, expected: EndpointStats::default() }
    }

    /// Gives a datagram, which raises one counter by one.
    fn give(&mut self, datagram: &[u8], counter: fn(&mut EndpointStats) -> &mut u64) {
        *counter(&mut self.expected) += 1;
        let route: Route = route(1, 0);
        let _arrival: Arrival<'_, ()> = self.endpoint.handle_datagram(0, route, datagram);
        assert_eq!(self.endpoint.stats(), self.expected);
    }
}

#[test]
fn each_request_is_counted_once_as_what_became_of_it() {
    let config = ShuttleConfig::default();
    let listen = Listen { retry_above: 2, half_open_max: 3, ..Listen::new(config.clone()) };
    let mut counting = Counting::new(listen);
    for nonce in [1, 2] {
        counting.give(&request(&config, nonce), |stats| &mut stats.requests);
        counting.give(&request(&config, nonce), |stats| &mut stats.repeated);
    }
    assert_eq!(counting.endpoint.half_open(), 2);
    // From here on a cookie is asked for.
    let mut cookies = Vec::new();
    for nonce in [3, 4] {
        let plain = request(&config, nonce);
        let answer = match counting.endpoint.handle_datagram(0, route(1, 0), &plain) {
            Arrival::Answer(answer) => answer,
            other => panic!("{other:?}"),
        };
        counting.expected.retries += 1;
        let retry = Hello::parse(&answer).unwrap();
        assert_eq!((retry.kind, retry.echo), (HelloKind::Retry, nonce));
        assert_eq!(retry.to, ConnectionId((nonce as u32) << 8));
        let cookie = retry.cookie;
        cookies.push(Hello { cookie, ..Hello::parse(&plain).unwrap() }.encode());
    }
    counting.give(&cookies[0], |stats| &mut stats.requests);
    counting.give(&cookies[1], |stats| &mut stats.crowded_out);
}

#[test]
fn what_cannot_be_granted_is_refused_and_what_is_no_request_is_foreign() {
    let config = ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([5; 32]),
        ..ShuttleConfig::default()
    };
    let mut counting = Counting::new(Listen::new(config.clone()));
    let clear = request(&ShuttleConfig::default(), 1);
    counting.give(&clear, |stats| &mut stats.refused);
    counting.give(&clear, |stats| &mut stats.refused);
    let stranger = ShuttleConfig { credentials: Credentials::PreShared([6; 32]), ..config.clone() };
    counting.give(&request(&stranger, 2), |stats| &mut stats.refused);
    counting.give(&clear[..1199], |stats| &mut stats.foreign);
    counting.give(b"not a packet", |stats| &mut stats.foreign);
    let none = Modules {
        protection: protection::CRC32C,
        placement: placement::TAIL,
        recovery: recovery::FULL,
    };
    let without_limits = Hello { modules: none, ..Hello::new(HelloKind::Request) };
    counting.give(&without_limits.encode(), |stats| &mut stats.foreign);
    let reply = Hello { to: ConnectionId(0x500), ..Hello::new(HelloKind::Reply) };
    counting.give(&reply.encode(), |stats| &mut stats.foreign);
    counting.endpoint.listen(None);
    counting.give(&clear, |stats| &mut stats.foreign);
    counting.give(&Hello::probe(ConnectionId(0x600), 7).encode(), |stats| &mut stats.foreign);
}
