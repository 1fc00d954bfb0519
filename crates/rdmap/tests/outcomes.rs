//! What a request ends with when it cannot be carried out, here or at the peer.

mod support;

use support::{End, untagged};
use support::{
    FOREIGN, LOCAL, OPEN, READABLE, REGION_BYTES, at, config, exchange, key, pair, pair_of, sge,
};
use weft_rdmap::{LlpKind, RdmapStream, Role, StreamConfig, StreamFault, TxPort};
use weft_verbs::mr::Bind;
use weft_verbs::{Access, AsyncKind, SendFlags, SendOp, WcStatus};
use weft_wire::ddp::TAGGED_LEN;
use weft_wire::ids::Msn;
use weft_wire::llp::{Placed, UlpduSource};
use weft_wire::rdmap::Opcode;
use weft_wire::terminate::{HeaderCopy, Terminate, TerminateCode as Code};

const WRITE: SendOp = SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) };
const READ: SendOp = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
const ADD: SendOp = SendOp::FetchAdd { to: at(OPEN, 0), stag: key(OPEN), add: 1 };

use WcStatus::{LocProtErr, Success, WrFlushErr};

#[test]
fn a_request_with_bad_memory_fails_alone_and_ends_the_stream() {
    let cases = [
        (WRITE, sge(FOREIGN, 0, 8)),
        (WRITE, sge(OPEN, 1020, 8)),
        (SendOp::Send, sge(FOREIGN, 0, 8)),
        (READ, sge(READABLE, 0, 8)),
        (READ, sge(FOREIGN, 0, 8)),
        (ADD, sge(READABLE, 0, 8)),
    ];
    for (op, bad) in cases {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        ends[0].post(op, &[bad]);
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        assert_eq!(ends[0].outcomes(), [(0, Success), (1, LocProtErr), (2, WrFlushErr)]);
        // The first one and the Terminate, which says no more than that this side failed.
        assert_eq!(sent.len(), 2, "{op:?}");
        ends[1].receive(&sent[0]).unwrap();
        let told = ends[1].receive(&sent[1]);
        assert_eq!(told, Err(StreamFault::Terminated(Terminate::bare(Code::RdmapCatastrophic))));
        assert!(ends[0].raised().is_empty());
    }
    // Memory that is only read may be of any kind of its domain.
    let mut ends = pair(LlpKind::Mpa);
    ends[0].post(WRITE, &[sge(READABLE, 0, 8)]);
    exchange(&mut ends);
    assert_eq!(ends[0].outcomes(), [(0, Success)]);
}

/// Else those before it would be flushed, although the peer has them.
#[test]
fn a_request_that_cannot_be_sent_fails_once_all_before_it_are_complete() {
    let window = SendOp::LocalInv { stag: 1 << 20 };
    for (op, sges) in [(WRITE, &[sge(FOREIGN, 0, 8)][..]), (window, &[])] {
        for (kind, confirm) in [(LlpKind::Shuttle, false), (LlpKind::Mpa, true)] {
            let mut ends = pair_of(|role| StreamConfig { confirm, ..config(kind, role) });
            ends[0].holds_acks = true;
            ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
            ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
            ends[0].post(op, sges);
            ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
            let sent = ends[0].transmit();
            assert_eq!(ends[0].outcomes(), [], "{op:?} {kind:?}");
            ends[1].receive_all(&sent);
            let answers = ends[1].transmit();
            ends[0].ack();
            ends[0].receive_all(&answers);
            ends[0].transmit();
            let outcomes = [(0, Success), (1, Success), (2, LocProtErr), (3, WrFlushErr)];
            assert_eq!(ends[0].outcomes(), outcomes, "{op:?} {kind:?}");
        }
    }
}

#[test]
fn local_requests_that_fail_say_why() {
    let bind = Bind {
        window: 1 << 20,
        key: 1 << 20,
        region: key(OPEN),
        addr: at(OPEN, 0),
        len: 8,
        access: Access::REMOTE_READ,
    };
    let cases = [
        (SendOp::LocalInv { stag: 1 << 20 }, LocProtErr),
        (SendOp::BindMw(bind), WcStatus::MwBindErr),
    ];
    for (op, status) in cases {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].post(op, &[]);
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        assert_eq!(ends[0].outcomes(), [(0, status), (1, WrFlushErr)]);
        assert_eq!(sent.len(), 1, "a Terminate");
    }
}

