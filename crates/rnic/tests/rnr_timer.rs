//! Messages that come before their receive, for a queue pair that waits for it.
#![allow(dead_code)]

mod common;

use common::*;
use weft_rnic::wire::terminate::TerminateCode;
use weft_verbs::{SendOp, WcStatus};

const RNR_TIMER_NS: u64 = 3_000_000_000;

fn waiting_pair() -> (Side, Side) {
    let (a, mut b) = pair(1460);
    b.mpa.set_rnr_timer(RNR_TIMER_NS);
    (a, b)
}

fn ok(wr_id: u64) -> (u64, u32) {
    (wr_id, WcStatus::Success as u32)
}

#[test]
fn a_message_waits_for_its_receive_and_nothing_overtakes_it() {
    let (mut a, mut b) = waiting_pair();
    let mut from = a.memory(8, ALL);
    let (sink, inbox) = (b.memory(8, ALL), b.memory(8, ALL));
    settle(&mut a, &mut b);
    a.send(1, SendOp::Send, &[from.sge(0, 8)]);
    let write = SendOp::Write { to: sink.addr(), stag: sink.key };
    from.bytes[0] = 77;
    a.send(2, write, &[from.sge(0, 8)]);
    a.send(3, SendOp::Send, &[from.sge(0, 8)]);
    settle(&mut a, &mut b);
    assert!(b.mpa.is_held() && !b.mpa.is_dead());
    assert_eq!((a.statuses(), sink.bytes[0]), (vec![ok(1), ok(2), ok(3)], 0));

    b.recv(7, &[inbox.sge(0, 8)]);
    b.input(&[]);
    assert!(b.mpa.is_held(), "the third message has none yet");
    assert_eq!((b.statuses(), sink.bytes[0]), (vec![ok(7)], 77));
    b.recv(8, &[inbox.sge(0, 8)]);
    b.input(&[]);
    assert!(!b.mpa.is_held());
    assert_eq!((b.statuses(), inbox.bytes[0]), (vec![ok(8)], 77));
    settle(&mut a, &mut b);
    assert!(!a.mpa.is_dead() && !b.mpa.is_dead());
}

#[test]
fn the_rnr_timer_ends_and_begins_anew_with_each_message() {
    let (mut a, mut b) = waiting_pair();
    settle(&mut a, &mut b);
    a.send(1, SendOp::Send, &[]);
    a.send(2, SendOp::Send, &[]);
    settle(&mut a, &mut b);
    let first = b.mpa.poll_timeout().unwrap();
    assert_eq!(first, b.now_ns + RNR_TIMER_NS);
    b.now_ns += RNR_TIMER_NS / 2;
    b.recv(7, &[]);
    b.input(&[]);
    assert_eq!(b.mpa.poll_timeout(), Some(b.now_ns + RNR_TIMER_NS));
    b.now_ns += RNR_TIMER_NS;
    b.input(&[]);
    let terminate = terminate_in(&b.output(usize::MAX)).unwrap();
    assert_eq!(terminate.code, TerminateCode::UntaggedNoBuffer);
    assert!(b.mpa.is_dead() && !b.mpa.is_held());
    assert_eq!(b.statuses(), [ok(7)]);
}

#[test]
fn a_message_waits_forever_where_that_is_set() {
    let (mut a, mut b) = waiting_pair();
    let (from, inbox) = (a.memory(8, ALL), b.memory(8, ALL));
    settle(&mut a, &mut b);
    for wr_id in [1, 2] {
        a.send(wr_id, SendOp::Send, &[from.sge(0, 8)]);
    }
    settle(&mut a, &mut b);
    b.mpa.wait_for_recv_forever();
    assert_eq!((b.mpa.is_held(), b.mpa.poll_timeout()), (true, None));
    b.now_ns += 1000 * RNR_TIMER_NS;
    b.recv(7, &[inbox.sge(0, 8)]);
    b.input(&[]);
    assert_eq!((b.mpa.is_held(), b.mpa.poll_timeout()), (true, None));
    b.now_ns += 1000 * RNR_TIMER_NS;
    b.recv(8, &[inbox.sge(0, 8)]);
    // Half a frame may have to wait for its sender's reader too.
    a.send(3, SendOp::Send, &[from.sge(0, 8)]);
    let frame = a.output(usize::MAX);
    b.input(&frame[..frame.len() / 2]);
    assert_eq!((b.mpa.is_held(), b.mpa.poll_timeout()), (false, None));
    b.input(&frame[frame.len() / 2..]);
    assert_eq!((b.mpa.is_held(), b.statuses()), (true, vec![ok(7), ok(8)]));
    b.mpa.close();
    assert!(b.mpa.is_dead() && !b.mpa.is_held());
}

#[test]
fn immediate_data_waits_with_what_was_written_before_it() {
    let (mut a, mut b) = waiting_pair();
    let (from, sink) = (a.memory(8, ALL), b.memory(8, ALL));
    settle(&mut a, &mut b);
    let imm = 0x0102_0304u32.to_be();
    let op = SendOp::WriteImm { to: sink.addr(), stag: sink.key, imm };
    a.send(1, op, &[from.sge(0, 8)]);
    settle(&mut a, &mut b);
    assert!(b.mpa.is_held());
    b.recv(7, &[]);
    b.input(&[]);
    let got = b.completions();
    assert_eq!((got[0].wr_id, got[0].byte_len, got[0].imm_data), (7, 8, imm));
}

#[test]
fn a_message_behind_one_whose_time_is_over_has_a_time_of_its_own() {
    let (mut a, mut b) = waiting_pair();
    settle(&mut a, &mut b);
    a.send(1, SendOp::Send, &[]);
    a.send(2, SendOp::Send, &[]);
    settle(&mut a, &mut b);
    b.now_ns += RNR_TIMER_NS;
    b.recv(7, &[]);
    b.input(&[]);
    assert_eq!(b.statuses(), [ok(7)]);
    assert!(b.mpa.is_held() && !b.mpa.is_dead());
}
