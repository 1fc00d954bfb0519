//! What each operation does at both ends, over either lower layer: memory, completions, and what
//! goes over the wire.

mod support;

use support::{
    End, LOCAL, OPEN, READABLE, RECV, at, config, exchange, key, of_message, pair, pair_of, sge,
};
use weft_rdmap::{LlpKind, PeerExtensions, Role, RtrMessage, StreamConfig};
use weft_verbs::mr::Bind;
use weft_verbs::{Access, QpState, SendFlags, SendOp, WcFlags, WcOpcode, WcStatus};
use weft_wire::ddp::DdpHeader;
use weft_wire::rdmap::{AtomicOp, AtomicRequest, ImmediateData, Opcode, ReadRequest};

const LOWERS: [LlpKind; 2] = [LlpKind::Mpa, LlpKind::Shuttle];

fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 3) as u8).collect()
}

/// Headers and lengths of payload of what an end sends.
fn headers(sent: &[Vec<u8>]) -> Vec<(DdpHeader, Opcode, usize)> {
    let each = |ulpdu: &Vec<u8>| {
        let (header, payload) = DdpHeader::parse(ulpdu).unwrap();
        (header, header.opcode().unwrap(), payload.len())
    };
    sent.iter().map(each).collect()
}

#[test]
fn writes_are_cut_into_segments_that_end_where_they_should() {
    for lower in LOWERS {
        for len in [0, 1, 113, 114, 115, 228, 300] {
            let mut ends = pair(lower);
            ends[0].fill(LOCAL, 5, &payload(len));
            let write = SendOp::Write { to: at(OPEN, 40), stag: key(OPEN) };
            let half = len as u32 / 2;
            let sges = [sge(LOCAL, 5, half), sge(LOCAL, 5 + u64::from(half), len as u32 - half)];
            let before = [ends[0].stream.stats(), ends[1].stream.stats()];
            ends[0].post(write, &sges);
            let sent = ends[0].transmit();
            // 128 bytes less a header of 14.
            assert_eq!(sent.len(), len.div_ceil(114).max(1));
            let mut offset = 0;
            for (i, (header, opcode, size)) in headers(&sent).into_iter().enumerate() {
                let DdpHeader::Tagged(header) = header else { panic!("{header:?}") };
                assert_eq!((opcode, header.stag.0), (Opcode::Write, key(OPEN)));
                assert_eq!((header.to, header.last), (at(OPEN, 40 + offset), i + 1 == sent.len()));
                offset += size as u64;
            }
            ends[1].receive_all(&sent);
            assert_eq!(ends[1].bytes_at(OPEN, 40, len), payload(len));
            assert_eq!(ends[1].bytes_at(OPEN, 40 + len as u64, 8), [0; 8]);
            assert_eq!(ends[0].outcomes(), [(0, WcStatus::Success)]);
            assert!(ends[1].done().is_empty());
            let after = [ends[0].stream.stats(), ends[1].stream.stats()];
            assert_eq!(after[0].octets_out - before[0].octets_out, len as u64);
            assert_eq!(after[0].segments_out - before[0].segments_out, sent.len() as u64);
            assert_eq!(after[1].octets_in - before[1].octets_in, len as u64);
            assert_eq!(after[1].segments_in - before[1].segments_in, sent.len() as u64);
        }
    }
}

