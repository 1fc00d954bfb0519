//! A queue pair that is its own peer does every operation to itself, and fails like any other.

mod common;

use std::sync::Arc;

use common::{ALL, Host};
use weft_rnic::LoopbackQp;
use weft_verbs::{AsyncKind, QpState, SendOp, WcStatus};

fn loopback() -> (Host, LoopbackQp) {
    let host = Host::new(5);
    host.qp.enter(QpState::Rts);
    let loopback = LoopbackQp::new(Arc::clone(&host.qp), 2);
    (host, loopback)
}

#[test]
fn every_operation_comes_back() {
    let (host, mut loopback) = loopback();
    let (from, to) = (host.memory(100_000, ALL), host.memory(100_000, ALL));
    host.qp.regions().write(from.key, host.pd.id(), from.addr(), &[5; 100_000], ALL).unwrap();
    let (at, stag) = (to.addr(), to.key);
    host.recv(1, &[to.sge(0, 8)]);
    host.recv(2, &[]);
    host.send(3, SendOp::Send, &[from.sge(0, 8)]);
    host.send(4, SendOp::WriteImm { to: at, stag, imm: 9 }, &[from.sge(0, 100_000)]);
    host.send(5, SendOp::FetchAdd { to: at, stag, add: 1 }, &[from.sge(16, 8)]);
    for id in 6..10 {
        host.send(id, SendOp::Read { to: at, stag }, &[from.sge(0, 8)]);
    }
    loopback.poll_transmit();
    assert!(!loopback.is_held());
    let done = host.statuses();
    assert_eq!(done.len(), 9);
    assert!(done.iter().all(|(_, status)| *status == 0), "{done:?}");
    assert_eq!(from.octets()[..8], [6, 5, 5, 5, 5, 5, 5, 5]);
    assert!(to.octets()[8..].iter().all(|octet| *octet == 5));
}

#[test]
fn a_message_waits_for_its_receive() {
    let (host, mut loopback) = loopback();
    host.send(1, SendOp::Send, &[]);
    loopback.poll_transmit();
    assert!(loopback.is_held());
    assert!(host.statuses().is_empty());
    host.recv(2, &[]);
    loopback.poll_transmit();
    assert!(!loopback.is_held());
    assert_eq!(host.statuses().len(), 2);
}

#[test]
fn a_wrong_key_fails_the_request_that_has_it() {
    let (host, mut loopback) = loopback();
    let from = host.memory(8, ALL);
    host.send(1, SendOp::Write { to: 0, stag: 7 << 20 }, &[from.sge(0, 8)]);
    host.send(2, SendOp::Send, &[]);
    loopback.poll_transmit();
    assert!(!loopback.is_held());
    let (refused, flushed) = (WcStatus::RemAccessErr as u32, WcStatus::WrFlushErr as u32);
    assert_eq!(host.statuses(), [(1, refused), (2, flushed)]);
    assert!(loopback.is_dead());
    assert_eq!(host.qp.state(), QpState::Err);
    let kinds: Vec<_> = std::iter::from_fn(|| host.events.pop()).map(|event| event.kind).collect();
    assert_eq!(kinds, [AsyncKind::QpAccessErr], "it is who refuses, too");
}
