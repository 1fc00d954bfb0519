//! A peer that never says whether it speaks RFC 7306 does not keep an atomic waiting for ever.

mod common;

use common::{ALL, Side, agreed, settle};
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_verbs::{SendOp, WcStatus};

/// Its first request fails once it is clear that the peer will not say.
fn fails_in_time(side: &mut Side) {
    side.output(usize::MAX);
    assert_eq!(side.statuses(), []);
    while let Some(due) = side.mpa.poll_timeout() {
        assert!(due <= side.now_ns + 2_000_000_000, "it decides within a second or two");
        side.mpa.handle_timeout(due);
        side.output(usize::MAX);
    }
    assert_eq!(side.statuses(), [(1, WcStatus::LocQpOpErr as u32)]);
}

#[test]
fn an_atomic_fails_when_no_answer_comes_and_none_may_be_asked_for() {
    let agreed = Agreed { ord: 1, ..agreed() };
    let mut side = Side::new(MpaRole::Initiator, &agreed, 1460);
    let result = side.memory(8, ALL);
    side.send(1, SendOp::FetchAdd { to: 0, stag: 1, add: 1 }, &[result.sge(0, 8)]);
    fails_in_time(&mut side);
}

/// Nothing behind it would ever leave.
#[test]
fn an_immediate_fails_when_the_responder_may_send_no_read_to_find_out() {
    let agreed = Agreed { ord: 0, rtr: None, ..agreed() };
    let mut side = Side::new(MpaRole::Responder, &agreed, 1460);
    side.send(1, SendOp::SendImm { imm: 7 }, &[]);
    fails_in_time(&mut side);
}

/// It may be stopped, or wait for a processor.
#[test]
fn an_atomic_waits_for_a_peer_that_is_known_for_weft() {
    let agreed = Agreed { ord: 1, ird: 1, ..agreed() };
    let [mut side, mut peer] =
        [MpaRole::Initiator, MpaRole::Responder].map(|role| Side::with(role, &agreed, 1460, true));
    let [result, target] = [&side, &peer].map(|side| side.memory(8, ALL));
    let op = SendOp::FetchAdd { to: target.addr(), stag: target.key, add: 1 };
    side.send(1, op, &[result.sge(0, 8)]);
    let mut early = side.output(usize::MAX);
    while let Some(due) = side.mpa.poll_timeout() {
        side.mpa.handle_timeout(due);
        early.extend(side.output(usize::MAX));
    }
    assert_eq!(side.statuses(), []);
    peer.input(&early);
    settle(&mut side, &mut peer);
    assert_eq!((side.statuses(), target.bytes[0]), (vec![(1, 0)], 1));
}

#[test]
fn a_responder_that_has_waited_for_its_initiator_still_says_that_it_is_weft() {
    let [asks, grants] = [1, 0].map(|ord| Agreed { ord, ird: 1, ..agreed() });
    let mut side = Side::with(MpaRole::Initiator, &asks, 1460, true);
    let mut peer = Side::with(MpaRole::Responder, &grants, 1460, true);
    while let Some(due) = peer.mpa.poll_timeout() {
        peer.mpa.handle_timeout(due);
        assert!(peer.output(usize::MAX).is_empty());
    }
    let [result, target] = [&side, &peer].map(|side| side.memory(8, ALL));
    let op = SendOp::FetchAdd { to: target.addr(), stag: target.key, add: 1 };
    side.send(1, op, &[result.sge(0, 8)]);
    settle(&mut side, &mut peer);
    assert_eq!((side.statuses(), target.bytes[0]), (vec![(1, 0)], 1));
}

#[test]
fn an_initiator_that_hears_nothing_repeats_itself_once_without_effect() {
    let mut side = Side::new(MpaRole::Initiator, &agreed(), 1460);
    assert_eq!(common::ulpdus(&side.output(usize::MAX)).len(), 1);
    let due = side.mpa.poll_timeout().unwrap();
    side.mpa.handle_timeout(due);
    let nudge = common::ulpdus(&side.output(usize::MAX));
    assert_eq!(nudge.len(), 1);
    assert_eq!(nudge[0].len(), 14, "a Write of nothing");
    while let Some(due) = side.mpa.poll_timeout() {
        side.mpa.handle_timeout(due);
    }
    assert_eq!(side.output(usize::MAX), []);
}

#[test]
fn a_frame_that_stays_incomplete_ends_the_stream() {
    let mut side = Side::new(MpaRole::Responder, &agreed(), 1460);
    side.recv(1, &[]);
    side.input(&[0x00, 0x17, 0x41]);
    let due = side.mpa.poll_timeout().unwrap();
    assert_eq!(due, side.now_ns + 60_000_000_000);
    side.mpa.handle_timeout(due - 1_000_000);
    assert_eq!(side.statuses(), []);
    side.mpa.handle_timeout(due);
    assert_eq!(side.statuses(), [(1, WcStatus::WrFlushErr as u32)]);
    assert!(side.mpa.is_dead());
}
