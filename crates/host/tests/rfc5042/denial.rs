//! Section 6.4: peers that use up what others need. Each ends, at worst, its own stream.

use weft_rnic::wire::rdmap::Opcode;
use weft_rnic::wire::terminate::TerminateCode as T;
use weft_verbs::SendOp;

use crate::peer::{IRD, ORD, Peer, another, opcode, tagged, untagged};
use crate::side::{ALL, Side};

/// 6.4.3.1: receives are those of the queue pair, so who sends too much is short of them alone.
#[test]
fn a_peer_that_sends_too_much_has_its_own_receives_only() {
    let victim = Side::new();
    let other = another(&victim, &victim.pd, &victim.cq);
    victim.recv(1, &[]);
    other.recv(2, &[]);
    let (mut greedy, mut modest) = (Peer::of(&victim), Peer::of(&other));
    greedy.say(&untagged(Opcode::Send, 1, 0, &[]));
    greedy.say(&untagged(Opcode::Send, 2, 0, &[]));
    greedy.expect_refusal(T::UntaggedNoBuffer);
    modest.say(&untagged(Opcode::Send, 1, 0, &[]));
    modest.expect_service();
    let mut done: Vec<_> = victim.completions(2).iter().map(|wc| (wc.wr_id, wc.status)).collect();
    done.sort_unstable();
    assert_eq!(done, [(1, 0), (2, 0)]);
}

/// 6.4.3.2 and 6.4.6: a queue that overflows takes with it who completes there, and nobody else.
#[test]
fn an_overflow_ends_the_streams_of_its_own_queue_only() {
    let victim = Side::new();
    let small = victim.context.create_cq(1, None, 9).unwrap();
    let overflowing = another(&victim, &victim.pd, &small);
    for wr_id in 0..8 {
        overflowing.recv(wr_id, &[]);
    }
    let (mut flooding, mut bystander) = (Peer::of(&overflowing), Peer::of(&victim));
    for msn in 1..=8 {
        flooding.say(&untagged(Opcode::Send, msn, 0, &[]));
    }
    assert_eq!(overflowing.reports.wait_over(), 1, "the stream of the queue that overflowed");
    assert_eq!(small.poll(&mut [Default::default(); 8]).unwrap(), 1, "what there was room for");
    assert!(small.poll(&mut [Default::default(); 8]).is_err());
    bystander.expect_service();
    let memory = victim.memory(8, 5, ALL);
    victim.send(1, SendOp::Send, &[memory.sge(0, 8)]);
    assert_eq!(victim.completions(1)[0].status, 0);
}

/// 6.4.3.3: each stream has a queue of its own for Reads of the peer, and it has an end.
#[test]
fn reads_beyond_the_depth_end_their_own_stream() {
    let victim = Side::new();
    let other = another(&victim, &victim.context.alloc_pd(), &victim.cq);
    let memory = victim.memory(1 << 20, 7, ALL);
    let (mut greedy, mut modest) = (Peer::of(&victim), Peer::of(&other));
    // Nobody reads the answers, so they fill TCP's buffers and the requests have to wait.
    for _ in 0..64 * u32::from(IRD) {
        greedy.read(memory.key, memory.addr(), 1 << 20);
    }
    modest.expect_service();
    assert_eq!(victim.reports.wait_over(), 1, "the stream with too many Reads");
    modest.expect_service();
}

/// 7.2: a program that posts more Reads than the peer serves at a time uses up no more there.
#[test]
fn reads_of_this_side_keep_to_the_depth_that_the_peer_has() {
    let victim = Side::new();
    let memory = victim.memory(8, 7, ALL);
    let mut peer = Peer::of(&victim);
    peer.expect_service();
    for wr_id in 0..2 * u64::from(ORD) {
        victim.send(wr_id, SendOp::Read { to: 0, stag: 9 }, &[memory.sge(0, 8)]);
    }
    let requests: Vec<_> = (0..ORD).map(|_| peer.hear()).collect();
    assert!(requests.iter().all(|request| opcode(request) == Opcode::ReadRequest));
    // Nothing but the answer to this one comes before one of them is answered.
    peer.expect_service();
    for request in requests {
        let sink = u32::from_be_bytes(request[18..22].try_into().unwrap());
        let to = u64::from_be_bytes(request[22..30].try_into().unwrap());
        peer.say(&tagged(Opcode::ReadResponse, sink, to, &[8; 8]));
        assert_eq!(opcode(&peer.hear()), Opcode::ReadRequest);
    }
}

/// 6.4.4: segments without effect, which end no stream, cost no more than others.
#[test]
fn messages_without_effect_are_taken_by_the_thousand() {
    let victim = Side::new();
    let mut idle = Peer::of(&victim);
    for _ in 0..20 {
        for _ in 0..1000 {
            idle.write(0, 0, &[]);
        }
        idle.expect_service();
    }
}
