//! What each end refuses, and what it makes of a refusal: the code and the quotation for the peer,
//! the completions and the event for the application. What is refused leaves no trace in memory.

mod support;

use support::{
    End, FOREIGN, LOCAL, OPEN, READABLE, at, config, key, pair, queued, sge, tagged, untagged,
};
use weft_rdmap::{LlpKind, Role, RxPort, StreamFault};
use weft_verbs::{AsyncKind, QpState, QpType, SendOp, WcStatus};
use weft_wire::ids::{QN_SHARED, STag};
use weft_wire::llp::{Placed, UlpduSink};
use weft_wire::rdmap::{AtomicOp, AtomicRequest, AtomicResponse, Opcode, ReadRequest};
use weft_wire::terminate::{HeaderCopy, Terminate, TerminateCode as Code, TerminatePhase};

const ONE: (u32, u32, bool) = (1, 0, true);

fn read(msn: u32, stag: u32, src_to: u64, size: u32) -> Vec<u8> {
    let (src_stag, sink_stag) = (STag(stag), STag(5));
    let request = ReadRequest { sink_stag, sink_to: 0, size, src_stag, src_to };
    untagged(Opcode::ReadRequest, (msn, 0, true), &request.to_bytes())
}

fn atomic_of(op: Result<AtomicOp, u8>, stag: u32, to: u64) -> Vec<u8> {
    let (data, mask, compare, compare_mask) = (1, 0, 0, u64::MAX);
    let stag = STag(stag);
    let request = AtomicRequest { op, id: 1, stag, to, data, mask, compare, compare_mask };
    untagged(Opcode::AtomicRequest, ONE, &request.to_bytes())
}

fn atomic(stag: u32, to: u64) -> Vec<u8> {
    atomic_of(Ok(AtomicOp::FetchAdd), stag, to)
}

fn write(stag: u32, to: u64, len: usize) -> Vec<u8> {
    tagged(Opcode::Write, true, stag, to, &vec![9; len])
}

/// The Terminate that tells of it, if it was refused as the peer's fault.
fn refused(end: &mut End, ulpdu: &[u8]) -> Terminate {
    let before = [OPEN, LOCAL, READABLE, FOREIGN].map(|region| end.bytes(region));
    let Err(StreamFault::PeerMisbehaved { terminate, .. }) = end.receive(ulpdu) else {
        panic!("not refused")
    };
    assert_eq!([OPEN, LOCAL, READABLE, FOREIGN].map(|region| end.bytes(region)), before);
    assert!(end.stream.is_dead());
    assert_eq!(end.qp.state(), QpState::Err);
    assert_eq!(end.stream.reason(), Some(terminate.code));
    // Nothing that comes later does anything.
    let late = write(key(OPEN), at(OPEN, 0), 8);
    assert_eq!(end.receive(&late), Ok(Placed::Dropped));
    assert_eq!([OPEN, LOCAL, READABLE, FOREIGN].map(|region| end.bytes(region)), before);
    terminate
}

/// Refused segments that concern memory, with the codes and events that they lead to.
fn protected() -> Vec<(Vec<u8>, Code, AsyncKind)> {
    use AsyncKind::{QpAccessErr as Access, QpReqErr as Request};
    let (end, wrap) = (at(OPEN, 1020), u64::MAX - 3);
    vec![
        (write(1 << 20, at(OPEN, 0), 8), Code::TaggedInvalidStag, Access),
        (write(key(FOREIGN), at(FOREIGN, 0), 8), Code::TaggedNotAssociated, Access),
        (write(key(OPEN), end, 8), Code::TaggedBounds, Access),
        (write(key(OPEN), wrap, 8), Code::TaggedToWrap, Access),
        (write(key(READABLE), at(READABLE, 0), 8), Code::RdmapAccess, Access),
        (write(key(LOCAL), at(LOCAL, 0), 8), Code::RdmapAccess, Access),
        (read(1, 1 << 20, 0, 8), Code::RdmapInvalidStag, Access),
        (read(1, key(FOREIGN), at(FOREIGN, 0), 8), Code::RdmapNotAssociated, Access),
        (read(1, key(OPEN), end, 8), Code::RdmapBounds, Access),
        (read(1, key(OPEN), wrap, 8), Code::RdmapToWrap, Access),
        (read(1, key(LOCAL), at(LOCAL, 0), 1), Code::RdmapAccess, Access),
        (atomic(1 << 20, 0), Code::RdmapInvalidStag, Access),
        (atomic(key(FOREIGN), at(FOREIGN, 0)), Code::RdmapNotAssociated, Access),
        (atomic(key(OPEN), at(OPEN, 1024)), Code::RdmapBounds, Access),
        (atomic(key(READABLE), at(READABLE, 0)), Code::RdmapAccess, Access),
        (atomic(key(OPEN), at(OPEN, 4)), Code::RdmapStreamCatastrophic, Request),
        (atomic_of(Err(7), key(OPEN), at(OPEN, 0)), Code::RdmapUnexpectedOpcode, Request),
    ]
}