#[test]
fn sends_fill_receives_in_order_and_say_what_they_bring() {
    let solicited = SendFlags::SIGNALED | SendFlags::SOLICITED;
    let (imm, with_imm) = (0x0102_0304_u32.to_be(), WcFlags::WITH_IMM.bits());
    for lower in LOWERS {
        let mut ends = pair(lower);
        ends[0].fill(LOCAL, 0, &payload(300));
        let stag = key(READABLE);
        for wr_id in 0..5 {
            ends[1].recv(wr_id, &[sge(OPEN, 100 * wr_id, 60), sge(OPEN, 600 + 40 * wr_id, 40)]);
        }
        ends[0].post(SendOp::Send, &[sge(LOCAL, 0, 80)]);
        ends[0].post(SendOp::SendInv { stag }, &[sge(LOCAL, 80, 10)]);
        ends[0].post_with(SendOp::SendImm { imm }, solicited, &[sge(LOCAL, 90, 100)]);
        ends[0].post(SendOp::SendImm { imm }, &[]);
        let inline = SendFlags::SIGNALED | SendFlags::INLINE;
        let real = ends[0].inline(LOCAL, 190, 30);
        ends[0].post_with(SendOp::Send, inline, &[real]);
        exchange(&mut ends);
        let done: Vec<_> = ends[1].done().iter().map(of_message).collect();
        let with_inv = WcFlags::WITH_INV.bits();
        assert_eq!(done[0], (0, RECV, 80, 0, 0), "{lower:?}");
        assert_eq!(done[1], (1, RECV, 10, stag, with_inv));
        assert_eq!(done[2], (2, RECV, 100, imm, with_imm));
        assert_eq!(done[3], (3, RECV, 0, imm, with_imm));
        assert_eq!(done[4], (4, RECV, 30, 0, 0));
        assert_eq!(ends[1].bytes_at(OPEN, 0, 60), payload(300)[..60]);
        assert_eq!(ends[1].bytes_at(OPEN, 600, 40)[..21], [&payload(300)[60..80], &[0]].concat());
        assert_eq!(ends[1].bytes_at(OPEN, 200, 60), payload(300)[90..150]);
        assert_eq!(ends[1].bytes_at(OPEN, 680, 40), payload(300)[150..190]);
        assert_eq!(ends[1].bytes_at(OPEN, 400, 30), payload(300)[190..220]);
        assert_eq!(ends[0].outcomes(), (0..5).map(|i| (i, WcStatus::Success)).collect::<Vec<_>>());
        // The key is gone.
        ends[0].post(SendOp::Read { to: at(READABLE, 0), stag }, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        assert!(ends[1].receive(&sent[0]).is_err());
    }
}

#[test]
fn segments_of_messages_carry_their_number_and_place() {
    for lower in LOWERS {
        let mut ends = pair(lower);
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        ends[0].post(SendOp::Send, &[sge(LOCAL, 0, 250)]);
        ends[0].post_with(SendOp::Send, flags, &[]);
        ends[0].post(SendOp::SendInv { stag: 9 }, &[]);
        ends[0].post_with(SendOp::SendInv { stag: 9 }, flags, &[]);
        let imm = 0x0102_0304_u32.to_be();
        ends[0].post(SendOp::SendImm { imm }, &[]);
        ends[0].post_with(SendOp::SendImm { imm }, flags, &[]);
        let mut seen = Vec::new();
        for (header, opcode, len) in headers(&ends[0].transmit()) {
            let DdpHeader::Untagged(header) = header else { panic!("{header:?}") };
            seen.push((opcode, header.msn.0, header.mo, header.last, header.ulp, len));
        }
        assert_eq!(
            seen,
            [
                (Opcode::Send, 1, 0, false, 0, 110),
                (Opcode::Send, 1, 110, false, 0, 110),
                (Opcode::Send, 1, 220, true, 0, 30),
                (Opcode::SendSolicited, 2, 0, true, 0, 0),
                (Opcode::SendInvalidate, 3, 0, true, 9, 0),
                (Opcode::SendSolicitedInvalidate, 4, 0, true, 9, 0),
                (Opcode::SendImmediate, 5, 0, true, 0x0102_0304, 0),
                (Opcode::SendSolicitedImmediate, 6, 0, true, 0x0102_0304, 0),
            ]
        );
    }
}

#[test]
fn a_write_with_immediate_completes_a_receive_with_its_length() {
    let imm = 0xa1b2_c3d4_u32.to_be();
    for lower in LOWERS {
        let mut ends = pair(lower);
        ends[0].fill(LOCAL, 0, &payload(300));
        ends[1].recv(3, &[]);
        ends[1].recv(4, &[]);
        let write = SendOp::WriteImm { to: at(OPEN, 0), stag: key(OPEN), imm };
        ends[0].post(write, &[sge(LOCAL, 0, 300)]);
        ends[0].post_with(write, SendFlags::SIGNALED | SendFlags::SOLICITED, &[]);
        let sent = ends[0].transmit();
        let seen = headers(&sent);
        let opcodes: Vec<_> = seen.iter().map(|(_, opcode, _)| *opcode).collect();
        assert_eq!(
            opcodes[2..],
            [Opcode::Write, Opcode::Immediate, Opcode::Write, Opcode::ImmediateSolicited]
        );
        let data = ImmediateData::parse(&sent[3][18..]).unwrap();
        assert_eq!(
            (data.to_verbs(), data.length()),
            (imm, if lower == LlpKind::Shuttle { 300 } else { 0 })
        );
        assert!(ends[0].outcomes().len() == 2);
        ends[1].receive_all(&sent);
        let done: Vec<_> = ends[1].done().iter().map(of_message).collect();
        let (opcode, flags) = (WcOpcode::RecvRdmaWithImm as u32, WcFlags::WITH_IMM.bits());
        assert_eq!(done, [(3, opcode, 300, imm, flags), (4, opcode, 0, imm, flags)]);
        assert_eq!(ends[1].bytes_at(OPEN, 0, 300), payload(300));
    }
}

#[test]
fn reads_bring_what_the_peer_has_into_one_or_many_places() {
    for lower in LOWERS {
        for len in [0_u32, 1, 114, 115, 300] {
            let mut ends = pair(lower);
            ends[1].fill(READABLE, 9, &payload(300));
            let read = SendOp::Read { to: at(READABLE, 9), stag: key(READABLE) };
            ends[0].post(read, &[sge(LOCAL, 3, len)]);
            let third = len / 3;
            let parts =
                [sge(LOCAL, 400, third), sge(OPEN, 0, third), sge(LOCAL, 700, len - 2 * third)];
            ends[0].post(read, &parts);
            assert_eq!(ends[0].outcomes(), []);
            let before = ends[0].stream.stats().octets_in;
            exchange(&mut ends);
            assert_eq!(ends[0].stream.stats().octets_in - before, 2 * u64::from(len));
            let all = payload(len as usize);
            assert_eq!(ends[0].bytes_at(LOCAL, 3, len as usize), all, "{lower:?} {len}");
            let third = third as usize;
            assert_eq!(ends[0].bytes_at(LOCAL, 400, third), all[..third]);
            assert_eq!(ends[0].bytes_at(OPEN, 0, third), all[third..2 * third]);
            assert_eq!(ends[0].bytes_at(LOCAL, 700, all.len() - 2 * third), all[2 * third..]);
            assert_eq!(ends[0].outcomes(), [(0, WcStatus::Success), (1, WcStatus::Success)]);
            assert!(ends[1].done().is_empty());
        }
    }
}

#[test]
fn a_read_request_names_source_and_sink() {
    let mut ends = pair(LlpKind::Mpa);
    ends[0].post(SendOp::Read { to: at(READABLE, 9), stag: key(READABLE) }, &[sge(LOCAL, 3, 40)]);
    let sent = ends[0].transmit();
    let (DdpHeader::Untagged(header), Opcode::ReadRequest, 28) = headers(&sent)[0] else {
        panic!("{:?}", headers(&sent))
    };
    assert_eq!((header.qn, header.msn.0, header.mo, header.last, header.ulp), (1, 1, 0, true, 0));
    let request = ReadRequest::parse(&sent[0][18..]).unwrap();
    assert_eq!((request.src_stag.0, request.src_to), (key(READABLE), at(READABLE, 9)));
    assert_eq!((request.sink_stag.0, request.sink_to), (key(LOCAL), at(LOCAL, 3)));
    assert_eq!(request.size, 40);
    ends[1].receive(&sent[0]).unwrap();
    let sent = ends[1].transmit();
    let (DdpHeader::Tagged(header), Opcode::ReadResponse, 40) = headers(&sent)[0] else {
        panic!("{:?}", headers(&sent))
    };
    assert_eq!((header.stag.0, header.to, header.last), (key(LOCAL), at(LOCAL, 3), true));
}

#[test]
fn atomics_change_the_peers_word_and_bring_the_old_one() {
    for lower in LOWERS {
        let mut ends = pair(lower);
        let (to, stag) = (at(OPEN, 16), key(OPEN));
        ends[1].fill(OPEN, 16, &40_u64.to_ne_bytes());
        ends[0].post(SendOp::FetchAdd { to, stag, add: 2 }, &[sge(LOCAL, 0, 8)]);
        ends[0].post(SendOp::CmpSwap { to, stag, compare: 42, swap: 7 }, &[sge(LOCAL, 8, 8)]);
        ends[0].post(SendOp::CmpSwap { to, stag, compare: 42, swap: 9 }, &[sge(LOCAL, 16, 8)]);
        let sent = ends[0].transmit();
        let first = AtomicRequest::parse(&sent[0][18..]).unwrap();
        assert_eq!((first.op, first.stag.0, first.to), (Ok(AtomicOp::FetchAdd), stag, to));
        assert_eq!((first.data, first.mask, first.id), (2, 0, 1));
        let second = AtomicRequest::parse(&sent[1][18..]).unwrap();
        assert_eq!((second.op, second.id), (Ok(AtomicOp::CompareSwap), 2));
        assert_eq!((second.compare, second.data), (42, 7));
        assert_eq!((second.mask, second.compare_mask), (u64::MAX, u64::MAX));
        ends[1].receive_all(&sent);
        exchange(&mut ends);
        let word = |end: &End, region, at| {
            u64::from_ne_bytes(end.bytes_at(region, at, 8).try_into().unwrap())
        };
        assert_eq!(word(&ends[1], OPEN, 16), 7);
        assert_eq!([0, 8, 16].map(|offset| word(&ends[0], LOCAL, offset)), [40, 42, 7]);
        assert_eq!(ends[0].outcomes(), [0, 1, 2].map(|id| (id, WcStatus::Success)));
    }
}

#[test]
fn keys_and_windows_change_between_requests() {
    for lower in LOWERS {
        let mut ends = pair(lower);
        let window = ends[1].window();
        let bound = Bind::next_key(window);
        let bind = Bind {
            window,
            key: bound,
            region: key(OPEN),
            addr: at(OPEN, 8),
            len: 8,
            access: Access::REMOTE_WRITE,
        };
        // What is posted behind it waits for it.
        ends[1].post(SendOp::BindMw(bind), &[]);
        ends[1].post(SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) }, &[sge(LOCAL, 0, 4)]);
        exchange(&mut ends);
        assert_eq!(ends[1].outcomes(), [0, 1].map(|id| (id, WcStatus::Success)));
        ends[0].fill(LOCAL, 0, &[5; 8]);
        ends[0].post(SendOp::Write { to: at(OPEN, 8), stag: bound }, &[sge(LOCAL, 0, 8)]);
        exchange(&mut ends);
        assert_eq!(ends[1].bytes_at(OPEN, 8, 8), [5; 8]);
        ends[1].post(SendOp::LocalInv { stag: bound }, &[]);
        exchange(&mut ends);
        assert_eq!(ends[1].outcomes(), [(2, WcStatus::Success)]);
        ends[0].post(SendOp::Write { to: at(OPEN, 8), stag: bound }, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        assert!(ends[1].receive(&sent[0]).is_err());
    }
}