/// A Terminate that quotes a segment is about the request that sent it; those before are complete.
#[test]
fn a_terminate_fails_the_request_that_it_quotes() {
    let cases: [(SendOp, Code, WcStatus); 6] = [
        (WRITE, Code::TaggedBounds, WcStatus::RemAccessErr),
        (SendOp::Send, Code::UntaggedNoBuffer, WcStatus::RemInvReqErr),
        (SendOp::SendInv { stag: 9 }, Code::RdmapCannotInvalidate, WcStatus::RemOpErr),
        (READ, Code::RdmapAccess, WcStatus::RemAccessErr),
        (ADD, Code::RdmapNotAssociated, WcStatus::RemAccessErr),
        (SendOp::WriteImm { to: at(OPEN, 0), stag: 9, imm: 1 }, Code::LlpCrc, WcStatus::RemOpErr),
    ];
    for (op, code, status) in cases {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        let other = SendOp::Write { to: at(OPEN, 500), stag: key(OPEN) };
        ends[0].post(other, &[sge(LOCAL, 0, 8)]);
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        ends[0].post(other, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        let (ddp, segment_len) = (HeaderCopy::of(&sent[1]), Some(sent[1].len() as u16));
        let terminate = Terminate { ddp, segment_len, ..Terminate::bare(code) };
        assert_eq!(
            terminated(&mut ends[0], &terminate),
            [(0, WrFlushErr), (1, status), (2, WrFlushErr)]
        );
        assert_eq!(ends[0].raised(), [AsyncKind::QpFatal]);
    }
}

/// Several requests go by one key or to one queue: the offset or the message number of the segment
/// tells which of them it is of.
#[test]
fn a_terminate_tells_requests_of_one_kind_apart() {
    let write = |offset| SendOp::Write { to: at(OPEN, offset), stag: key(OPEN) };
    let kinds = [[0, 100, 200].map(write), [SendOp::Send; 3], [READ; 3]];
    let all = kinds.into_iter().flat_map(|kind| [0, 1, 2].map(|at| (kind, at)));
    for ((kind, quoted), counted) in all.flat_map(|case| [(case, 0), (case, TAGGED_LEN)]) {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        for op in kind {
            ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        }
        let sent = ends[0].transmit();
        let (ddp, code) = (HeaderCopy::of(&sent[quoted]), Code::TaggedBounds);
        // Linux `siw` does not count the header.
        let segment_len = Some((sent[quoted].len() - counted) as u16);
        let terminate = Terminate { ddp, segment_len, ..Terminate::bare(code) };
        let mut expected = [0, 1, 2].map(|wr_id| (wr_id, WrFlushErr));
        expected[quoted].1 = WcStatus::RemAccessErr;
        assert_eq!(terminated(&mut ends[0], &terminate), expected);
    }
}

/// A Terminate arrives; the outcomes of what was posted.
fn terminated(end: &mut End, terminate: &Terminate) -> Vec<(u64, WcStatus)> {
    let mut body = Vec::new();
    terminate.encode(&mut body);
    let ulpdu = untagged(Opcode::Terminate, (1, 0, true), &body);
    assert!(matches!(end.receive(&ulpdu), Err(StreamFault::Terminated(_))));
    end.outcomes()
}

#[test]
fn a_terminate_without_a_quotation_is_about_the_oldest() {
    let codes = [
        (Code::RdmapInvalidStag, WcStatus::RemAccessErr),
        (Code::RdmapBounds, WcStatus::RemAccessErr),
        (Code::RdmapToWrap, WcStatus::RemAccessErr),
        (Code::TaggedInvalidStag, WcStatus::RemAccessErr),
        (Code::TaggedNotAssociated, WcStatus::RemAccessErr),
        (Code::TaggedToWrap, WcStatus::RemAccessErr),
        (Code::UntaggedInvalidQn, WcStatus::RemInvReqErr),
        (Code::UntaggedInvalidMsn, WcStatus::RemInvReqErr),
        (Code::UntaggedInvalidMo, WcStatus::RemInvReqErr),
        (Code::UntaggedTooLong, WcStatus::RemInvReqErr),
        (Code::RdmapUnexpectedOpcode, WcStatus::RemInvReqErr),
        (Code::RdmapCatastrophic, WcStatus::RemOpErr),
    ];
    for (code, status) in codes {
        // A Read that waits for its answer rather than a Write that waits for nothing but TCP.
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        ends[0].post(READ, &[sge(LOCAL, 0, 8)]);
        ends[0].transmit();
        let found = terminated(&mut ends[0], &Terminate::bare(code));
        assert_eq!(found, [(0, WrFlushErr), (1, status)], "{code:?}");
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        ends[0].transmit();
        let found = terminated(&mut ends[0], &Terminate::bare(code));
        assert_eq!(found, [(0, status), (1, WrFlushErr)], "{code:?}");
        // With nothing under way nothing fails.
        let mut ends = pair(LlpKind::Mpa);
        assert_eq!(terminated(&mut ends[0], &Terminate::bare(code)), []);
    }
    // A misaligned Atomic is the application's mistake, whatever the code.
    for (to, status) in [(4, WcStatus::RemInvReqErr), (8, WcStatus::RemOpErr)] {
        let mut ends = pair(LlpKind::Mpa);
        let op = SendOp::CmpSwap { to: at(OPEN, to), stag: key(OPEN), compare: 0, swap: 1 };
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        ends[0].transmit();
        let bare = Terminate::bare(Code::RdmapStreamCatastrophic);
        assert_eq!(terminated(&mut ends[0], &bare), [(0, status)]);
    }
}

#[test]
fn the_code_of_a_terminate_is_in_the_completion() {
    let mut ends = pair(LlpKind::Mpa);
    ends[0].holds_acks = true;
    ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
    ends[0].transmit();
    let mut body = Vec::new();
    Terminate::bare(Code::TaggedBounds).encode(&mut body);
    ends[0].receive(&untagged(Opcode::Terminate, (1, 0, true), &body)).unwrap_err();
    assert_eq!(ends[0].done()[0].vendor_err, u32::from(Code::TaggedBounds.to_word()));
}

#[test]
fn other_ends_of_a_stream_fail_what_they_are_about() {
    let after = |fault: StreamFault| {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        ends[0].recv(9, &[]);
        for _ in 0..3 {
            ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
        }
        ends[0].transmit();
        let End { stream, qp, .. } = &mut ends[0];
        stream.fail(qp, fault);
        (ends[0].outcomes(), ends[0].raised(), ends[0].transmit().len())
    };
    let all = |statuses: [WcStatus; 3]| {
        let sends = (0..).zip(statuses);
        sends.chain([(9, WrFlushErr)]).collect::<Vec<(u64, WcStatus)>>()
    };
    let flushed = all([WrFlushErr; 3]);
    assert_eq!(after(StreamFault::Closed), (flushed.clone(), vec![], 0));
    let gone = all([WcStatus::RetryExcErr, WrFlushErr, WrFlushErr]);
    assert_eq!(after(StreamFault::Unreachable), (gone, vec![], 0));
    let unready = all([WrFlushErr, WcStatus::RnrRetryExcErr, WrFlushErr]);
    assert_eq!(after(StreamFault::NoReceive { seq: 1 }), (unready, vec![], 0));
    let fatal = vec![AsyncKind::QpFatal];
    assert_eq!(after(StreamFault::Lower(None)), (flushed.clone(), fatal.clone(), 0));
    assert_eq!(after(StreamFault::Lower(Some(Code::LlpCrc))), (flushed, fatal, 1));
}

#[test]
fn the_first_fault_counts() {
    let mut ends = pair(LlpKind::Mpa);
    ends[0].stream.set_fault(StreamFault::Closed);
    ends[0].stream.set_fault(StreamFault::Unreachable);
    let End { stream, qp, .. } = &mut ends[0];
    assert_eq!(stream.take_fault(qp), Some(StreamFault::Closed));
    assert_eq!(stream.take_fault(qp), None);
    stream.fail(qp, StreamFault::Lower(Some(Code::LlpCrc)));
    stream.fail(qp, StreamFault::Lower(Some(Code::LlpFraming)));
    assert_eq!(ends[0].stream.reason(), Some(Code::LlpCrc));
    assert_eq!(ends[0].raised(), [AsyncKind::QpFatal]);
}

/// The Terminate says where the refused segment was to begin, which may be the end of a Write
/// before it, or within it.
#[test]
fn of_writes_that_touch_the_one_that_was_refused_fails() {
    const END: u64 = REGION_BYTES as u64;
    let adjacent = |n: u64| [(END - 2 * n, n), (END - n, n), (END, n)];
    let overlapping = [(END - 100, 100), (END - 100, 0), (END - 50, 64)];
    let lists = [adjacent(1), adjacent(64), adjacent(200), adjacent(228), overlapping];
    for writes in lists {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].holds_acks = true;
        for (offset, len) in writes {
            let write = SendOp::Write { to: at(OPEN, offset), stag: key(OPEN) };
            ends[0].post(write, &[sge(LOCAL, 0, len as u32)]);
        }
        let sent = ends[0].transmit();
        assert!(sent.iter().any(|ulpdu| ends[1].receive(ulpdu).is_err()));
        let told = ends[1].transmit().pop().unwrap();
        ends[0].receive(&told).unwrap_err();
        let outcomes = [(0, WrFlushErr), (1, WrFlushErr), (2, WcStatus::RemAccessErr)];
        assert_eq!(ends[0].outcomes(), outcomes, "{writes:?}");
    }
}