/// Refused segments that break the rules of the protocol.
fn malformed() -> Vec<(Vec<u8>, Code)> {
    let short = |opcode| untagged(opcode, ONE, &[0; 7]);
    let answer = AtomicResponse { id: 1, value: 0 }.to_bytes();
    let shared = QN_SHARED | 5;
    vec![
        (read(2, key(OPEN), at(OPEN, 0), 8), Code::UntaggedInvalidMsn),
        (untagged(Opcode::ReadRequest, (1, 4, true), &[0; 28]), Code::UntaggedInvalidMo),
        (untagged(Opcode::ReadRequest, (1, 0, false), &[0; 28]), Code::UntaggedInvalidMo),
        (short(Opcode::ReadRequest), Code::LlpFraming),
        (short(Opcode::AtomicRequest), Code::LlpFraming),
        (short(Opcode::AtomicResponse), Code::LlpFraming),
        (short(Opcode::Immediate), Code::LlpFraming),
        (untagged(Opcode::AtomicResponse, ONE, &answer), Code::RdmapUnexpectedOpcode),
        (untagged(Opcode::AtomicResponse, (1, 1, true), &answer), Code::UntaggedInvalidMo),
        (untagged(Opcode::AtomicRequest, (3, 0, true), &[0; 52]), Code::UntaggedInvalidMsn),
        (untagged(Opcode::Send, (2, 0, true), &[1]), Code::UntaggedInvalidMsn),
        (untagged(Opcode::Send, (1, 1, true), &[1]), Code::UntaggedInvalidMo),
        (untagged(Opcode::Immediate, (1, 1, true), &[0; 8]), Code::UntaggedInvalidMo),
        (untagged(Opcode::Immediate, (1, 0, false), &[0; 8]), Code::UntaggedInvalidMo),
        (queued(Opcode::Send, shared, 0, ONE, &[1]), Code::UntaggedInvalidQn),
        (queued(Opcode::Immediate, shared, 0, ONE, &[0; 8]), Code::UntaggedInvalidQn),
    ]
}