#[test]
fn a_request_with_a_fence_waits_for_every_answer() {
    let mut ends = pair(LlpKind::Mpa);
    let read = SendOp::Read { to: at(READABLE, 0), stag: key(READABLE) };
    let write = SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) };
    let fence = SendFlags::SIGNALED | SendFlags::FENCE;
    ends[0].post_with(write, fence, &[sge(LOCAL, 0, 8)]);
    ends[0].post(read, &[sge(LOCAL, 0, 8)]);
    ends[0].post(write, &[sge(LOCAL, 0, 8)]);
    ends[0].post_with(write, fence, &[sge(LOCAL, 0, 8)]);
    let sent = ends[0].transmit();
    assert_eq!(sent.len(), 3);
    ends[1].receive_all(&sent);
    let answer = ends[1].transmit();
    assert!(ends[0].transmit().is_empty());
    ends[0].receive(&answer[0]).unwrap();
    assert_eq!(ends[0].transmit().len(), 1);
}

#[test]
fn no_more_requests_are_outstanding_than_agreed() {
    let mut ends = pair(LlpKind::Mpa);
    let read = SendOp::Read { to: at(READABLE, 0), stag: key(READABLE) };
    for _ in 0..7 {
        ends[0].post(read, &[sge(LOCAL, 0, 8)]);
    }
    let sent = ends[0].transmit();
    assert_eq!(sent.len(), 4);
    ends[1].receive(&sent[0]).unwrap();
    let answers = ends[1].transmit();
    ends[0].receive(&answers[0]).unwrap();
    let more = ends[0].transmit();
    assert_eq!(more.len(), 1);
    ends[0].stream.set_ord(6);
    let last = ends[0].transmit();
    assert_eq!(last.len(), 2);
    for ulpdu in sent[1..].iter().chain(&more).chain(&last) {
        ends[1].receive(ulpdu).unwrap();
        exchange(&mut ends);
    }
    assert_eq!(ends[0].outcomes().len(), 7);
    // With none allowed, one that needs an answer fails.
    ends[0].stream.set_ord(0);
    ends[0].post(read, &[sge(LOCAL, 0, 8)]);
    assert_eq!(ends[0].transmit().len(), 1, "a Terminate");
    assert_eq!(ends[0].outcomes(), [(7, WcStatus::LocQpOpErr)]);
}

