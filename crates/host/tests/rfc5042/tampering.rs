//! Section 6.2: writes where the peer may not write, or not any more.

use weft_rnic::wire::rdmap::Opcode;
use weft_rnic::wire::terminate::TerminateCode as T;
use weft_verbs::{Access, SendOp};

use crate::peer::{Peer, tagged, untagged};
use crate::side::{ALL, Side};

/// 6.2.1: the bounds are those of the region, to the byte, and nothing of the segment is placed.
#[test]
fn a_write_ends_at_the_bounds_of_the_region() {
    let cases: [(u64, usize, T); 4] = [
        (15, 2, T::TaggedBounds),
        (48, 1, T::TaggedBounds),
        (16, 33, T::TaggedBounds),
        (u64::MAX - 3, 8, T::TaggedToWrap),
    ];
    for (from, len, code) in cases {
        let victim = Side::new();
        let whole = victim.memory(64, 7, Access::LOCAL_WRITE);
        let at = whole.addr() + 16;
        let key = victim.context.reg_mr(&victim.pd, at, 32, at, ALL).unwrap();
        let mut peer = Peer::of(&victim);
        peer.write(key, at, &[7; 32]);
        peer.expect_service();
        let to = if code == T::TaggedToWrap { from } else { whole.addr() + from };
        peer.write(key, to, &vec![1; len]);
        peer.expect_refusal(code);
        assert!(whole.bytes.iter().all(|byte| *byte == 7));
    }
}

/// 6.2.1: the answer to a Read goes where the Read says, and no byte further.
#[test]
fn an_answer_ends_at_the_bounds_of_its_read() {
    let answers: [(i64, usize, bool); 4] =
        [(-1, 8, false), (0, 9, false), (8, 1, false), (0, 8, true)];
    for (offset, len, other_key) in answers {
        let victim = Side::new();
        let memory = victim.memory(64, 7, ALL);
        let other = victim.memory(64, 7, ALL);
        let mut peer = Peer::of(&victim);
        peer.expect_service();
        victim.send(1, SendOp::Read { to: 0, stag: 9 }, &[memory.sge(16, 8)]);
        let request = peer.hear();
        let stag = u32::from_be_bytes(request[18..22].try_into().unwrap());
        let to = u64::from_be_bytes(request[22..30].try_into().unwrap());
        let stag = if other_key { other.key } else { stag };
        let answer =
            tagged(Opcode::ReadResponse, stag, to.wrapping_add_signed(offset), &vec![1; len]);
        peer.say(&answer);
        let code = if other_key { T::TaggedInvalidStag } else { T::TaggedBounds };
        peer.expect_refusal(code);
        assert!(memory.bytes.iter().chain(&other.bytes).all(|byte| *byte == 7));
        assert_ne!(victim.completions(1)[0].status, 0);
    }
}

/// 6.2.1: nobody has asked.
#[test]
fn an_answer_without_a_question_goes_nowhere() {
    let victim = Side::new();
    let memory = victim.memory(64, 7, ALL);
    let mut peer = Peer::of(&victim);
    peer.say(&tagged(Opcode::ReadResponse, memory.key, memory.addr(), &[1; 8]));
    peer.expect_refusal(T::RdmapUnexpectedOpcode);
    assert!(memory.bytes.iter().all(|byte| *byte == 7));
}

/// 6.2.2: an application revokes the key before it looks at what was written.
#[test]
fn a_revoked_key_modifies_nothing() {
    for by_the_peer in [false, true] {
        let victim = Side::new();
        let memory = victim.memory(64, 7, ALL);
        victim.recv(1, &[]);
        let mut peer = Peer::of(&victim);
        peer.write(memory.key, memory.addr(), &[8; 64]);
        if by_the_peer {
            peer.say(&untagged(Opcode::SendInvalidate, 1, memory.key, &[]));
            assert_eq!(victim.completions(1)[0].imm_data, memory.key);
        } else {
            peer.expect_service();
            victim.context.dereg_mr(memory.key).unwrap();
        }
        peer.write(memory.key, memory.addr(), &[1; 64]);
        peer.expect_refusal(T::TaggedInvalidStag);
        assert!(memory.bytes.iter().all(|byte| *byte == 8));
    }
}