#[test]
fn what_is_refused_is_told_with_its_headers() {
    let segments = protected().into_iter().map(|(ulpdu, code, event)| (ulpdu, code, Some(event)));
    for (ulpdu, code, event) in
        segments.chain(malformed().into_iter().map(|(ulpdu, code)| (ulpdu, code, None)))
    {
        let mut ends = pair(LlpKind::Mpa);
        ends[1].recv(5, &[sge(OPEN, 0, 16)]);
        let write = ends[1].post(SendOp::Write { to: 0, stag: 1 }, &[sge(LOCAL, 0, 8)]);
        let terminate = refused(&mut ends[1], &ulpdu);
        assert_eq!(terminate.code, code, "{ulpdu:?}");
        if let Some(event) = event {
            assert_eq!(ends[1].raised(), [event], "{code:?}");
        } else {
            assert_eq!(ends[1].raised().len(), 1, "{code:?}");
        }
        let flushed = [(write, WcStatus::WrFlushErr), (5, WcStatus::WrFlushErr)];
        assert_eq!(ends[1].outcomes(), flushed, "{code:?}");
        // The lower layer's own errors quote nothing, and only what refuses a Read quotes it.
        let bare = code.to_word() >> 12 == 2;
        let header = (!bare).then(|| HeaderCopy::of(&ulpdu).unwrap());
        assert_eq!(terminate.ddp, header, "{code:?}");
        assert_eq!(terminate.segment_len, (!bare).then_some(ulpdu.len() as u16));
        let word = code.to_word();
        let quoted = ulpdu[1] & 0xf == Opcode::ReadRequest as u8 && word >> 8 == 1;
        let request = quoted.then(|| ulpdu[18..46].try_into().unwrap());
        assert_eq!(terminate.rdmap, request, "{code:?}");
        // It is the last message, and goes out once.
        let sent = ends[1].transmit();
        assert_eq!(sent.len(), 1);
        let told = Terminate::parse(&sent[0][18..], TerminatePhase::Operation).unwrap();
        assert_eq!((told.code, told.rdmap), (terminate.code, terminate.rdmap));
        assert_eq!(sent[0][..18], queued(Opcode::Terminate, 2, 0, ONE, &[])[..]);
        assert!(ends[1].stream.is_finished() && ends[1].transmit().is_empty());
        let told = ends[0].receive(&sent[0]);
        assert!(matches!(told, Err(StreamFault::Terminated(told)) if told.code == code));
        assert_eq!(ends[0].raised(), [AsyncKind::QpFatal]);
        assert!(ends[0].transmit().is_empty(), "a Terminate is not answered");
    }
}

#[test]
fn over_shuttle_the_close_tells_it() {
    for (ulpdu, code, event) in protected() {
        let mut ends = pair(LlpKind::Shuttle);
        assert_eq!(refused(&mut ends[1], &ulpdu).code, code);
        assert_eq!(ends[1].raised(), [event]);
        assert!(ends[1].stream.is_finished());
        assert!(ends[1].transmit().is_empty());
    }
}

#[test]
fn what_touches_no_memory_needs_no_right() {
    let mut ends = pair(LlpKind::Mpa);
    for ulpdu in [write(7, 1, 0), read(1, 7, 1, 0), read(2, key(OPEN), at(OPEN, 1016), 8)] {
        ends[1].receive(&ulpdu).unwrap();
    }
    ends[1].receive(&write(key(OPEN), at(OPEN, 1016), 8)).unwrap();
    assert_eq!(ends[1].bytes_at(OPEN, 1016, 8), [9; 8]);
    assert_eq!(ends[1].transmit().len(), 2);
}

#[test]
fn a_peer_has_no_more_requests_than_the_depth_rounded_up_and_one() {
    let mut ends = pair(LlpKind::Mpa);
    for msn in 1..=5 {
        ends[1].receive(&read(msn, key(OPEN), at(OPEN, 0), 8)).unwrap();
    }
    let terminate = refused(&mut ends[1], &read(6, key(OPEN), at(OPEN, 0), 8));
    assert_eq!(terminate.code, Code::UntaggedInvalidMsn);
}

#[test]
fn a_request_is_refused_once_those_before_it_are_answered() {
    for (lower, kept) in [(LlpKind::Mpa, Placed::Dropped), (LlpKind::Shuttle, Placed::Refused)] {
        let mut ends = pair(lower);
        ends[1].receive(&read(1, key(OPEN), at(OPEN, 0), 8)).unwrap();
        let before = ends[1].bytes(OPEN);
        assert_eq!(ends[1].receive(&write(key(READABLE), at(READABLE, 0), 8)), Ok(kept));
        assert_eq!(ends[1].receive(&write(key(OPEN), at(OPEN, 0), 8)), Ok(kept));
        assert_eq!(ends[1].bytes(OPEN), before);
        ends[1].holds_acks = true;
        assert_eq!(ends[1].transmit().len(), 1, "the answer");
        let due = |End { stream, qp, .. }: &mut End| stream.take_fault(qp);
        assert_eq!(due(&mut ends[1]), None, "it is not acknowledged");
        ends[1].ack();
        let fault = due(&mut ends[1]);
        assert!(matches!(fault, Some(StreamFault::PeerMisbehaved { .. })), "{fault:?}");
    }
}