#[test]
fn requests_and_answers_take_turns() {
    let mut ends = pair(LlpKind::Mpa);
    let read = SendOp::Read { to: at(READABLE, 0), stag: key(READABLE) };
    let write = SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) };
    for _ in 0..3 {
        ends[0].post(read, &[sge(LOCAL, 0, 8)]);
    }
    let sent = ends[0].transmit();
    ends[1].receive_all(&sent);
    for _ in 0..3 {
        ends[1].post(write, &[sge(LOCAL, 0, 200)]);
    }
    let kinds: Vec<_> = headers(&ends[1].transmit()).iter().map(|(_, kind, _)| *kind).collect();
    use Opcode::{ReadResponse as R, Write as W};
    assert_eq!(kinds, [R, W, W, R, W, W, R, W, W]);
}

#[test]
fn a_queue_pair_that_drains_answers_and_asks_nothing() {
    let mut ends = pair(LlpKind::Mpa);
    let read = SendOp::Read { to: at(READABLE, 0), stag: key(READABLE) };
    ends[0].post(read, &[sge(LOCAL, 0, 8)]);
    let sent = ends[0].transmit();
    ends[1].receive_all(&sent);
    ends[1].post(SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) }, &[sge(LOCAL, 0, 8)]);
    ends[1].qp.enter(QpState::Sqd);
    assert_eq!(headers(&ends[1].transmit())[0].1, Opcode::ReadResponse);
    ends[1].qp.enter(QpState::Rts);
    assert_eq!(headers(&ends[1].transmit())[0].1, Opcode::Write);
}

