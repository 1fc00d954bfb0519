//! How a connection ends that the peer's Weft refuses, and when it believes that.
//!
//! Rules of `docs/shuttle.md`: S-18, S-19.

mod support;

use support::model::{Memory, Ports, flatten};
use support::route;
use weft_shuttle::{
    ConnectionEnd, Credentials, Identity, Refusal, ShuttleConfig, ShuttleConnection, ShuttleEvent,
    Transmit,
};
use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::protection;

const REFUSALS: [(Refusal, ConnectionEnd); 4] = [
    (Refusal::Stranger, ConnectionEnd::Stranger),
    (Refusal::NothingInCommon, ConnectionEnd::NothingInCommon),
    (Refusal::ClearText, ConnectionEnd::ClearText),
    (Refusal::Version, ConnectionEnd::Version),
];

/// A connection that asks, and was refused in clear at time 0.
fn refused(config: ShuttleConfig, refusal: Refusal) -> ShuttleConnection {
    let identity = Identity { cid: ConnectionId(0x100), nonce: 1, seed: 1, entropy: [1; 32] };
    let asking = ShuttleConnection::connect(0, config, identity, route(0, 0), b"");
    let (mut asking, mut out) = (asking.unwrap(), Transmit::default());
    let mut ports = Ports::new(Vec::new());
    assert!(asking.poll_transmit(0, &mut ports, &Memory, &mut out));
    let mut answer = refusal.answer(&flatten(&out.gather)).expect("it is a Request");
    asking.handle_datagram(0, route(0, 0), false, &mut answer, &mut ports).unwrap();
    asking
}

fn ended(connection: &mut ShuttleConnection) -> Option<ConnectionEnd> {
    std::iter::from_fn(|| connection.poll_event()).find_map(|event| match event {
        ShuttleEvent::Ended(end) => Some(end),
        _ => None,
    })
}

#[test]
fn a_request_in_clear_believes_its_refusal_at_once() {
    for (refusal, end) in REFUSALS {
        let mut connection = refused(ShuttleConfig::default(), refusal);
        assert_eq!(ended(&mut connection), Some(end));
        assert_eq!(connection.poll_timeout(), None);
    }
}

/// Anybody on the path could have made it: a true answer has three round trips to come.
#[test]
fn a_sealed_request_believes_a_refusal_in_clear_after_three_round_trips() {
    let config = ShuttleConfig {
        protection: protection::AES128GCM,
        credentials: Credentials::PreShared([5; 32]),
        initial_rtt_ns: 70_000_000,
        ..ShuttleConfig::default()
    };
    for (refusal, end) in REFUSALS {
        let mut connection = refused(config.clone(), refusal);
        assert_eq!(ended(&mut connection), None);
        connection.handle_timeout(210_000_000 - 1);
        assert_eq!(ended(&mut connection), None);
        connection.handle_timeout(210_000_000);
        assert_eq!(ended(&mut connection), Some(end));
    }
    // A stop of this process is no time in which the answer could come.
    let mut connection = refused(config, Refusal::Stranger);
    connection.handle_stop(1_000_000_000);
    connection.handle_timeout(1_210_000_000 - 1);
    assert_eq!(ended(&mut connection), None);
    connection.handle_timeout(1_210_000_000);
    assert_eq!(ended(&mut connection), Some(ConnectionEnd::Stranger));
}