#[test]
fn who_is_about_to_refuse_takes_answers() {
    let mut ends = pair(LlpKind::Shuttle);
    ends[1].post(SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) }, &[sge(LOCAL, 0, 8)]);
    let asked = ends[1].transmit();
    ends[0].receive_all(&asked);
    let answer = ends[0].transmit();
    ends[1].receive(&read(1, key(OPEN), at(OPEN, 0), 8)).unwrap();
    assert_eq!(ends[1].receive(&write(key(READABLE), at(READABLE, 0), 8)), Ok(Placed::Refused));
    ends[1].receive_all(&answer);
    assert_eq!(ends[1].outcomes().len(), 1);
}

#[test]
fn a_message_that_does_not_fit_fails_its_receive() {
    let part = |msn, mo, last, len| untagged(Opcode::Send, (msn, mo, last), &vec![1; len]);
    let cases = [
        (vec![part(1, 0, true, 17)], Code::UntaggedTooLong, WcStatus::LocLenErr),
        (
            vec![part(1, 0, false, 16), part(1, 16, true, 1)],
            Code::UntaggedTooLong,
            WcStatus::LocLenErr,
        ),
        (
            vec![part(1, 0, false, 8), part(1, 9, true, 1)],
            Code::UntaggedInvalidMo,
            WcStatus::WrFlushErr,
        ),
        (
            vec![part(1, 0, false, 8), part(1, 7, true, 1)],
            Code::UntaggedInvalidMo,
            WcStatus::WrFlushErr,
        ),
        (
            vec![part(1, 0, false, 8), untagged(Opcode::Immediate, ONE, &[0; 8])],
            Code::UntaggedInvalidMo,
            WcStatus::WrFlushErr,
        ),
    ];
    for (segments, code, status) in cases {
        let mut ends = pair(LlpKind::Mpa);
        ends[1].recv(5, &[sge(OPEN, 0, 16)]);
        ends[1].recv(6, &[sge(OPEN, 0, 16)]);
        let (last, before) = segments.split_last().unwrap();
        ends[1].receive_all(before);
        assert_eq!(refused(&mut ends[1], last).code, code);
        assert_eq!(ends[1].outcomes(), [(5, status), (6, WcStatus::WrFlushErr)], "{code:?}");
        assert_eq!(ends[1].raised(), [AsyncKind::QpReqErr]);
    }
    // The memory of the receive is not this side's to write.
    for (region, code) in [(READABLE, WcStatus::LocProtErr), (FOREIGN, WcStatus::LocProtErr)] {
        let mut ends = pair(LlpKind::Mpa);
        ends[1].recv(5, &[sge(region, 0, 16)]);
        let terminate = refused(&mut ends[1], &part(1, 0, true, 8));
        assert_eq!(terminate.code, Code::RdmapStreamCatastrophic);
        assert_eq!(ends[1].outcomes(), [(5, code)]);
        assert_eq!(ends[1].raised(), [AsyncKind::QpFatal]);
    }
    // It fits exactly.
    let mut ends = pair(LlpKind::Mpa);
    ends[1].recv(5, &[sge(OPEN, 0, 16)]);
    ends[1].receive_all(&[part(1, 0, false, 8), part(1, 8, false, 0), part(1, 8, true, 8)]);
    assert_eq!(ends[1].outcomes(), [(5, WcStatus::Success)]);
}