#[test]
fn the_first_message_tells_who_is_there() {
    let setup = |rtr: RtrMessage| {
        let of = |role| StreamConfig { rtr: Some(rtr), ..config(LlpKind::Mpa, role) };
        [Role::Initiator, Role::Responder].map(|role| End::new(of(role)))
    };
    for rtr in [RtrMessage::Write, RtrMessage::Read] {
        let mut ends = setup(rtr);
        assert!(ends.iter().all(|end| !end.stream.heard() && !end.stream.spoken()));
        assert!(ends[1].transmit().is_empty(), "only the initiator speaks first");
        let first = ends[0].transmit();
        let kind = if rtr == RtrMessage::Write { Opcode::Write } else { Opcode::ReadRequest };
        assert_eq!(headers(&first).len(), 1);
        assert_eq!(headers(&first)[0].1, kind);
        assert!(ends[0].stream.spoken());
        ends[1].receive(&first[0]).unwrap();
        exchange(&mut ends);
        let peers = ends.each_ref().map(|end| end.stream.peer());
        // A Read names nobody, and neither does its answer.
        let known =
            if rtr == RtrMessage::Write { PeerExtensions::Extended } else { PeerExtensions::Plain };
        assert_eq!(peers, [known; 2]);
        assert!(ends.iter().all(|end| end.stream.heard() && end.done().is_empty()));
    }
}

