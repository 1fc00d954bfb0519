//! What the application does with ids, queue pairs and listeners while connections over Shuttle are
//! made or after they have ended.

use std::sync::{Arc, Barrier};

use weft_host::{CmTransport, HostQp};
use weft_rdmacm::{CmId, EventKind, PortSpace};
use weft_verbs::{QpAttrMask, QpState};

use crate::common::{expect, next, params};
use crate::shuttle::{End, side};

fn calls(server: &End) -> End {
    let to = server.id.local_addr().unwrap();
    End::towards(CmTransport::Shuttle, PortSpace::Tcp, to)
}

fn listener() -> End {
    End::listening(CmTransport::Shuttle, PortSpace::Tcp)
}

fn modify(qp: &HostQp, state: QpState) {
    let mut attr = qp.query();
    (attr.state, attr.port) = (state, 1);
    let mask = match state {
        QpState::Init => {
            QpAttrMask::PKEY_INDEX | QpAttrMask::PORT | QpAttrMask::ACCESS_FLAGS | QpAttrMask::STATE
        }
        _ => QpAttrMask::STATE,
    };
    qp.modify(&attr, mask).unwrap();
}

#[test]
fn requests_of_one_listener_may_be_accepted_by_many_threads_at_once() {
    const CLIENTS: usize = 4;
    let server = listener();
    for round in 0..20 {
        let clients = [(); CLIENTS].map(|()| (calls(&server), side()));
        let mut asked = Vec::new();
        for (client, near) in &clients {
            client.id.connect(&params(b""), &near.qp).unwrap();
            asked.push((expect(&server.channel, EventKind::ConnectRequest).id, side()));
        }
        let barrier = Barrier::new(CLIENTS);
        std::thread::scope(|scope| {
            for (request, far) in &asked {
                scope.spawn(|| {
                    barrier.wait();
                    let accepted = request.accept(&params(b""), &far.qp);
                    assert!(accepted.is_ok(), "round {round}: {accepted:?}");
                });
            }
        });
        for (client, _) in &clients {
            client.expect(EventKind::Established);
        }
        for _ in &clients {
            expect(&server.channel, EventKind::Established);
        }
        clients.iter().for_each(|(client, _)| client.id.destroy());
        asked.iter().for_each(|(request, _)| request.destroy());
    }
    server.id.destroy();
}

#[test]
fn a_request_that_is_accepted_after_its_listener_ended_leaves_the_port_to_the_next() {
    let server = listener();
    let at = server.id.local_addr().unwrap();
    let (first, second) = ((calls(&server), side()), (calls(&server), side()));
    first.0.id.connect(&params(b""), &first.1.qp).unwrap();
    let far = side();
    let accepted = expect(&server.channel, EventKind::ConnectRequest).id;
    accepted.accept(&params(b""), &far.qp).unwrap();
    first.0.expect(EventKind::Established);
    expect(&server.channel, EventKind::Established);
    second.0.id.connect(&params(b""), &second.1.qp).unwrap();
    let waiting = expect(&server.channel, EventKind::ConnectRequest).id;
    server.id.destroy();
    let beside = side();
    waiting.accept(&params(b""), &beside.qp).unwrap();
    second.0.expect(EventKind::Established);
    let next = End::new(CmTransport::Shuttle, PortSpace::Tcp);
    next.id.bind(at).unwrap();
    next.id.listen(0).unwrap();
    for id in [&first.0.id, &second.0.id, &accepted, &waiting, &next.id] {
        id.destroy();
    }
}

#[test]
fn an_attempt_whose_queue_pair_is_reset_has_failed() {
    let server = listener();
    let (client, near) = (calls(&server), side());
    client.id.connect(&params(b""), &near.qp).unwrap();
    expect(&server.channel, EventKind::ConnectRequest);
    modify(&near.qp, QpState::Reset);
    client.expect(EventKind::ConnectError);
    client.id.destroy();
    server.id.destroy();
}

#[test]
fn a_queue_pair_that_is_failed_while_its_connection_is_granted_stays_failed() {
    let server = listener();
    for round in 0..50 {
        let (client, near) = (calls(&server), side());
        client.id.connect(&params(b""), &near.qp).unwrap();
        let request = expect(&server.channel, EventKind::ConnectRequest).id;
        let far = side();
        std::thread::scope(|scope| {
            scope.spawn(|| modify(&near.qp, QpState::Err));
            scope.spawn(|| modify(&far.qp, QpState::Err));
            // It may have failed before it is looked at.
            let _either = request.accept(&params(b""), &far.qp);
        });
        // Nobody is at work on it any more.
        client.id.destroy();
        request.destroy();
        let states = [near.qp.state(), far.qp.state()];
        assert_eq!(states, [QpState::Err; 2], "round {round}");
    }
    server.id.destroy();
}

/// Connects `near` by a new id; the ids of both ends.
fn connect(server: &End, near: &Arc<HostQp>, far: &Arc<HostQp>) -> (End, Arc<CmId>) {
    let client = calls(server);
    client.id.connect(&params(b""), near).unwrap();
    let accepted = expect(&server.channel, EventKind::ConnectRequest).id;
    accepted.accept(&params(b""), far).unwrap();
    client.expect(EventKind::Established);
    let established = next(&server.channel);
    assert_eq!(established.event.kind, EventKind::Established);
    established.owner().acknowledge();
    (client, accepted)
}

#[test]
fn who_is_late_to_disconnect_does_not_end_the_next_connection_of_the_queue_pair() {
    let server = listener();
    let (near, far, other) = (side(), side(), side());
    let (first, accepted) = connect(&server, &near.qp, &far.qp);
    modify(&near.qp, QpState::Reset);
    first.expect(EventKind::Disconnected);
    modify(&near.qp, QpState::Init);
    expect(&server.channel, EventKind::Disconnected);
    let (second, accepted_too) = connect(&server, &near.qp, &other.qp);
    let _closed_already = first.id.disconnect();
    first.id.destroy();
    assert_eq!((near.qp.state(), other.qp.state()), (QpState::Rts, QpState::Rts));
    second.id.disconnect().unwrap();
    second.expect(EventKind::Disconnected);
    expect(&server.channel, EventKind::Disconnected);
    assert_eq!(near.qp.state(), QpState::Err);
    for id in [&accepted, &accepted_too, &second.id, &server.id] {
        id.destroy();
    }
}
