//! Over Shuttle segments arrive in any order, except that the last of a message comes after
//! everything before it. Memory and completions end as if they had come in order.

mod support;

use std::sync::Arc;
use support::{End, LOCAL, OPEN, RECV, at, config, key, of_message, pair, queued, sge};
use support::{tagged, untagged};
use weft_rdmap::{LlpKind, Role, StreamFault};
use weft_verbs::mr::{Backing, RegionSpec};
use weft_verbs::{Access, QpType, RecvWr, SendOp, WcStatus};
use weft_wire::ids::QN_SHARED;
use weft_wire::llp::Placed;
use weft_wire::rdmap::Opcode;
use weft_wire::terminate::TerminateCode as Code;

fn write(last: bool, offset: u64, bytes: &[u8]) -> Vec<u8> {
    tagged(Opcode::Write, last, key(OPEN), at(OPEN, offset), bytes)
}

fn send(msn: u32, mo: u32, last: bool, bytes: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, (msn, mo, last), bytes)
}

#[test]
fn a_late_write_does_not_cover_a_later_one() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    // The third, then the first, then the second of three that overlap.
    ends[1].receive_at(first + 2, &write(false, 10, &[3; 10])).unwrap();
    ends[1].receive_at(first, &write(false, 5, &[1; 20])).unwrap();
    ends[1].deliver(first + 1);
    ends[1].receive_at(first + 1, &write(false, 0, &[2; 12])).unwrap();
    ends[1].deliver(first + 3);
    let expected = [vec![2; 10], vec![3; 10], vec![1; 5], vec![0; 5]].concat();
    assert_eq!(ends[1].bytes_at(OPEN, 0, 30), expected);
    // In order again, the newest counts.
    ends[1].receive_at(first + 3, &write(true, 0, &[4; 30])).unwrap();
    assert_eq!(ends[1].bytes_at(OPEN, 0, 30), [4; 30]);
}

/// A peer chooses where its Writes overlap: what would need too many entries waits for its turn,
/// and is then placed around all of them.
#[test]
fn a_late_write_between_many_later_ones_is_placed_in_its_turn() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    for at in 0..100 {
        ends[1].receive_at(first + 2 + at, &write(false, 2 * at + 1, &[3])).unwrap();
    }
    assert_eq!(ends[1].receive_at(first + 1, &write(false, 0, &[2; 200])), Ok(Placed::Held));
    assert_eq!(ends[1].bytes_at(OPEN, 0, 2), [0, 3]);
    ends[1].receive_at(first, &write(true, 0, &[1; 10])).unwrap();
    ends[1].deliver(first + 1);
    assert_eq!(ends[1].receive(&write(false, 0, &[2; 200])), Ok(Placed::Memory));
    assert_eq!(ends[1].bytes_at(OPEN, 0, 200), [2, 3].repeat(100));
}

/// Two keys may name the same memory, by other addresses.
#[test]
fn a_late_write_does_not_cover_a_later_one_by_another_key() {
    let mut ends = pair(LlpKind::Shuttle);
    let (first, other, iova) = (ends[1].frontier, 0x6600_0000, 0x0077_0000);
    let spec = RegionSpec {
        pd: Arc::clone(&ends[1].pd),
        addr: ends[1].inline(OPEN, 0, 0).addr,
        len: 64,
        iova,
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        backing: Backing::Mapped,
    };
    assert_eq!(ends[1].qp.regions().register(&spec, || other), Ok(other));
    let by_other = tagged(Opcode::Write, false, other, iova + 10, &[2; 10]);
    ends[1].receive_at(first + 1, &by_other).unwrap();
    ends[1].receive_at(first, &write(false, 5, &[1; 20])).unwrap();
    let expected = [vec![1; 5], vec![2; 10], vec![1; 5]].concat();
    assert_eq!(ends[1].bytes_at(OPEN, 5, 20), expected);
}

#[test]
fn a_late_write_that_overlaps_is_checked_as_a_whole() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    ends[1].receive_at(first + 1, &write(false, 1000, &[3; 24])).unwrap();
    // Only what is covered by the later one lies within the region.
    let fault = ends[1].receive_at(first, &write(false, 1010, &[1; 30]));
    assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { .. })));
    assert_eq!(ends[1].bytes_at(OPEN, 1000, 24), [3; 24]);
}