#[test]
fn who_needs_to_know_the_peer_asks() {
    let add = SendOp::FetchAdd { to: at(OPEN, 0), stag: key(OPEN), add: 1 };
    let new = || [Role::Initiator, Role::Responder].map(|r| End::new(config(LlpKind::Mpa, r)));
    for op in [add, SendOp::SendImm { imm: 1 }] {
        let mut ends = new();
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        // A Read of nothing, once.
        let probe = ends[0].transmit();
        assert_eq!((probe.len(), headers(&probe)[0].1), (1, Opcode::ReadRequest));
        assert_eq!(ReadRequest::parse(&probe[0][18..]).unwrap().size, 0);
        assert!(ends[0].transmit().is_empty());
        // The answer comes from a peer that has not said its name.
        ends[1].receive(&probe[0]).unwrap();
        let answer = ends[1].transmit();
        assert_eq!((answer.len(), headers(&answer)[0].1), (1, Opcode::ReadResponse));
        ends[0].receive(&answer[0]).unwrap();
        assert_eq!(ends[0].stream.peer(), PeerExtensions::Plain);
        ends[0].transmit();
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::LocQpOpErr)]);
        // A peer that says nothing at all is taken for one that does not know it.
        let mut ends = new();
        ends[0].post(op, &[sge(LOCAL, 0, 8)]);
        ends[0].transmit();
        ends[0].stream.assume_plain();
        ends[0].transmit();
        assert_eq!(ends[0].outcomes(), [(0, WcStatus::LocQpOpErr)]);
    }
    // Over MPA nobody can write atomically.
    let mut ends = pair(LlpKind::Mpa);
    ends[0].post(SendOp::AtomicWrite { to: at(OPEN, 0), stag: key(OPEN) }, &[sge(LOCAL, 0, 8)]);
    ends[0].transmit();
    assert_eq!(ends[0].outcomes(), [(0, WcStatus::LocQpOpErr)]);
    let mut ends = pair(LlpKind::Shuttle);
    ends[0].fill(LOCAL, 0, &[3; 8]);
    ends[0].post(SendOp::AtomicWrite { to: at(OPEN, 0), stag: key(OPEN) }, &[sge(LOCAL, 0, 8)]);
    exchange(&mut ends);
    assert_eq!(ends[1].bytes_at(OPEN, 0, 8), [3; 8]);
}

