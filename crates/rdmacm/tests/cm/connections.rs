//! Connections from the first call to the last event.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use weft_host::CmTransport;
use weft_rdmacm::{CmId, CmState, ConnParam, EventChannel, EventKind, PortSpace, config};
use weft_verbs::{QpAttr, QpAttrMask, QpState, SendOp, WcStatus};

use crate::common::*;

#[test]
fn both_sides_learn_everything_once_and_data_flows() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"hello");
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert!(request.listen.is_some_and(|listen| Arc::ptr_eq(&listen, &server.id)));
    assert_eq!(request.event.private_data, b"hello");
    // The other side's depths, crossed over.
    assert_eq!((request.event.responder_resources, request.event.initiator_depth), (2, 4));
    assert_eq!(request.id.peer_addr(), client.id.local_addr());

    let accepted = ready_side();
    let inbox = accepted.memory(16, 0, crate::side::ALL);
    accepted.recv(7, &[inbox.sge(0, 16)]);
    request.id.accept(&params(b"welcome"), &accepted.qp).unwrap();
    let established = expect(&client.channel, EventKind::Established);
    assert_eq!((established.event.status, established.event.responder_resources), (0, 2));
    assert_eq!(established.event.private_data, b"welcome");
    assert_eq!(client.id.peer_addr(), Some(server.addr));

    let outbox = client.side.memory(5, b'x', crate::side::ALL);
    client.side.send(1, SendOp::Send, &[outbox.sge(0, 5)]);
    expect(&server.channel, EventKind::Established);
    assert_eq!(accepted.completions(1)[0].byte_len, 5);
    assert_eq!(&inbox.bytes[..6], b"xxxxx\0");
    client.side.completions(1);

    client.id.disconnect().unwrap();
    expect(&client.channel, EventKind::Disconnected);
    expect(&server.channel, EventKind::Disconnected);
    client.id.disconnect().unwrap();
    request.id.disconnect().unwrap();
    client.id.destroy();
    request.id.destroy();
    server.id.destroy();
    assert!(client.channel.is_empty() && server.channel.is_empty());
}

#[test]
fn the_passive_side_may_end_it_too() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    let (accepted, _side) = server.accept(&params(b""));
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    accepted.disconnect().unwrap();
    expect(&server.channel, EventKind::Disconnected);
    expect(&client.channel, EventKind::Disconnected);
    assert_eq!((accepted.state(), client.id.state()), (CmState::Closed, CmState::Closed));
}

#[test]
fn destroying_an_id_ends_its_connection() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    let (_accepted, _side) = server.accept(&params(b""));
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    client.id.destroy();
    expect(&server.channel, EventKind::Disconnected);
}

#[test]
fn destroying_a_queue_pair_ends_its_connection() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"");
    let (_accepted, _side) = server.accept(&params(b""));
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    client.side.qp.destroy().unwrap();
    expect(&client.channel, EventKind::Disconnected);
    expect(&server.channel, EventKind::Disconnected);
}

/// The queue pair, which had one receive, has failed.
fn assert_flushed(side: &Side) {
    assert_eq!(side.qp.state(), QpState::Err);
    assert_eq!(side.completions(1)[0].status, WcStatus::WrFlushErr as u32);
}

#[test]
fn a_queue_pair_whose_connection_was_refused_is_connected_again_once_it_is_reset() {
    let server = Server::new();
    let refused = Client::connecting(server.addr, b"");
    let request = expect(&server.channel, EventKind::ConnectRequest);
    request.id.destroy();
    expect(&refused.channel, EventKind::Rejected);
    let again = Client::towards(server.addr);
    let connect = || again.id.connect(&params(b""), &refused.side.qp);
    assert_eq!(connect().unwrap_err().errno(), libc::EINVAL);
    for state in [QpState::Reset, QpState::Init] {
        let attr = QpAttr { state, ..refused.side.qp.query() };
        refused.side.qp.modify(&attr, QpAttrMask::STATE).unwrap();
    }
    connect().unwrap();
    server.accept(&params(b""));
    expect(&again.channel, EventKind::Established);
}

#[test]
fn a_rejection_takes_its_private_data_along() {
    let server = Server::new();
    let client = Client::connecting(server.addr, b"please");
    client.side.recv(1, &[]);
    let request = expect(&server.channel, EventKind::ConnectRequest);
    request.id.reject(&[0xA5; 251]).unwrap();
    let rejected = expect(&client.channel, EventKind::Rejected);
    assert_eq!(rejected.event.status, -libc::ECONNREFUSED);
    assert_eq!(rejected.event.private_data, [0xA5; 251]);
    assert_flushed(&client.side);
    let side = ready_side();
    assert_eq!(request.id.accept(&params(b""), &side.qp).unwrap_err().errno(), libc::EINVAL);
    request.id.destroy();
    client.id.destroy();
}

#[test]
fn nobody_listening_is_a_rejection() {
    let (listener, addr) = raw_server();
    drop(listener);
    let client = Client::connecting(addr, b"");
    client.side.recv(1, &[]);
    let rejected = expect(&client.channel, EventKind::Rejected);
    assert_eq!(rejected.event.status, -libc::ECONNREFUSED);
    assert_flushed(&client.side);
    assert_eq!(client.id.state(), CmState::Closed);
}