/// The peer may read a region only as long as there is one.
#[test]
fn a_source_that_is_gone_before_its_answer_ends_the_stream() {
    let read = SendOp::Read { to: at(READABLE, 0), stag: key(READABLE) };
    for (op, region) in [(read, READABLE), (ADD, OPEN)] {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        ends[1].receive(&sent[0]).unwrap();
        ends[1].qp.regions().deregister(key(region)).unwrap();
        let sent = ends[1].transmit();
        assert_eq!(ends[1].raised(), [AsyncKind::QpAccessErr]);
        let Err(StreamFault::Terminated(told)) = ends[0].receive(&sent[0]) else {
            panic!("no end")
        };
        assert_eq!(told.code, Code::RdmapInvalidStag);
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::RemAccessErr)]);
    }
}

#[test]
fn a_sink_that_is_gone_before_the_answer_fails_its_request() {
    for op in [READ, ADD] {
        let mut ends = pair(LlpKind::Mpa);
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        ends[0].post(READ, &[sge(OPEN, 0, 8)]);
        let sent = ends[0].transmit();
        ends[1].receive_all(&sent);
        let answers = ends[1].transmit();
        ends[0].qp.regions().deregister(key(LOCAL)).unwrap();
        assert!(matches!(ends[0].receive(&answers[0]), Err(StreamFault::SinkGone { seq: 0, .. })));
        assert_eq!(ends[0].outcomes(), [(0, LocProtErr), (1, WrFlushErr)]);
        assert!(ends[0].raised().is_empty());
    }
}

