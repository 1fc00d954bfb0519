//! Queue pairs over TCP find each other by the numbers and addresses that their programs exchanged.
#![allow(dead_code)]

mod common;

use std::net::{Ipv4Addr, Ipv6Addr};

use common::{ALL, Side};
use weft_verbs::{
    Access, AddressVector, QpAttr, QpAttrMask, QpState, SendFlags, SendOp, SendWr, WcStatus,
};

fn path() -> AddressVector {
    let here = Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets();
    AddressVector { sgid: here, dgid: here, is_global: true, port: 1, ..Default::default() }
}

fn attr(state: QpState, peer: u32) -> QpAttr {
    let (path, access) = (path(), ALL);
    let max_dest_rd_atomic = 4;
    QpAttr { state, path, access, dest_qp_num: peer, max_dest_rd_atomic, ..Default::default() }
}

fn step(side: &Side, state: QpState, peer: u32) {
    let mask = match state {
        QpState::Rtr => {
            QpAttrMask::STATE
                | QpAttrMask::AV
                | QpAttrMask::DEST_QPN
                | QpAttrMask::MAX_DEST_RD_ATOMIC
        }
        QpState::Init => QpAttrMask::STATE | QpAttrMask::ACCESS_FLAGS,
        _ => QpAttrMask::STATE,
    };
    side.qp.modify(&attr(state, peer), mask).unwrap();
}

fn walk(side: &Side, peer: u32) {
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        step(side, state, peer);
    }
}

/// Sends both ways, and reads.
fn talk(a: &Side, b: &Side) {
    let (from, to) = (a.memory(64, 7, ALL), b.memory(64, 0, ALL));
    b.recv(1, &[to.sge(0, 64)]);
    a.recv(2, &[from.sge(0, 64)]);
    a.send(3, SendOp::Send, &[from.sge(0, 64)]);
    assert!(b.completions(1).iter().all(|wc| wc.is_success()));
    b.send(4, SendOp::Send, &[to.sge(0, 64)]);
    a.send(5, SendOp::Read { to: to.addr(), stag: to.key }, &[from.sge(0, 64)]);
    assert!(a.completions(3).iter().all(|wc| wc.is_success()));
    assert!(b.completions(1).iter().all(|wc| wc.is_success()));
    assert_eq!(to.bytes, [7; 64]);
}

#[test]
fn whoever_comes_first_waits_for_the_other() {
    for turn in [false, true] {
        let (a, b) = (Side::new(), Side::new());
        let (first, second) = if turn { (&b, &a) } else { (&a, &b) };
        walk(first, second.qp.num());
        walk(second, first.qp.num());
        talk(&a, &b);
    }
}

#[test]
fn what_was_posted_before_the_peer_was_there_is_delivered() {
    let (a, b) = (Side::new(), Side::new());
    let (from, to) = (a.memory(8, 3, ALL), b.memory(8, 0, ALL));
    walk(&a, b.qp.num());
    a.send(1, SendOp::Send, &[from.sge(0, 8)]);
    b.recv(2, &[to.sge(0, 8)]);
    walk(&b, a.qp.num());
    assert!(b.completions(1)[0].is_success());
    assert!(a.completions(1)[0].is_success());
    assert_eq!(to.bytes, [3; 8]);
}

/// Both ends post at once, before either can know that the other one is Weft.
#[test]
fn immediate_data_goes_both_ways_from_the_first_message_on() {
    for _ in 0..20 {
        let (a, b) = (Side::new(), Side::new());
        let memory = [&a, &b].map(|side| side.memory(8, 3, ALL));
        let solicited = SendFlags::SIGNALED | SendFlags::SOLICITED;
        for (side, peer) in [(&a, &b), (&b, &a)] {
            walk(side, peer.qp.num());
            side.recv(1, &[]);
            side.recv(2, &[]);
            side.recv(3, &[]);
            side.send(4, SendOp::SendImm { imm: 0x0102_0304 }, &[]);
            let op = SendOp::SendImm { imm: 5 };
            side.qp.post_send(&SendWr { wr_id: 5, op, flags: solicited, sges: &[] }).unwrap();
            side.qp.ring();
        }
        for (side, from, to) in [(&a, &memory[0], &memory[1]), (&b, &memory[1], &memory[0])] {
            let op = SendOp::WriteImm { to: to.addr(), stag: to.key, imm: 6 };
            side.send(6, op, &[from.sge(0, 8)]);
        }
        for side in [&a, &b] {
            let done = side.completions(6);
            assert!(done.iter().all(|wc| wc.is_success()), "{done:?}");
            let got = done.iter().filter(|wc| wc.wr_id <= 3).map(|wc| (wc.wr_id, wc.imm_data));
            assert_eq!(got.collect::<Vec<_>>(), [(1, 0x0102_0304), (2, 5), (3, 6)]);
        }
    }
}