#[test]
fn a_message_without_a_receive_waits_or_is_refused() {
    for opcode in [Opcode::Send, Opcode::Immediate] {
        let ulpdu = untagged(opcode, ONE, &[0; 8]);
        let mut ends = pair(LlpKind::Mpa);
        assert_eq!(refused(&mut ends[1], &ulpdu).code, Code::UntaggedNoBuffer);
        assert_eq!(ends[1].raised(), [AsyncKind::QpReqErr]);
        let mut ends = pair(LlpKind::Mpa);
        ends[1].holds_unmatched = true;
        let before = ends[1].stream.stats();
        assert_eq!(ends[1].receive(&ulpdu), Ok(Placed::Held));
        assert_eq!(ends[1].stream.stats(), before);
        assert_eq!(ends[1].stream.credit().0, 0);
        ends[1].recv(3, &[sge(OPEN, 0, 8)]);
        assert_ne!(ends[1].receive(&ulpdu), Ok(Placed::Held));
        assert_eq!(ends[1].outcomes(), [(3, WcStatus::Success)]);
        assert_eq!(ends[1].stream.credit().0, 1);
    }
}

/// Who drives the connection is told what it may want to tell the application.
#[test]
fn a_port_says_whether_it_held_or_wrote_anything() {
    let told = |ulpdus: &[Vec<u8>]| {
        let mut ends = pair(LlpKind::Mpa);
        let End { stream, qp, .. } = &mut ends[1];
        let mut port = RxPort::new(stream, qp, true);
        for (seq, ulpdu) in (100..).zip(ulpdus) {
            port.place(seq, ulpdu).unwrap();
        }
        (port.held(), port.written())
    };
    let part = tagged(Opcode::Write, false, key(OPEN), at(OPEN, 0), &[9; 8]);
    assert_eq!(told(&[]), (false, false));
    assert_eq!(told(&[untagged(Opcode::Send, ONE, &[1])]), (true, false));
    assert_eq!(told(&[write(key(OPEN), at(OPEN, 0), 8)]), (false, true));
    assert_eq!(told(&[write(key(OPEN), at(OPEN, 0), 0)]), (false, false));
    assert_eq!(told(std::slice::from_ref(&part)), (false, false));
    assert_eq!(told(&[part, write(key(OPEN), at(OPEN, 8), 0), write(0, 0, 0)]), (false, true));
}

#[test]
fn a_key_that_may_not_be_invalidated_ends_the_stream() {
    let cases = [
        (key(LOCAL), Code::RdmapCannotInvalidate),
        (key(FOREIGN), Code::RdmapCannotInvalidate),
        (1 << 20, Code::RdmapInvalidateFailed),
    ];
    for (stag, code) in cases {
        let mut ends = pair(LlpKind::Mpa);
        ends[1].recv(5, &[]);
        let ulpdu = queued(Opcode::SendInvalidate, 0, stag, ONE, &[]);
        assert_eq!(refused(&mut ends[1], &ulpdu).code, code);
        assert_eq!(ends[1].outcomes(), [(5, WcStatus::WrFlushErr)]);
    }
}

#[test]
fn a_send_with_immediate_data_is_for_weft_alone() {
    let ulpdu = untagged(Opcode::SendImmediate, ONE, &[]);
    let mut end = End::new(config(LlpKind::Mpa, Role::Responder));
    end.recv(5, &[]);
    assert_eq!(refused(&mut end, &ulpdu).code, Code::RdmapUnexpectedOpcode);
    let mut ends = pair(LlpKind::Mpa);
    ends[1].recv(5, &[]);
    ends[1].receive(&ulpdu).unwrap();
}