#[test]
fn memory_that_goes_while_a_message_is_cut_fails_its_request() {
    let mut ends = pair(LlpKind::Mpa);
    ends[0].post(WRITE, &[sge(LOCAL, 0, 300)]);
    let regions = std::sync::Arc::clone(ends[0].qp.regions());
    let End { stream, qp, .. } = &mut ends[0];
    let reader = regions.reader();
    let mut port = TxPort::new(stream, qp, qp.sq(), Some(&reader));
    assert!(port.next(128).is_some());
    drop(port);
    drop(reader);
    regions.deregister(key(LOCAL)).unwrap();
    assert_eq!(ends[0].transmit().len(), 1, "a Terminate and nothing before it");
    assert_eq!(ends[0].outcomes(), [(0, LocProtErr)]);
}

/// A retransmission gathers again what may be gone by then.
#[test]
fn a_segment_that_cannot_be_gathered_again_ends_the_stream() {
    for op in [WRITE, SendOp::Send] {
        let mut ends = pair(LlpKind::Shuttle);
        ends[0].holds_acks = true;
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        ends[0].transmit();
        let id = ends[0].unacked[0];
        let regions = std::sync::Arc::clone(ends[0].qp.regions());
        regions.deregister(key(LOCAL)).unwrap();
        let End { stream, qp, .. } = &mut ends[0];
        let reader = regions.reader();
        let port = TxPort::new(stream, qp, qp.sq(), Some(&reader));
        assert!(!port.may_change(id), "the application leaves it alone until it is complete");
        port.gather(&id, &mut weft_wire::llp::Gather::new());
        let fault = port.into_fault();
        assert_eq!(fault, Some(StreamFault::Request { seq: 0, status: LocProtErr }));
    }
    let mut ends = pair(LlpKind::Shuttle);
    ends[1].holds_acks = true;
    ends[0].post(READ, &[sge(LOCAL, 0, 8)]);
    let sent = ends[0].transmit();
    ends[1].receive_all(&sent);
    ends[1].transmit();
    let id = ends[1].unacked[0];
    let regions = std::sync::Arc::clone(ends[1].qp.regions());
    regions.deregister(key(OPEN)).unwrap();
    let End { stream, qp, .. } = &mut ends[1];
    let reader = regions.reader();
    let port = TxPort::new(stream, qp, qp.sq(), Some(&reader));
    assert!(port.may_change(id), "what the peer reads may change meanwhile");
    port.gather(&id, &mut weft_wire::llp::Gather::new());
    assert!(matches!(port.into_fault(), Some(StreamFault::SourceGone(_))));
}

