//! Section 6.3: reads of what the peer may not read, or not any more.

use weft_rnic::wire::ddp::DdpHeader;
use weft_rnic::wire::rdmap::Opcode;
use weft_rnic::wire::terminate::TerminateCode as T;
use weft_verbs::Access;

use crate::peer::{Peer, untagged};
use crate::side::{ALL, Side};

/// 6.3.1 and 6.3.4: what is registered can be read, and not a byte more.
#[test]
fn a_read_ends_at_the_bounds_of_the_region() {
    for (from, size, code) in [
        (15, 2, T::RdmapBounds),
        (48, 1, T::RdmapBounds),
        (16, 33, T::RdmapBounds),
        (16, u32::MAX, T::RdmapBounds),
    ] {
        let victim = Side::new();
        let whole = victim.memory(64, 7, Access::LOCAL_WRITE);
        let at = whole.addr() + 16;
        let key = victim.context.reg_mr(&victim.pd, at, 32, at, ALL).unwrap();
        let mut peer = Peer::of(&victim);
        peer.read(key, at, 32);
        let answer = peer.hear();
        assert_eq!(DdpHeader::parse(&answer).unwrap().1, [7; 32]);
        peer.read(key, whole.addr() + from, size);
        peer.expect_refusal(code);
    }
}

/// 6.3.3: a key that is revoked when the transfer is over shows nothing that comes after it.
#[test]
fn a_revoked_key_shows_nothing() {
    for by_the_peer in [false, true] {
        let victim = Side::new();
        let memory = victim.memory(64, 7, ALL);
        victim.recv(1, &[]);
        let mut peer = Peer::of(&victim);
        peer.read(memory.key, memory.addr(), 64);
        peer.hear();
        if by_the_peer {
            peer.say(&untagged(Opcode::SendSolicitedInvalidate, 1, memory.key, &[]));
            victim.completions(1);
        } else {
            victim.context.dereg_mr(memory.key).unwrap();
        }
        peer.read(memory.key, memory.addr(), 64);
        peer.expect_refusal(T::RdmapInvalidStag);
    }
}

/// 6.3.5: a buffer for writing cannot be read, but for the Read of nothing by which a peer makes
/// sure that its Writes have arrived; and the other way around.
#[test]
fn rights_are_those_of_the_registration() {
    let victim = Side::new();
    let inbox = victim.memory(64, 7, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
    let mut peer = Peer::of(&victim);
    peer.write(inbox.key, inbox.addr(), &[8; 64]);
    peer.expect_service();
    peer.read(inbox.key, inbox.addr(), 1);
    peer.expect_refusal(T::RdmapAccess);

    let victim = Side::new();
    let outbox = victim.memory(64, 7, Access::REMOTE_READ);
    let mut peer = Peer::of(&victim);
    peer.write(outbox.key, outbox.addr(), &[8; 1]);
    peer.expect_refusal(T::RdmapAccess);
    assert!(outbox.bytes.iter().all(|byte| *byte == 7));
}

/// 6.2.3 and 6.3.6: two keys of the same memory keep their own rights, to read and to write.
#[test]
fn a_key_does_not_lend_its_rights_to_another_of_the_same_memory() {
    for writes in [false, true] {
        let victim = Side::new();
        let memory = victim.memory(64, 7, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let at = memory.addr();
        let readable = victim.context.reg_mr(&victim.pd, at, 64, at, Access::REMOTE_READ).unwrap();
        let mut peer = Peer::of(&victim);
        peer.write(memory.key, at, &[8; 64]);
        peer.read(readable, at, 64);
        assert_eq!(DdpHeader::parse(&peer.hear()).unwrap().1, [8; 64]);
        match writes {
            false => peer.read(memory.key, at, 64),
            true => peer.write(readable, at, &[9; 64]),
        }
        peer.expect_refusal(T::RdmapAccess);
        assert!(memory.bytes.iter().all(|byte| *byte == 8));
    }
}

/// 6.2.3 and 6.3.6: the end of one key is not that of another of the same memory.
#[test]
fn a_key_that_is_revoked_leaves_another_of_the_same_memory() {
    let victim = Side::new();
    let memory = victim.memory(64, 7, ALL);
    let at = memory.addr();
    let other = victim.context.reg_mr(&victim.pd, at, 64, at, ALL).unwrap();
    victim.recv(1, &[]);
    let mut peer = Peer::of(&victim);
    peer.say(&untagged(Opcode::SendInvalidate, 1, memory.key, &[]));
    victim.completions(1);
    peer.write(other, at, &[8; 64]);
    peer.read(other, at, 64);
    assert_eq!(DdpHeader::parse(&peer.hear()).unwrap().1, [8; 64]);
    peer.write(memory.key, at, &[9; 64]);
    peer.expect_refusal(T::TaggedInvalidStag);
    assert!(memory.bytes.iter().all(|byte| *byte == 8));
}