/// An answer must be the one that the oldest request waits for.
#[test]
fn answers_that_nobody_asked_for_are_refused() {
    let (stag, sink) = (key(LOCAL), at(LOCAL, 16));
    let answer =
        |last, stag, to, len: usize| tagged(Opcode::ReadResponse, last, stag, to, &vec![1; len]);
    let old = |msn, id| {
        untagged(
            Opcode::AtomicResponse,
            (msn, 0, true),
            &AtomicResponse { id, value: 4 }.to_bytes(),
        )
    };
    let cases = [
        (answer(true, stag + 1, sink, 8), Code::TaggedInvalidStag),
        (answer(true, stag, sink + 1, 8), Code::TaggedBounds),
        (answer(true, stag, sink, 9), Code::TaggedBounds),
        (answer(true, stag, sink, 7), Code::TaggedBounds),
        (answer(false, stag, sink, 8), Code::TaggedBounds),
        (old(1, 1), Code::RdmapUnexpectedOpcode),
    ];
    for (ulpdu, code) in cases {
        let mut ends = pair(LlpKind::Mpa);
        let op = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
        ends[0].post(op, &[sge(LOCAL, 16, 8)]);
        ends[0].transmit();
        assert_eq!(refused(&mut ends[0], &ulpdu).code, code);
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::WrFlushErr)]);
    }
    let cases = [
        (answer(true, stag, sink, 8), Code::RdmapUnexpectedOpcode),
        (old(1, 2), Code::RdmapUnexpectedOpcode),
        (old(2, 1), Code::UntaggedInvalidMsn),
    ];
    for (ulpdu, code) in cases {
        let mut ends = pair(LlpKind::Mpa);
        let op = SendOp::FetchAdd { to: at(OPEN, 0), stag: key(OPEN), add: 1 };
        ends[0].post(op, &[sge(LOCAL, 16, 8)]);
        ends[0].transmit();
        assert_eq!(refused(&mut ends[0], &ulpdu).code, code);
    }
    // With nothing outstanding, none is expected.
    let mut ends = pair(LlpKind::Mpa);
    assert_eq!(refused(&mut ends[0], &answer(true, 0, 0, 0)).code, Code::RdmapUnexpectedOpcode);
}

/// The parts of an answer follow each other; of an answer of nothing, key and place say nothing.
#[test]
fn answers_continue_where_they_ended() {
    let (stag, sink) = (key(LOCAL), at(LOCAL, 16));
    let answer =
        |last, stag, to, len: usize| tagged(Opcode::ReadResponse, last, stag, to, &vec![1; len]);
    let asked = |size| {
        let mut ends = pair(LlpKind::Mpa);
        let op = SendOp::Read { to: at(OPEN, 0), stag: key(OPEN) };
        ends[0].post(op, &[sge(LOCAL, 16, size)]);
        ends[0].transmit();
        ends
    };
    let seconds = [
        (answer(true, stag, sink + 3, 5), true),
        (answer(true, stag, sink, 8), false),
        (answer(false, stag, sink + 3, 6), false),
    ];
    for (second, fits) in seconds {
        let mut ends = asked(8);
        ends[0].receive(&answer(false, stag, sink, 3)).unwrap();
        assert_eq!(ends[0].receive(&second).is_ok(), fits);
    }
    let refused = |size, ulpdu: &[u8]| refused(&mut asked(size)[0], ulpdu).code;
    assert_eq!(refused(0, &answer(true, 9, 0, 1)), Code::TaggedInvalidStag);
    // An empty part of an answer that is not empty says where it belongs too.
    assert_eq!(refused(8, &answer(false, 9, 0, 0)), Code::TaggedInvalidStag);
    let mut ends = asked(0);
    ends[0].receive(&answer(true, 9, 5, 0)).unwrap();
    assert_eq!(ends[0].outcomes(), [(0, WcStatus::Success)]);
}

#[test]
fn queue_pairs_without_a_queue_take_no_messages() {
    for (kind, qn) in [(QpType::XrcSend, 0), (QpType::XrcSend, QN_SHARED)] {
        let mut end = End::of_kind(config(LlpKind::Shuttle, Role::Responder), kind);
        let ulpdu = queued(Opcode::Send, qn, 0, ONE, &[1]);
        assert_eq!(refused(&mut end, &ulpdu).code, Code::UntaggedInvalidQn);
    }
}

#[test]
fn what_cannot_be_parsed_is_refused() {
    let mut version = write(key(OPEN), at(OPEN, 0), 8);
    version[0] ^= 3;
    let mut rdmap = write(key(OPEN), at(OPEN, 0), 8);
    rdmap[1] ^= 0xc0;
    for ulpdu in [version, rdmap, vec![0xc1], untagged(Opcode::Send, ONE, &[])[..17].to_vec()] {
        let mut ends = pair(LlpKind::Mpa);
        ends[1].recv(5, &[]);
        refused(&mut ends[1], &ulpdu);
    }
}