#[test]
fn who_begins_to_listen_after_the_call_is_reached() {
    let (client, server) = loop {
        let (listener, addr) = raw_server();
        drop(listener);
        let began = weft_os::clock::now();
        let client = Client::connecting(addr, b"early");
        let server = Server::at(addr, 0);
        // One that was held up for longer than it is waited for comes too late.
        if began.elapsed() < config::REFUSED_PATIENCE / 4 {
            break (client, server);
        }
    };
    let (_accepted, _side) = server.accept(&params(b""));
    expect(&client.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
}

#[test]
fn all_the_device_has_is_a_legal_wish_and_more_is_not() {
    let server = Server::new();
    let client = Client::towards(server.addr);
    let deep = ConnParam { initiator_depth: 129, ..ConnParam::default() };
    let error = client.id.connect(&deep, &client.side.qp).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    client.id.connect(&ConnParam::device_max(), &client.side.qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!((request.event.responder_resources, request.event.initiator_depth), (128, 128));
    let side = ready_side();
    request.id.accept(&ConnParam::device_max(), &side.qp).unwrap();
    let established = expect(&client.channel, EventKind::Established);
    assert_eq!(established.event.initiator_depth, 128);
    request.id.destroy();
    client.id.destroy();
}

#[test]
fn a_queue_pair_in_the_wrong_state_is_refused_and_another_may_be_tried() {
    let server = Server::new();
    let failed = ready_side();
    failed.qp.destroy().unwrap();
    let client = Client::towards(server.addr);
    let error = client.id.connect(&params(b""), &failed.qp).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    client.id.connect(&params(b""), &client.side.qp).unwrap();
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(request.id.accept(&params(b""), &failed.qp).unwrap_err().errno(), libc::EINVAL);
    let side = ready_side();
    request.id.accept(&params(b""), &side.qp).unwrap();
    expect(&client.channel, EventKind::Established);
}

#[test]
fn one_queue_pair_makes_one_connection() {
    let server = Server::new();
    let first = Client::connecting(server.addr, b"1");
    let (accepted, side) = server.accept(&params(b""));
    expect(&first.channel, EventKind::Established);
    expect(&server.channel, EventKind::Established);
    let second = Client::connecting(server.addr, b"2");
    let request = expect(&server.channel, EventKind::ConnectRequest);
    assert_eq!(request.id.accept(&params(b""), &side.qp).unwrap_err().errno(), libc::EINVAL);
    // Nobody answers it any more, which is an answer too.
    request.id.destroy();
    assert_eq!(accepted.state(), CmState::Connected);
    assert_eq!(expect(&second.channel, EventKind::Rejected).event.status, -libc::ECONNREFUSED);
}

#[test]
fn the_ipv6_wildcard_serves_ipv4_unless_it_must_not() {
    let server = Server::at("[::]:0".parse().unwrap(), 0);
    let v4 = (Ipv4Addr::LOCALHOST, server.addr.port()).into();
    let client = Client::connecting(v4, b"");
    let (accepted, _side) = server.accept(&params(b""));
    assert!(accepted.peer_addr().unwrap().is_ipv6());
    expect(&client.channel, EventKind::Established);

    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, CmTransport::Iwarp);
    id.set_v6_only(true).unwrap();
    id.bind("[::]:0".parse().unwrap()).unwrap();
    id.listen(0).unwrap();
    let port = id.local_addr().unwrap().port();
    let client = Client::connecting((Ipv4Addr::LOCALHOST, port).into(), b"");
    let event = expect(&client.channel, EventKind::Rejected).event;
    assert_eq!(event.status, -libc::ECONNREFUSED);
}

#[test]
fn works_over_ipv6() {
    let server = Server::at((Ipv6Addr::LOCALHOST, 0).into(), 1);
    prove_alive(&server);
    assert!(server.addr.is_ipv6());
}

#[test]
fn the_wildcard_is_this_machine() {
    let server = Server::at("0.0.0.0:0".parse().unwrap(), 1);
    assert!(server.addr.ip().is_unspecified());
    let client = Client::connecting(server.addr, b"");
    assert!(client.id.local_addr().unwrap().ip().is_loopback());
    let (accepted, _side) = server.accept(&params(b""));
    assert!(accepted.local_addr().unwrap().ip().is_loopback());
    expect(&client.channel, EventKind::Established);
}

#[test]
fn a_listener_without_an_address_takes_one() {
    let channel = EventChannel::new(crate::side::host()).unwrap();
    let id = CmId::new(Arc::clone(&channel), PortSpace::Tcp, CmTransport::Iwarp);
    id.listen(0).unwrap();
    let addr = id.local_addr().unwrap();
    assert_ne!(addr.port(), 0);
    prove_alive(&Server { channel, id, addr });
}

#[test]
fn more_peers_than_the_backlog_are_served_one_after_the_other() {
    const PEERS: usize = 40;
    let server = Server::at(loopback(), 2);
    let clients: Vec<Client> =
        (0..PEERS).map(|n| Client::connecting(server.addr, &[n as u8])).collect();
    let mut accepted: Vec<_> = (0..PEERS).map(|_| None).collect();
    let mut established = 0;
    while established < PEERS {
        let delivery = next(&server.channel);
        delivery.owner().acknowledge();
        match delivery.event.kind {
            EventKind::ConnectRequest => {
                let side = ready_side();
                delivery.id.accept(&params(b""), &side.qp).unwrap();
                let n = usize::from(delivery.event.private_data[0]);
                assert!(accepted[n].replace((delivery.id, side)).is_none());
            }
            EventKind::Established => established += 1,
            other => panic!("{other:?}"),
        }
    }
    for client in &clients {
        expect(&client.channel, EventKind::Established);
    }
}
