//! How the Linux kernel's siw departs from the RFCs, and what Weft makes of it: the bytes are
//! those that siw of Linux 6.1 sends, with the keys and addresses of the test put in.

mod common;

use common::{ALL, Side, fpdu, terminate_in, ulpdus};
use weft_rnic::mpa::negotiate::{Initiator, MpaReply, Responder};
use weft_rnic::mpa::{Agreed, MpaOffer, MpaRole, Rtr};
use weft_rnic::wire::ddp::{TaggedHeader, UntaggedHeader};
use weft_rnic::wire::ids::{Msn, STag};
use weft_rnic::wire::rdmap::{Opcode, ReadRequest};
use weft_rnic::wire::terminate::TerminateCode;
use weft_verbs::{AsyncKind, QpState, SendOp, WcStatus};

/// siw's Request by default: enhanced, no CRC, no peer-to-peer set-up.
const REQUEST: &[u8] = b"MPA ID Req Frame\x10\x02\x00\x04\x00\x04\x00\x03";

fn untagged(opcode: Opcode, qn: u32, msn: u32, payload: &[u8]) -> Vec<u8> {
    let control = opcode.control();
    let header = UntaggedHeader { last: true, control, ulp: 0, qn, msn: Msn(msn), mo: 0 };
    [&header.to_bytes(), payload].concat()
}

fn send(msn: u32, payload: &[u8]) -> Vec<u8> {
    untagged(Opcode::Send, 0, msn, payload)
}

/// A frame as siw makes it when CRCs are off: the field is there and holds nothing.
fn without_crc(ulpdu: &[u8]) -> Vec<u8> {
    let mut frame = fpdu(ulpdu);
    let end = frame.len() - 4;
    frame[end..].fill(0);
    frame
}

/// A responder that has accepted siw's Request on these terms.
fn responder(offer: &MpaOffer) -> (Side, Agreed) {
    let (reply, agreed) = Responder::handle_request(REQUEST).unwrap().accept(offer).unwrap();
    assert_eq!(reply[16] & 0x10, 0x10, "siw refuses a Reply without S");
    (Side::new(MpaRole::Responder, &agreed, 1448), agreed)
}

/// An initiator that has had siw's Reply, which repeats what was asked for, to this Request.
fn initiator(offer: MpaOffer) -> Side {
    let initiator = Initiator::new(offer).unwrap();
    let mut reply = initiator.request();
    reply[..16].copy_from_slice(b"MPA ID Rep Frame");
    reply[22] &= 0xbf;
    let Ok(MpaReply::Accepted(agreed)) = initiator.handle_reply(&reply) else {
        panic!("{reply:02x?} is not accepted")
    };
    Side::new(MpaRole::Initiator, &agreed, 1448)
}

/// What siw sends when it has refused something: its order of nibbles and of header bits.
fn terminate(control: [u8; 4], quoted: &[u8]) -> Vec<u8> {
    fpdu(&untagged(Opcode::Terminate, 2, 1, &[&control[..], quoted].concat()))
}

