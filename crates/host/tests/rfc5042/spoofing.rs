//! Section 6.1: keys on streams that they are not for.

use weft_rnic::wire::rdmap::Opcode;
use weft_rnic::wire::terminate::TerminateCode as T;
use weft_verbs::mr::{Bind, WindowKind};
use weft_verbs::{Access, SendOp};

use crate::peer::{Peer, another, untagged};
use crate::side::{ALL, Side};

/// What is tried with a key and an address.
type Attack = fn(&mut Peer, u32, u64);

/// 6.1.1, and 6.4.5 for the last of the three.
#[test]
fn a_key_is_of_no_use_on_a_stream_of_another_protection_domain() {
    let attacks: [(Attack, T); 3] = [
        (|peer, key, at| peer.write(key, at, &[1; 8]), T::TaggedNotAssociated),
        (|peer, key, at| peer.read(key, at, 8), T::RdmapNotAssociated),
        (
            |peer, key, _| peer.say(&untagged(Opcode::SendInvalidate, 1, key, &[])),
            T::RdmapCannotInvalidate,
        ),
    ];
    for (attack, code) in attacks {
        let victim = Side::new();
        let memory = victim.memory(64, 7, ALL);
        let other = another(&victim, &victim.context.alloc_pd(), &victim.cq);
        other.recv(1, &[]);
        let (mut rightful, mut attacker) = (Peer::of(&victim), Peer::of(&other));
        attack(&mut attacker, memory.key, memory.addr());
        attacker.expect_refusal(code);
        assert!(memory.bytes.iter().all(|byte| *byte == 7));
        rightful.write(memory.key, memory.addr(), &[8; 8]);
        rightful.expect_service();
        assert_eq!(memory.bytes[..9], [8, 8, 8, 8, 8, 8, 8, 8, 7]);
    }
}

/// 6.1.1: the scope of a key may be one stream of several in its protection domain. Then no other
/// stream revokes it either (6.4.5).
#[test]
fn a_window_of_type_2_is_of_no_use_on_another_stream() {
    let attacks: [(Attack, T); 2] = [
        (|peer, key, at| peer.write(key, at, &[1; 8]), T::TaggedNotAssociated),
        (
            |peer, key, _| peer.say(&untagged(Opcode::SendInvalidate, 1, key, &[])),
            T::RdmapCannotInvalidate,
        ),
    ];
    for (attack, code) in attacks {
        let victim = Side::new();
        let memory = victim.memory(64, 7, ALL);
        let other = another(&victim, &victim.pd, &victim.cq);
        let (mut rightful, mut attacker) = (Peer::of(&victim), Peer::of(&other));
        rightful.expect_service();
        let window = victim.context.alloc_mw(&victim.pd, WindowKind::Type2);
        let (key, access) = (Bind::next_key(window), Access::REMOTE_WRITE);
        let bind = Bind { window, key, region: memory.key, addr: memory.addr(), len: 32, access };
        victim.send(1, SendOp::BindMw(bind), &[]);
        assert_eq!(victim.completions(1)[0].status, 0);
        other.recv(2, &[]);
        attack(&mut attacker, key, memory.addr());
        attacker.expect_refusal(code);
        assert!(memory.bytes.iter().all(|byte| *byte == 7));
        rightful.write(key, memory.addr(), &[8; 8]);
        rightful.expect_service();
        assert_eq!(memory.bytes[7..9], [8, 7]);
    }
}

/// 6.1.1: a key cannot be guessed from those before it, nor comes again soon.
#[test]
fn keys_cannot_be_predicted() {
    let victim = Side::new();
    let mut keys = Vec::new();
    for _ in 0..200 {
        let memory = victim.memory(8, 0, ALL);
        keys.push(memory.key);
        victim.context.dereg_mr(memory.key).unwrap();
    }
    let steps = keys.windows(2).map(|pair| pair[1].wrapping_sub(pair[0]));
    let mut steps: Vec<u32> = steps.collect();
    steps.sort_unstable();
    steps.dedup();
    assert!(steps.len() > 190, "keys follow from each other: {keys:x?}");
    keys.sort_unstable();
    keys.dedup();
    assert!(keys.len() > 190, "keys come again");
}
