//! Peers that send what they may not: the connection fails with a reason, and nothing panics.

mod common;

use common::rnic::ALL;
use common::{End, pair, settle, small};
use proptest::prelude::*;
use weft_sdp::{SdpEvent, SdpFault, Violation};
use weft_verbs::{SendFlags, SendOp, SendWr};
use weft_wire::sdp::{self, Base, Flags, MessageId, SdpMessage};

/// Sends `bytes` as a message of the second end, past its connection.
fn inject(ends: &mut [End; 2], bytes: &[u8]) {
    let mut memory = ends[1].side.memory(4096, ALL);
    for (word, octets) in memory.bytes.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..octets.len()].copy_from_slice(octets);
        *word = u64::from_ne_bytes(whole);
    }
    let sges = [memory.sge(0, bytes.len() as u32)];
    let (op, flags) = (SendOp::Send, SendFlags::empty());
    // A slot's name, but its connection is not asked any more.
    ends[1].side.qp.post_send(&SendWr { wr_id: 0, op, flags, sges: &sges }).unwrap();
    for _ in 0..4 {
        let octets = ends[1].side.output(usize::MAX);
        ends[0].side.input(&octets);
        let answer = ends[0].side.output(usize::MAX);
        ends[1].side.input(&answer);
        ends[1].side.completions();
        ends[0].settle();
    }
}

fn message(base: Base, message: &SdpMessage, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    sdp::encode(&base, message, payload.len() as u32, &mut bytes);
    bytes.extend_from_slice(payload);
    bytes
}

fn base(seq: u32, ack: u32) -> Base {
    Base { flags: Flags(0), bufs: 8, seq, ack }
}

const DATA: SdpMessage = SdpMessage::Plain(MessageId::Data);
const END: SdpMessage = SdpMessage::Plain(MessageId::DisConn);

/// What becomes of a connection to which a peer says these.
fn verdict(messages: &[Vec<u8>]) -> Option<SdpFault> {
    let mut ends = pair(&small());
    settle(&mut ends);
    for bytes in messages {
        inject(&mut ends, bytes);
    }
    let fault = ends[0].connection.fault();
    assert_eq!(
        fault.is_some(),
        fault.is_some_and(|fault| ends[0].took_event(SdpEvent::Failed(fault)))
    );
    fault
}

#[test]
fn each_wrong_message_has_its_fault() {
    let wrong = |bytes: Vec<u8>| match verdict(&[bytes]) {
        Some(SdpFault::Peer(violation)) => violation,
        other => panic!("{other:?}"),
    };
    let sequence = Violation::Sequence { found: 2, expected: 1 };
    assert_eq!(wrong(message(base(2, 0), &DATA, b"")), sequence);
    assert_eq!(wrong(message(base(1, 1), &DATA, b"")), Violation::Acknowledgement(1));
    assert!(matches!(wrong(message(base(1, 0), &END, b"x")), Violation::Unexpected(_)));
    let mut long = message(base(1, 0), &DATA, b"octets");
    long.truncate(20);
    assert!(matches!(wrong(long), Violation::Format(_)));
    assert!(matches!(wrong(vec![0xff; 3]), Violation::Format(_)));
}

#[test]
fn nothing_follows_the_end() {
    let end = message(base(1, 0), &END, b"");
    let late = message(base(2, 0), &DATA, b"late");
    assert_eq!(verdict(&[end.clone(), late]), Some(SdpFault::Peer(Violation::AfterEnd)));
    assert_eq!(verdict(&[end.clone(), message(base(2, 0), &DATA, b"")]), None);
    let again = verdict(&[end, message(base(2, 0), &END, b"")]);
    assert!(matches!(again, Some(SdpFault::Peer(Violation::Unexpected(_)))), "{again:?}");
}

#[test]
fn an_abort_is_a_reset() {
    let abort = SdpMessage::Plain(MessageId::AbortConn);
    assert_eq!(verdict(&[message(base(1, 0), &abort, b"")]), Some(SdpFault::Reset));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_octets_are_survived(
        messages in prop::collection::vec(
            (any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..60), any::<bool>()),
            1..6,
        ),
    ) {
        let kinds = MessageId::ALL;
        let bytes: Vec<_> = messages
            .iter()
            .enumerate()
            .map(|(seq, (head, rest, sound))| {
                if !sound {
                    return rest.clone();
                }
                let mut bytes = message(base(seq as u32 + 1, 0), &DATA, rest);
                bytes[0] = kinds[usize::from(head[0]) % kinds.len()] as u8;
                bytes[1] = head[1];
                bytes[3] = head[2] % 12;
                bytes
            })
            .collect();
        verdict(&bytes);
    }
}