/// What is early is not judged: it may be right when its turn has come.
#[test]
fn a_fault_out_of_order_waits_for_its_turn() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    let before = ends[1].stream.stats();
    let bad = tagged(Opcode::Write, false, 1 << 20, 0, &[1; 4]);
    assert_eq!(ends[1].receive_at(first + 1, &bad), Ok(Placed::Held));
    assert_eq!(ends[1].stream.stats(), before);
    assert!(!ends[1].stream.is_dead());
    ends[1].receive_at(first, &write(true, 0, &[1; 4])).unwrap();
    ends[1].deliver(first + 1);
    assert!(ends[1].receive_at(first + 1, &bad).is_err());
}

#[test]
fn parts_of_messages_find_their_receives_in_any_order() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    for wr_id in 0..3 {
        ends[1].recv(wr_id, &[sge(OPEN, 100 * wr_id, 30)]);
    }
    // The third message before the first, the parts of each backwards.
    for (ahead, segment) in [
        (6, send(3, 10, false, &[6; 10])),
        (5, send(3, 0, false, &[5; 10])),
        (1, send(1, 10, false, &[2; 10])),
        (0, send(1, 0, false, &[1; 10])),
    ] {
        assert_eq!(ends[1].receive_at(first + ahead, &segment), Ok(Placed::Memory));
    }
    assert!(ends[1].done().is_empty());
    ends[1].deliver(first + 2);
    ends[1].receive(&send(1, 20, true, &[3; 5])).unwrap();
    ends[1].receive(&send(2, 0, false, &[])).unwrap();
    ends[1].receive(&send(2, 0, true, &[4; 7])).unwrap();
    ends[1].deliver(first + 7);
    ends[1].receive(&send(3, 20, true, &[])).unwrap();
    let done: Vec<_> = ends[1].done().iter().map(of_message).collect();
    assert_eq!(done, [(0, RECV, 25, 0, 0), (1, RECV, 7, 0, 0), (2, RECV, 20, 0, 0)]);
    let expected = [vec![1; 10], vec![2; 10], vec![3; 5], vec![0; 5]].concat();
    assert_eq!(ends[1].bytes_at(OPEN, 0, 30), expected);
    assert_eq!(ends[1].bytes_at(OPEN, 100, 8), [4, 4, 4, 4, 4, 4, 4, 0]);
    assert_eq!(ends[1].bytes_at(OPEN, 200, 20), [[5; 10], [6; 10]].concat());
    // What is missing within a message shows at its end.
    ends[1].recv(4, &[sge(OPEN, 0, 30)]);
    let fault = ends[1].receive(&send(4, 5, true, &[1; 5]));
    assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { terminate, .. })
        if terminate.code == Code::UntaggedInvalidMo));
}

/// As many bytes as the last segment says, but some of them twice and others not: what the receive
/// held before would pass for a part of the message.
#[test]
fn a_message_with_a_hole_is_refused() {
    let mut ends = pair(LlpKind::Shuttle);
    ends[1].recv(0, &[sge(OPEN, 0, 30)]);
    for segment in [send(1, 0, false, &[1; 10]), send(1, 0, false, &[1; 10])] {
        assert_eq!(ends[1].receive(&segment), Ok(Placed::Memory));
    }
    let fault = ends[1].receive(&send(1, 20, true, &[1; 10]));
    assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { terminate, .. })
        if terminate.code == Code::UntaggedInvalidMo));
    assert!(ends[1].done().iter().all(|wc| wc.status != WcStatus::Success as u32));
}

