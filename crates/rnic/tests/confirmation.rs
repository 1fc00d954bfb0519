//! Where it was agreed, Sends and Writes complete when the peer has placed them.

mod common;

use common::{ALL, Side, agreed, settle};
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_verbs::{SendOp, WcStatus};

fn pair() -> (Side, Side) {
    let agreed = Agreed { ord: 2, ird: 2, ..agreed() };
    let (mut a, mut b) = (
        Side::with(MpaRole::Initiator, &agreed, 1460, true),
        Side::with(MpaRole::Responder, &agreed, 1460, true),
    );
    settle(&mut a, &mut b);
    (a, b)
}

#[test]
fn nothing_completes_before_the_peer_has_answered() {
    let (mut a, mut b) = pair();
    let (from, to) = (a.memory(64, ALL), b.memory(64, ALL));
    let write = SendOp::Write { to: to.addr(), stag: to.key };
    for id in 0..40 {
        a.send(id, write, &[from.sge(0, 64)]);
    }
    let request = a.output(usize::MAX);
    assert!(a.statuses().is_empty());
    b.input(&request);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), (0..40).map(|id| (id, 0)).collect::<Vec<_>>());
}

#[test]
fn reads_in_between_keep_their_turn_and_their_depth() {
    let (mut a, mut b) = pair();
    let (from, to) = (a.memory(64, ALL), b.memory(64, ALL));
    let (at, stag) = (to.addr(), to.key);
    for id in 0..30 {
        let op = if id % 3 == 0 {
            SendOp::Write { to: at, stag }
        } else {
            SendOp::Read { to: at, stag }
        };
        a.send(id, op, &[from.sge(0, 8)]);
    }
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), (0..30).map(|id| (id, 0)).collect::<Vec<_>>());
}

#[test]
fn a_refusal_is_the_requests_own_status() {
    let (mut a, mut b) = pair();
    let from = a.memory(64, ALL);
    a.send(1, SendOp::Write { to: 0, stag: 77 << 16 }, &[from.sge(0, 8)]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, WcStatus::RemAccessErr as u32)]);
}

#[test]
fn draining_ends_with_the_confirmation() {
    let (mut a, mut b) = pair();
    b.recv(1, &[]);
    a.send(2, SendOp::Send, &[]);
    let request = a.output(usize::MAX);
    a.qp.drain(true);
    a.send(3, SendOp::Send, &[]);
    assert!(a.events().is_empty());
    b.input(&request);
    settle(&mut a, &mut b);
    assert_eq!((a.events().len(), a.statuses()), (1, vec![(2, 0)]));
}

#[test]
fn a_reply_comes_behind_the_word_that_completes_what_it_answers() {
    let (mut a, mut b) = pair();
    let (from, to) = (a.memory(4000, ALL), b.memory(4000, ALL));
    let inbox = a.memory(64, ALL);
    a.recv(9, &[inbox.sge(0, 64)]);
    for id in 0..4 {
        b.recv(id, &[to.sge(0, 4000)]);
        a.send(id, SendOp::Send, &[from.sge(0, 4000)]);
    }
    // The Read that is to confirm all of them follows the last one, which is still on its way.
    let request = a.output(usize::MAX);
    let first = request.len() / 3;
    b.input(&request[..first]);
    assert_eq!(b.statuses(), [(0, 0)]);
    b.send(7, SendOp::Send, &[to.sge(0, 8)]);
    let reply = b.output(usize::MAX);
    a.input(&reply);
    assert_eq!(a.statuses(), [(0, 0), (9, 0)]);
    b.input(&request[first..]);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, 0), (2, 0), (3, 0)]);
    assert_eq!(b.statuses(), [(1, 0), (2, 0), (3, 0), (7, 0)]);
}

#[test]
fn writes_with_immediate_data_are_counted_as_both_ends_count_them() {
    let (mut a, mut b) = pair();
    let (from, to) = (a.memory(64, ALL), b.memory(64, ALL));
    let inbox = a.memory(64, ALL);
    for round in 0..5 {
        b.recv(round, &[]);
        a.recv(100 + round, &[inbox.sge(0, 64)]);
        let write = SendOp::Write { to: to.addr(), stag: to.key };
        a.send(2 * round, write, &[from.sge(0, 64)]);
        let imm = SendOp::WriteImm { to: to.addr(), stag: to.key, imm: 1 };
        a.send(2 * round + 1, imm, &[from.sge(0, 64)]);
        // All but the Read that is to confirm them, which is the last frame.
        let request = a.output(usize::MAX);
        b.input(&request[..request.len() - 1]);
        b.send(round, SendOp::Send, &[to.sge(0, 8)]);
        a.input(&b.output(usize::MAX));
        let done = [(2 * round, 0), (2 * round + 1, 0), (100 + round, 0)];
        assert_eq!(a.statuses(), done);
        b.input(&request[request.len() - 1..]);
        settle(&mut a, &mut b);
    }
}

#[test]
fn what_the_peer_sends_of_itself_completes_nothing_that_it_refuses() {
    let (mut a, mut b) = pair();
    let (from, inbox) = (a.memory(64, ALL), a.memory(64, ALL));
    a.recv(9, &[inbox.sge(0, 64)]);
    a.send(1, SendOp::Write { to: 0, stag: 77 << 16 }, &[from.sge(0, 8)]);
    let refused = a.output(usize::MAX);
    b.send(7, SendOp::Send, &[]);
    a.input(&b.output(usize::MAX));
    assert_eq!(a.statuses(), [(9, 0)]);
    b.input(&refused);
    settle(&mut a, &mut b);
    assert_eq!(a.statuses(), [(1, WcStatus::RemAccessErr as u32)]);
}