#[test]
fn a_read_that_siw_refuses_fails_for_the_reason_that_siw_gives() {
    let mut side = initiator(MpaOffer::new(4, 4));
    let sink = side.memory(64, ALL);
    side.send(1, SendOp::Read { to: 0x1000, stag: 0xdead_be00 }, &[sink.sge(0, 64)]);
    side.send(2, SendOp::Send, &[]);
    let request = ulpdus(&side.output(usize::MAX))[1].clone();
    // The length that siw quotes is that of the payload, and the MSN is the size of the Read.
    let mut quoted = vec![0, 0];
    quoted.extend_from_slice(&request);
    quoted[2 + 10..2 + 14].copy_from_slice(&64u32.to_be_bytes());
    side.input(&terminate([0x10, 0x00, 0x07, 0x00], &quoted));
    let statuses = side.statuses();
    assert_eq!(statuses[0], (1, WcStatus::RemAccessErr as u32));
    assert_eq!(statuses.iter().map(|s| s.0).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(side.qp.state(), QpState::Err);
    assert_eq!(side.output(usize::MAX), [], "a Terminate is not answered");
}

/// What siw has in place of the number of a Read may be the number of another one.
#[test]
fn of_several_reads_that_one_fails_that_siw_refuses() {
    let mut side = initiator(MpaOffer::new(8, 8));
    let sink = side.memory(64, ALL);
    let bad = SendOp::Read { to: 0x1000, stag: 0xdead_be00 };
    for read in 1..=8 {
        let op = if read == 2 { bad } else { SendOp::Read { to: 0x1000, stag: 0x100 } };
        side.send(read, op, &[sink.sge(8 * (read - 1), 8)]);
    }
    let request = ulpdus(&side.output(usize::MAX))[2].clone();
    let mut quoted = vec![0, 0];
    quoted.extend_from_slice(&request);
    quoted[2 + 10..2 + 14].copy_from_slice(&8u32.to_be_bytes());
    side.input(&terminate([0x10, 0x00, 0x07, 0x00], &quoted));
    let failed = WcStatus::RemAccessErr as u32;
    let refused: Vec<_> =
        side.statuses().into_iter().filter(|(_, status)| *status == failed).collect();
    assert_eq!(refused, [(2, failed)]);
}

#[test]
fn whatever_siw_refuses_ends_the_stream_once() {
    let write = TaggedHeader {
        last: true,
        control: Opcode::Write.control(),
        stag: STag(0xdead_be00),
        to: 0x1000,
    };
    let quoted_write = [&64u16.to_be_bytes()[..], &write.to_bytes()].concat();
    let quoted_send = [&100u16.to_be_bytes()[..], &send(1, &[])].concat();
    let seen: [([u8; 4], &[u8]); 9] = [
        ([0x02, 0x02, 0, 0], &[]),
        ([0x02, 0x03, 0, 0], &[]),
        ([0x20, 0x05, 0, 0], &[]),
        ([0x20, 0x06, 0, 0], &[]),
        ([0x21, 0x06, 0, 0], &[]),
        ([0x01, 0x00, 3, 0], &quoted_write),
        ([0x11, 0x00, 3, 0], &quoted_write),
        ([0x21, 0x02, 3, 0], &quoted_send),
        ([0x20, 0x09, 3, 0], &quoted_send),
    ];
    for (control, quoted) in seen {
        let mut side = initiator(MpaOffer::new(4, 4));
        let memory = side.memory(64, ALL);
        side.recv(3, &[memory.sge(0, 64)]);
        side.output(usize::MAX);
        side.input(&terminate(control, quoted));
        assert_eq!(side.statuses(), [(3, WcStatus::WrFlushErr as u32)], "{control:02x?}");
        let kinds: Vec<_> = side.events().iter().map(|e| e.kind).collect();
        assert_eq!(kinds, [AsyncKind::QpFatal]);
        assert!(side.mpa.is_finished());
        assert_eq!(side.output(usize::MAX), []);
    }
}

#[test]
fn a_server_of_siw_may_speak_before_it_is_spoken_to() {
    let mut side = initiator(MpaOffer::new(4, 4));
    let memory = side.memory(64, ALL);
    side.recv(1, &[memory.sge(0, 64)]);
    side.input(&fpdu(&send(1, b"hello")));
    assert_eq!(side.statuses(), [(1, 0)]);
    assert_eq!(&memory.octets()[..5], b"hello");
    // The message that the set-up promised still goes first.
    side.send(2, SendOp::Send, &[memory.sge(0, 5)]);
    let out = ulpdus(&side.output(usize::MAX));
    assert_eq!((out[0][..2].to_vec(), out[0].len()), (vec![0xc1, 0x40], 14));
    assert!(out.last().unwrap().ends_with(b"hello"));
}

#[test]
fn a_server_may_speak_first_to_siw_after_a_while() {
    let (mut side, agreed) = responder(&MpaOffer::new(4, 4));
    assert_eq!(agreed.rtr, None, "siw announces no first message");
    let memory = side.memory(64, ALL);
    side.send(1, SendOp::Send, &[memory.sge(0, 5)]);
    // siw gives up when anything follows the Reply in what it reads.
    assert_eq!(side.output(usize::MAX), []);
    let due = side.mpa.poll_timeout().unwrap();
    assert!(due - side.now_ns >= 50_000_000);
    // The Reply was lost and is on its way again.
    side.mpa.postpone_speaking(due);
    side.mpa.handle_timeout(due);
    assert_eq!(side.output(usize::MAX), []);
    let due = side.mpa.poll_timeout().unwrap();
    side.mpa.handle_timeout(due);
    let out = ulpdus(&side.output(usize::MAX));
    assert_eq!((out.len(), &out[0][..2]), (1, &[0x41, 0x43][..]));
    assert_eq!(side.statuses(), [(1, 0)]);
}

#[test]
fn a_server_answers_siw_at_once() {
    let (mut side, _) = responder(&MpaOffer::new(4, 4));
    let memory = side.memory(64, ALL);
    side.recv(1, &[memory.sge(0, 64)]);
    side.send(2, SendOp::Send, &[memory.sge(0, 5)]);
    side.input(&fpdu(&send(1, b"first")));
    assert_eq!(ulpdus(&side.output(usize::MAX)).len(), 1);
    assert_eq!(side.statuses(), [(1, 0), (2, 0)]);
}

#[test]
fn crcs_are_on_with_siw_unless_nobody_wants_them() {
    for crc in [true, false] {
        let (mut side, agreed) = responder(&MpaOffer { crc, ..MpaOffer::new(4, 4) });
        assert_eq!(agreed.crc, crc);
        let memory = side.memory(64, ALL);
        side.recv(1, &[memory.sge(0, 64)]);
        side.input(&without_crc(&send(1, b"first")));
        let out = side.output(usize::MAX);
        if crc {
            assert_eq!(terminate_in(&out).map(|t| t.code), Some(TerminateCode::LlpCrc));
        } else {
            assert_eq!(side.statuses(), [(1, 0)]);
            assert_eq!(&memory.octets()[..5], b"first");
        }
    }
}

#[test]
fn siw_may_keep_as_many_reads_outstanding_as_it_rounds_to() {
    // Its Request wishes for three; it keeps four, and one more may cross the answer to the first.
    let (mut side, agreed) = responder(&MpaOffer::new(3, 3));
    assert!(agreed.ird >= 4, "{agreed:?}");
    let source = side.memory(64, ALL);
    let read = |msn| {
        let request = ReadRequest {
            sink_stag: STag(0x1234_5600),
            sink_to: u64::from(msn) << 12,
            size: 8,
            src_stag: STag(source.key),
            src_to: source.addr(),
        };
        fpdu(&untagged(Opcode::ReadRequest, 1, msn, &request.to_bytes()))
    };
    let burst: Vec<u8> = (1..=5).flat_map(read).collect();
    side.input(&burst);
    let answers: Vec<_> = ulpdus(&side.output(usize::MAX))
        .iter()
        .map(|ulpdu| u64::from_be_bytes(ulpdu[6..14].try_into().unwrap()) >> 12)
        .collect();
    assert_eq!(answers, [1, 2, 3, 4, 5], "in the order of the requests");
    assert_eq!(side.qp.state(), QpState::Rts);
}

#[test]
fn an_initiator_that_has_heard_siw_does_not_nudge_it() {
    let mut side = initiator(MpaOffer::new(4, 4));
    let memory = side.memory(64, ALL);
    side.recv(1, &[memory.sge(0, 64)]);
    side.output(usize::MAX);
    let due = side.mpa.poll_timeout().unwrap();
    side.input(&fpdu(&send(1, b"x")));
    side.mpa.handle_timeout(due);
    assert_eq!(side.output(usize::MAX), []);
}

#[test]
fn siw_takes_its_choice_of_first_messages() {
    // It selects the Write when it is offered, and confirms with one bit set.
    let initiator = Initiator::new(MpaOffer::new(4, 4)).unwrap();
    let block: [u8; 4] = initiator.request()[20..].try_into().unwrap();
    assert_eq!((block[0] & 0xc0, block[2] & 0xc0), (0x80, 0xc0), "either is offered");
    for (bits, rtr, opcode) in [(0x80, Rtr::Write, 0x40), (0x40, Rtr::Read, 0x41)] {
        let mut reply = b"MPA ID Rep Frame\x50\x02\x00\x04".to_vec();
        reply.extend([block[0], block[1], bits, block[3]]);
        let Ok(MpaReply::Accepted(agreed)) = initiator.handle_reply(&reply) else {
            panic!("{reply:02x?} is not accepted")
        };
        assert_eq!(agreed.rtr, Some(rtr));
        let mut side = Side::new(MpaRole::Initiator, &agreed, 1448);
        let first = ulpdus(&side.output(usize::MAX))[0].clone();
        assert_eq!(first[1], opcode);
    }
}