/// Requests complete when the peer has placed them, not before: it says so in answer to a Read of
/// nothing, or before its next message.
#[test]
fn requests_complete_when_the_peer_confirms_them() {
    for lower in LOWERS {
        let mut ends = pair_of(|role| StreamConfig { confirm: true, ..config(lower, role) });
        let write = SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) };
        ends[0].post(write, &[sge(LOCAL, 0, 8)]);
        ends[0].post(write, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        let kinds: Vec<_> = headers(&sent).iter().map(|(_, kind, _)| *kind).collect();
        assert_eq!(kinds, [Opcode::Write, Opcode::Write, Opcode::ReadRequest]);
        assert_eq!(ends[0].outcomes(), []);
        ends[1].receive_all(&sent);
        let answer = ends[1].transmit();
        assert_eq!(ends[0].outcomes(), []);
        ends[0].receive(&answer[0]).unwrap();
        assert_eq!(ends[0].outcomes(), [0, 1].map(|id| (id, WcStatus::Success)));

        // Sixteen at most share a confirmation.
        for _ in 0..20 {
            ends[0].post(write, &[sge(LOCAL, 0, 8)]);
        }
        let sent = ends[0].transmit();
        let confirms =
            |(_, (_, kind, _)): &(usize, (DdpHeader, Opcode, usize))| *kind == Opcode::ReadRequest;
        let asked: Vec<_> =
            headers(&sent).into_iter().enumerate().filter(confirms).map(|(at, _)| at).collect();
        assert_eq!(asked, [16, 21]);
        ends[1].receive_all(&sent[..17]);
        let answer = ends[1].transmit();
        ends[0].receive_all(&answer);
        assert_eq!(ends[0].outcomes().len(), 16);
        ends[1].receive_all(&sent[17..20]);

        // A message of the peer tells what it has placed, right before it.
        ends[0].recv(9, &[sge(OPEN, 0, 8)]);
        ends[1].post(SendOp::Send, &[sge(LOCAL, 0, 8)]);
        let reply = ends[1].transmit();
        assert_eq!(headers(&reply)[0].2, 0);
        ends[0].receive(&reply[0]).unwrap();
        assert_eq!(ends[0].outcomes(), [18, 19, 20].map(|id| (id, WcStatus::Success)));
        ends[0].receive(&reply[1]).unwrap();
        assert_eq!(ends[0].outcomes(), [(9, WcStatus::Success)]);
        ends[1].receive_all(&sent[20..]);
        exchange(&mut ends);
        assert_eq!(ends[0].outcomes(), [(21, WcStatus::Success)]);
    }
}

#[test]
fn a_write_with_immediate_is_two_messages_to_confirm() {
    for lower in LOWERS {
        let mut ends = pair_of(|role| StreamConfig { confirm: true, ..config(lower, role) });
        ends[1].recv(0, &[]);
        let (to, stag) = (at(OPEN, 0), key(OPEN));
        ends[0].post(SendOp::WriteImm { to, stag, imm: 5 }, &[sge(LOCAL, 0, 8)]);
        let sent = ends[0].transmit();
        assert_eq!(sent.len(), 3);
        ends[1].receive(&sent[0]).unwrap();
        ends[0].recv(1, &[]);
        ends[0].recv(2, &[]);
        let reply = |ends: &mut [End; 2]| {
            ends[1].post(SendOp::Send, &[]);
            let sent = ends[1].transmit();
            ends[0].receive_all(&sent);
            ends[0].outcomes()
        };
        // The Write alone is not all of the request.
        assert_eq!(reply(&mut ends), [(1, WcStatus::Success)]);
        ends[1].receive(&sent[1]).unwrap();
        assert_eq!(reply(&mut ends), [(0, WcStatus::Success), (2, WcStatus::Success)]);
    }
}

/// A message counts once, however many segments it has, and also if it has no bytes.
#[test]
fn every_message_is_confirmed_by_its_own_count() {
    for lower in LOWERS {
        let mut ends = pair_of(|role| StreamConfig { confirm: true, ..config(lower, role) });
        let write = SendOp::Write { to: at(OPEN, 0), stag: key(OPEN) };
        for len in [300, 0, 300] {
            ends[0].post(write, &[sge(LOCAL, 0, len)]);
        }
        let sent = ends[0].transmit();
        // All but the Read that asks.
        ends[1].receive_all(&sent[..7]);
        ends[0].recv(9, &[]);
        ends[1].post(SendOp::Send, &[]);
        let reply = ends[1].transmit();
        ends[0].receive(&reply[0]).unwrap();
        assert_eq!(ends[0].outcomes(), [0, 1, 2].map(|id| (id, WcStatus::Success)));
    }
}