/// The receives of a shared queue are those of other peers too: one segment takes a few at most.
#[test]
fn a_part_far_ahead_takes_no_shared_receives() {
    let (mut end, shared) = End::sharing_receives(config(LlpKind::Shuttle, Role::Responder));
    for wr_id in 0..64 {
        shared.post_recv(&RecvWr { wr_id, sges: &[sge(OPEN, 0, 8)] }).unwrap();
    }
    let first = end.frontier;
    for (msn, expected) in [(64, Placed::Held), (40, Placed::Held), (33, Placed::Memory)] {
        let part = send(msn, 0, false, &[1; 4]);
        assert_eq!(end.receive_at(first + u64::from(msn), &part), Ok(expected), "{msn}");
    }
    let left = std::iter::from_fn(|| shared.has_recv().then(|| end.qp.take_recv())).count();
    assert_eq!(left, 64 - 33);
}

#[test]
fn a_part_whose_message_has_no_receive_yet_is_held() {
    let mut ends = pair(LlpKind::Shuttle);
    let first = ends[1].frontier;
    ends[1].recv(0, &[sge(OPEN, 0, 8)]);
    let early = send(2, 0, false, &[7; 4]);
    assert_eq!(ends[1].receive_at(first + 1, &early), Ok(Placed::Held));
    ends[1].receive(&send(1, 0, true, &[1; 8])).unwrap();
    // That took the first receive; the number of the last that had one is told.
    assert_eq!(ends[1].stream.credit().0, 1);
    ends[1].recv(1, &[sge(OPEN, 8, 8)]);
    ends[1].receive(&early).unwrap();
    ends[1].receive(&send(2, 4, true, &[8; 4])).unwrap();
    assert_eq!(ends[1].bytes_at(OPEN, 8, 8), [7, 7, 7, 7, 8, 8, 8, 8]);
    assert_eq!(ends[1].outcomes(), [(0, WcStatus::Success), (1, WcStatus::Success)]);
    // The last of a message is of the next message, or it is a fault.
    let fault = ends[1].receive(&send(4, 0, true, &[]));
    assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { terminate, .. })
        if terminate.code == Code::UntaggedInvalidMsn));
}

#[test]
fn answers_arrive_in_any_order_within_their_sinks() {
    let mut ends = pair(LlpKind::Shuttle);
    let op = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
    ends[0].post(op, &[sge(LOCAL, 0, 300)]);
    ends[0].post(op, &[sge(LOCAL, 300, 100), sge(LOCAL, 500, 200)]);
    let bytes: Vec<u8> = (0..300).map(|i| i as u8).collect();
    ends[1].fill(OPEN, 0, &bytes);
    let sent = ends[0].transmit();
    ends[1].receive_all(&sent);
    let answers = ends[1].transmit();
    assert_eq!(answers.len(), 6);
    let first = ends[0].frontier;
    // Those that are not the last of their answer, backwards.
    for at in [4, 3, 1, 0] {
        assert_eq!(ends[0].receive_at(first + at, &answers[at as usize]), Ok(Placed::Memory));
    }
    // The last of the second is not expected before the first is complete.
    assert_eq!(ends[0].receive_at(first + 5, &answers[5]), Ok(Placed::Held));
    assert!(ends[0].done().is_empty());
    ends[0].deliver(first + 2);
    ends[0].receive(&answers[2]).unwrap();
    assert_eq!(ends[0].outcomes(), [(0, WcStatus::Success)]);
    ends[0].deliver(first + 5);
    ends[0].receive(&answers[5]).unwrap();
    assert_eq!(ends[0].outcomes(), [(1, WcStatus::Success)]);
    assert_eq!(ends[0].bytes_at(LOCAL, 0, 300), bytes);
    assert_eq!(ends[0].bytes_at(LOCAL, 300, 100), bytes[..100]);
    assert_eq!(ends[0].bytes_at(LOCAL, 500, 200), bytes[100..]);
}

/// It is offered several times while it is early, and fails its request when its turn has come.
#[test]
fn an_early_answer_without_its_sink_fails_its_request_in_its_turn() {
    let add = SendOp::FetchAdd { to: at(OPEN, 0), stag: key(OPEN), add: 1 };
    for op in [SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) }, add] {
        let mut ends = pair(LlpKind::Shuttle);
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        ends[1].receive_all(&sent);
        let answer = ends[1].transmit().remove(0);
        ends[0].qp.regions().deregister(key(LOCAL)).unwrap();
        let first = ends[0].frontier;
        for _ in 0..2 {
            assert_eq!(ends[0].receive_at(first + 1, &answer), Ok(Placed::Held));
        }
        ends[0].receive(&write(true, 0, &[1])).unwrap();
        let fault = ends[0].receive(&answer);
        assert!(matches!(fault, Err(StreamFault::SinkGone { seq: 0, .. })), "{fault:?}");
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::LocProtErr)]);
    }
}