#[test]
fn a_peer_without_a_receive_holds_back_what_needs_one() {
    let mut ends = pair(LlpKind::Shuttle);
    ends[0].holds_acks = true;
    for op in [SendOp::Send, SendOp::Send] {
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
    }
    ends[0].transmit();
    let not_ready = |end: &mut End, credit| {
        let End { stream, qp, .. } = end;
        TxPort::new(stream, qp, qp.sq(), None).receiver_not_ready(Msn(credit), 640);
        stream.rnr().map(|rnr| (rnr.seq, rnr.wait_us))
    };
    assert_eq!(not_ready(&mut ends[0], 7), None, "no such message");
    assert_eq!(not_ready(&mut ends[0], 1), Some((1, 640)));
    // It waits already: what comes again changes nothing.
    let End { stream, qp, .. } = &mut ends[0];
    TxPort::new(stream, qp, qp.sq(), None).receiver_not_ready(Msn(1), 9);
    assert_eq!(ends[0].stream.rnr().map(|rnr| rnr.wait_us), Some(640));
    ends[0].post(SendOp::Send, &[]);
    assert!(ends[0].transmit().is_empty());
    // It has one now.
    ends[0].ack();
    assert_eq!(ends[0].stream.rnr(), None);
    assert_eq!(ends[0].outcomes().len(), 2);
    assert_eq!(ends[0].transmit().len(), 1);
    // What was said of an earlier one may come late.
    assert_eq!(not_ready(&mut ends[0], 2), Some((2, 640)));
    assert_eq!(not_ready(&mut ends[0], 1), Some((2, 640)));
    // What needs none goes on.
    ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
    assert_eq!(ends[0].transmit().len(), 1);
}

/// The peer has a part of it, and the rest is not even out.
#[test]
fn a_request_of_which_a_part_is_out_is_not_complete() {
    let mut ends = pair(LlpKind::Mpa);
    ends[0].post(WRITE, &[sge(LOCAL, 0, 300)]);
    let regions = std::sync::Arc::clone(ends[0].qp.regions());
    let reader = regions.reader();
    let End { stream, qp, .. } = &mut ends[0];
    let mut port = TxPort::new(stream, qp, qp.sq(), Some(&reader));
    let first = port.next(128).unwrap();
    port.acked(first);
    drop(port);
    drop(reader);
    assert_eq!(ends[0].outcomes(), []);
    ends[0].transmit();
    assert_eq!(ends[0].outcomes(), [(0, Success)]);
}

#[test]
fn the_last_segment_acknowledged_completes_a_request() {
    let mut ends = pair(LlpKind::Shuttle);
    ends[0].holds_acks = true;
    ends[0].post(WRITE, &[sge(LOCAL, 0, 300)]);
    ends[0].post_with(WRITE, SendFlags::SIGNALED, &[sge(LOCAL, 0, 8)]);
    ends[0].transmit();
    let ids = std::mem::take(&mut ends[0].unacked);
    assert_eq!(ids.len(), 4);
    let mut seen = Vec::new();
    for at in [3, 0, 1, 2] {
        ends[0].unacked.push(ids[at]);
        ends[0].ack();
        seen.push(ends[0].outcomes().len());
    }
    assert_eq!(seen, [0, 0, 0, 2]);
}

#[test]
fn streams_say_what_they_are() {
    for (lower, known) in [(LlpKind::Mpa, false), (LlpKind::Shuttle, true)] {
        let stream = RdmapStream::new(config(lower, Role::Initiator));
        assert_eq!((stream.heard(), stream.spoken()), (known, false));
        assert!(!stream.is_dead() && !stream.is_finished());
        assert_eq!((stream.reason(), stream.rnr(), stream.credit().0), (None, None, 0));
    }
    // Without depth there is nothing to confirm with, so nothing waits for it.
    let mut ends =
        pair_of(|role| StreamConfig { confirm: true, ord: 0, ..config(LlpKind::Shuttle, role) });
    ends[0].post(WRITE, &[sge(LOCAL, 0, 8)]);
    let sent = ends[0].transmit();
    assert_eq!((sent.len(), ends[0].outcomes()), (1, vec![(0, Success)]));
    assert_eq!(ends[1].receive(&sent[0]), Ok(Placed::Memory));
}