#[test]
fn a_queue_pair_is_its_own_peer() {
    let side = Side::new();
    let (from, to) = (side.memory(64, 7, ALL), side.memory(64, 0, ALL));
    let (at, stag) = (to.addr(), to.key);
    for _ in 0..2 {
        walk(&side, side.qp.num());
        side.recv(1, &[to.sge(0, 64)]);
        side.send(2, SendOp::Send, &[from.sge(0, 64)]);
        side.send(3, SendOp::Read { to: from.addr(), stag: from.key }, &[to.sge(0, 64)]);
        side.send(4, SendOp::FetchAdd { to: at, stag, add: 1 }, &[from.sge(0, 8)]);
        assert!(side.completions(4).iter().all(|wc| wc.is_success()));
        assert_eq!((to.bytes[0], to.bytes[63], from.bytes[0]), (8, 7, 7));
        side.send(5, SendOp::Write { to: at, stag: 7 << 20 }, &[from.sge(0, 8)]);
        assert_eq!(side.completions(1)[0].status, WcStatus::RemAccessErr as u32);
        step(&side, QpState::Reset, 0);
    }
}

#[test]
fn a_pair_that_was_reset_is_connected_again() {
    let (a, b) = (Side::new(), Side::new());
    for _ in 0..3 {
        walk(&a, b.qp.num());
        walk(&b, a.qp.num());
        talk(&a, &b);
        step(&a, QpState::Reset, 0);
        step(&b, QpState::Reset, 0);
    }
}

#[test]
fn a_peer_that_ends_fails_the_requests_of_the_other() {
    let (a, b) = (Side::new(), Side::new());
    walk(&a, b.qp.num());
    walk(&b, a.qp.num());
    talk(&a, &b);
    let from = a.memory(8, 3, ALL);
    b.qp.destroy().unwrap();
    a.send(3, SendOp::Send, &[from.sge(0, 8)]);
    assert_eq!(a.completions(1)[0].status, WcStatus::RetryExcErr as u32);
    assert_eq!(a.qp.state(), QpState::Err);
}

/// As with an adapter, whose peer leaves without a word.
#[test]
fn a_peer_that_ends_leaves_a_queue_pair_without_requests_as_it_is() {
    let (a, b) = (Side::new(), Side::new());
    walk(&a, b.qp.num());
    walk(&b, a.qp.num());
    talk(&a, &b);
    a.recv(9, &[]);
    b.qp.destroy().unwrap();
    let start = weft_os::clock::now();
    let poll = || a.cq.poll(&mut [Default::default()]).unwrap();
    while a.qp.capabilities().is_some() {
        assert_eq!(poll(), 0);
        assert!(start.elapsed() < common::DEADLINE, "the end was not seen");
    }
    assert_eq!((poll(), a.qp.state()), (0, QpState::Rts));
    step(&a, QpState::Err, 0);
    assert_eq!(a.completions(1)[0].status, WcStatus::WrFlushErr as u32);
}

#[test]
fn without_a_peer_there_is_no_way_to_be_ready() {
    let side = Side::new();
    step(&side, QpState::Init, 0);
    let bare = QpAttrMask::STATE;
    assert!(side.qp.modify(&attr(QpState::Rtr, 0), bare).is_err());
    assert!(side.qp.modify(&attr(QpState::Rts, 0), bare).is_err());
    let group = AddressVector { dgid: Ipv6Addr::UNSPECIFIED.octets(), ..path() };
    let nowhere = QpAttr { path: group, ..attr(QpState::Rtr, 5) };
    let mask = bare | QpAttrMask::AV | QpAttrMask::DEST_QPN;
    assert!(side.qp.modify(&nowhere, mask).is_err());
    assert_eq!(side.qp.state(), QpState::Init);
}

#[test]
fn a_write_is_complete_when_the_peer_has_it() {
    let (a, b) = (Side::new(), Side::new());
    walk(&a, b.qp.num());
    walk(&b, a.qp.num());
    let to = b.memory(64, 0, ALL);
    for fill in 1..100 {
        let from = a.memory(64, fill, ALL);
        a.send(1, SendOp::Write { to: to.addr(), stag: to.key }, &[from.sge(0, 64)]);
        assert!(a.completions(1)[0].is_success());
        assert_eq!(to.bytes, [fill; 64]);
    }
}

#[test]
fn a_queue_pair_over_tcp_lets_its_peer_do_what_the_program_said() {
    let (a, b) = (Side::new(), Side::new());
    walk(&a, b.qp.num());
    walk(&b, a.qp.num());
    let (from, to) = (a.memory(8, 9, ALL), b.memory(8, 0, ALL));
    let read_only = QpAttr { access: Access::REMOTE_READ, ..b.qp.query() };
    b.qp.modify(&read_only, QpAttrMask::ACCESS_FLAGS).unwrap();
    a.send(1, SendOp::Write { to: to.addr(), stag: to.key }, &[from.sge(0, 8)]);
    assert_eq!(a.completions(1)[0].status, WcStatus::RemAccessErr as u32);
}