#[test]
fn an_answer_out_of_its_sink_is_refused() {
    let answer = |last, offset: u64, len: usize| {
        tagged(Opcode::ReadResponse, last, key(LOCAL), at(LOCAL, offset), &vec![1; len])
    };
    let wrong = [
        answer(false, 15, 4),
        answer(false, 16, 9),
        answer(false, 25, 1),
        answer(true, 16, 7),
        answer(true, 17, 8),
        tagged(Opcode::ReadResponse, true, key(OPEN), at(LOCAL, 16), &[1; 8]),
    ];
    for ulpdu in wrong {
        let mut ends = pair(LlpKind::Shuttle);
        let op = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
        ends[0].post(op, &[sge(LOCAL, 16, 8)]);
        ends[0].transmit();
        let before = ends[0].bytes(LOCAL);
        let fault = ends[0].receive(&ulpdu);
        assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { terminate, .. })
            if terminate.code == Code::TaggedBounds));
        assert_eq!(ends[0].bytes(LOCAL), before);
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::WrFlushErr)]);
    }
    // Key and place of nothing say nothing, of anything else they count.
    let op = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
    let empty = tagged(Opcode::ReadResponse, true, 9, at(LOCAL, 0), &[]);
    for (size, fits) in [(0, true), (8, false)] {
        let mut ends = pair(LlpKind::Shuttle);
        ends[0].post(op, &[sge(LOCAL, 0, size)]);
        ends[0].transmit();
        assert_eq!(ends[0].receive(&empty).is_ok(), fits);
    }
    let mut ends = pair(LlpKind::Shuttle);
    ends[0].post(op, &[sge(LOCAL, 16, 8)]);
    ends[0].transmit();
    let before = ends[0].stream.stats().octets_in;
    ends[0].receive_all(&[answer(false, 16, 4), answer(false, 24, 0), answer(true, 20, 4)]);
    assert_eq!(ends[0].stream.stats().octets_in - before, 8);
    assert_eq!(ends[0].outcomes(), [(0, WcStatus::Success)]);
}

/// An unreliable connection drops a message that has no receive, and goes on.
#[test]
fn without_a_receive_an_unreliable_message_is_dropped() {
    let mut end = End::of_kind(config(LlpKind::Shuttle, Role::Responder), QpType::Uc);
    let first = end.frontier;
    // Not before its turn: a receive may come.
    assert_eq!(end.receive_at(first + 1, &send(1, 4, false, &[1; 4])), Ok(Placed::Held));
    end.receive_all(&[send(1, 0, false, &[1; 4]), send(1, 4, true, &[1; 4])]);
    let immediate = untagged(Opcode::Immediate, (2, 0, true), &[0; 8]);
    assert_eq!(end.receive(&immediate), Ok(Placed::Control));
    assert!(end.done().is_empty() && !end.stream.is_dead());
    end.recv(5, &[sge(OPEN, 0, 8)]);
    end.receive_all(&[send(3, 0, true, &[2; 8])]);
    assert_eq!(end.outcomes(), [(5, WcStatus::Success)]);
    assert_eq!(end.bytes_at(OPEN, 0, 9), [2, 2, 2, 2, 2, 2, 2, 2, 0]);
}

#[test]
fn a_reliable_queue_pair_knows_no_shared_queue() {
    let mut ends = pair(LlpKind::Shuttle);
    let fault = ends[1].receive(&queued(Opcode::Send, QN_SHARED | 1, 0, (1, 0, true), &[]));
    assert!(matches!(fault, Err(StreamFault::PeerMisbehaved { terminate, .. })
        if terminate.code == Code::UntaggedInvalidQn));
}
