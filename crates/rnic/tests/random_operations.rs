//! Random operations on two connected queue pairs against a model of what memory and completions
//! must be.
//!
//! The model runs each operation at once. That is what the applications see in the end, because
//! each side reaches a part of the other's memory that nobody else touches, and Reads come after
//! the Writes of the same side.

mod common;

use common::{ALL, Memory, Side, pair, settle};
use proptest::prelude::*;
use weft_verbs::{SendFlags, SendOp, SendWr};

/// Octets of each memory.
const SIZE: u64 = 16 << 10;

#[derive(Clone, Debug)]
enum Op {
    Send {
        len: u32,
        from: u32,
    },
    Write {
        len: u32,
        from: u32,
        to: u32,
    },
    Read {
        len: u32,
        from: u32,
        to: u32,
    },
    Add {
        at: u32,
        value: u64,
    },
    Swap {
        at: u32,
        compare_right: bool,
        value: u64,
    },
    WriteImm {
        len: u32,
        from: u32,
        to: u32,
        imm: u32,
    },
    /// Carry up to this many octets to the other side.
    Carry {
        octets: u16,
    },
    /// TCP's segments have this many octets from now on.
    Segments {
        emss: u32,
    },
}

fn emss() -> impl Strategy<Value = u32> {
    prop_oneof![Just(256u32), Just(1460), Just(65_483)]
}

fn op() -> impl Strategy<Value = (bool, Op)> {
    let len = prop_oneof![Just(0u32), 1u32..64, 1u32..4000];
    let at = 0u32..(SIZE as u32 - 4000);
    let op =
        prop_oneof![
            (len.clone(), at.clone()).prop_map(|(len, from)| Op::Send { len, from }),
            (len.clone(), at.clone(), at.clone()).prop_map(|(len, from, to)| Op::Write {
                len,
                from,
                to
            }),
            (len.clone(), at.clone(), at.clone()).prop_map(|(len, from, to)| Op::Read {
                len,
                from,
                to
            }),
            (0u32..64, any::<u64>()).prop_map(|(at, value)| Op::Add { at, value }),
            (0u32..64, any::<bool>(), any::<u64>())
                .prop_map(|(at, compare_right, value)| Op::Swap { at, compare_right, value }),
            (len, at.clone(), at, any::<u32>()).prop_map(|(len, from, to, imm)| Op::WriteImm {
                len,
                from,
                to,
                imm
            }),
            (0u16..5000).prop_map(|octets| Op::Carry { octets }),
            (0u16..5000).prop_map(|octets| Op::Carry { octets }),
            emss().prop_map(|emss| Op::Segments { emss }),
        ];
    (any::<bool>(), op)
}

/// One side, its memories, and what the model says they hold.
struct Player {
    side: Side,
    source: Memory,
    sink: Memory,
    target: Memory,
    words: Memory,
    inbox: Memory,
    source_model: Vec<u8>,
    sink_model: Vec<u8>,
    target_model: Vec<u8>,
    words_model: Vec<u64>,
    expected_sends: Vec<u64>,
    expected_recvs: Vec<(u32, Option<u32>)>,
    posted: u64,
}

impl Player {
    fn new(side: Side, seed: u8) -> Self {
        let mut source = side.memory(SIZE, ALL);
        for (i, word) in source.bytes.iter_mut().enumerate() {
            *word = (i as u64 + u64::from(seed)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        }
        let (sink, target) = (side.memory(SIZE, ALL), side.memory(SIZE, ALL));
        let (words, inbox) = (side.memory(512, ALL), side.memory(4000, ALL));
        Self {
            source_model: source.octets(),
            sink_model: sink.octets(),
            target_model: target.octets(),
            words_model: vec![0; 64],
            expected_sends: Vec::new(),
            expected_recvs: Vec::new(),
            posted: 0,
            side,
            source,
            sink,
            target,
            words,
            inbox,
        }
    }

    fn post(&mut self, op: SendOp, sges: &[weft_verbs::Sge]) {
        // A Write may overtake an earlier Read (RFC 5040, section 5.5), which the model does not.
        let fence = matches!(op, SendOp::Write { .. } | SendOp::WriteImm { .. });
        let fence = if fence { SendFlags::FENCE } else { SendFlags::empty() };
        let flags = SendFlags::SIGNALED | fence;
        self.side.qp.post_send(&SendWr { wr_id: self.posted, op, flags, sges }).unwrap();
        self.expected_sends.push(self.posted);
        self.posted += 1;
    }
}

fn copy(from: &[u8], at: u32, to: &mut [u8], into: u32, len: u32) {
    let (at, into, len) = (at as usize, into as usize, len as usize);
    to[into..into + len].copy_from_slice(&from[at..at + len]);
}

/// Posts the operation and runs it on the model; `me` acts on `peer`.
fn act(op: &Op, me: &mut Player, peer: &mut Player) {
    let target = |to: u32| peer.target.addr() + u64::from(to);
    match *op {
        Op::Carry { octets } => {
            let bytes = me.side.output(usize::from(octets));
            peer.side.input(&bytes);
        }
        Op::Segments { emss } => me.side.endpoint.set_emss(emss),
        Op::Send { len, from } => {
            peer.side.recv(peer.expected_recvs.len() as u64, &[peer.inbox.sge(0, 4000)]);
            peer.expected_recvs.push((len, None));
            let sge = me.source.sge(u64::from(from), len);
            me.post(SendOp::Send, &[sge]);
        }
        Op::Write { len, from, to } => {
            let op = SendOp::Write { to: target(to), stag: peer.target.key };
            let sge = me.source.sge(u64::from(from), len);
            me.post(op, &[sge]);
            copy(&me.source_model, from, &mut peer.target_model, to, len);
        }
        Op::WriteImm { len, from, to, imm } => {
            peer.side.recv(peer.expected_recvs.len() as u64, &[]);
            peer.expected_recvs.push((len, Some(imm)));
            let op = SendOp::WriteImm { to: target(to), stag: peer.target.key, imm };
            let sge = me.source.sge(u64::from(from), len);
            me.post(op, &[sge]);
            copy(&me.source_model, from, &mut peer.target_model, to, len);
        }
        Op::Read { len, from, to } => {
            let op = SendOp::Read { to: target(from), stag: peer.target.key };
            let sge = me.sink.sge(u64::from(to), len);
            me.post(op, &[sge]);
            copy(&peer.target_model, from, &mut me.sink_model, to, len);
        }
        Op::Add { at, value } => {
            let to = peer.words.addr() + u64::from(at) * 8;
            let op = SendOp::FetchAdd { to, stag: peer.words.key, add: value };
            let sge = me.sink.sge(SIZE - 8, 8);
            me.post(op, &[sge]);
            let word = &mut peer.words_model[at as usize];
            me.sink_model[SIZE as usize - 8..].copy_from_slice(&word.to_ne_bytes());
            *word = word.wrapping_add(value);
        }
        Op::Swap { at, compare_right, value } => {
            let to = peer.words.addr() + u64::from(at) * 8;
            let word = &mut peer.words_model[at as usize];
            let compare = if compare_right { *word } else { !*word };
            let op = SendOp::CmpSwap { to, stag: peer.words.key, compare, swap: value };
            let sge = me.sink.sge(SIZE - 8, 8);
            me.sink_model[SIZE as usize - 8..].copy_from_slice(&word.to_ne_bytes());
            if compare_right {
                *word = value;
            }
            me.post(op, &[sge]);
        }
    }
}

/// Checks memory and completions against the model.
fn check(player: &Player) {
    assert_eq!(player.source.octets(), player.source_model, "nobody writes the source");
    assert_eq!(player.sink.octets(), player.sink_model, "read results");
    assert_eq!(player.target.octets(), player.target_model, "written by the peer");
    assert_eq!(player.words.bytes, player.words_model, "atomics of the peer");
    let (mut sends, mut recvs) = (Vec::new(), Vec::new());
    for wc in player.side.completions() {
        assert_eq!(wc.status, 0, "{wc:?}");
        if wc.opcode < 128 {
            sends.push(wc.wr_id);
        } else {
            let imm = (wc.wc_flags & 2 != 0).then_some(wc.imm_data);
            assert_eq!(wc.wr_id, recvs.len() as u64, "receives complete in order");
            recvs.push((wc.byte_len, imm));
        }
    }
    assert_eq!(sends, player.expected_sends, "sends complete once and in order");
    assert_eq!(recvs, player.expected_recvs, "receives complete once");
    assert_eq!(player.side.events(), []);
}

/// A Read or an atomic on memory that both sides have a hand in would see either order; these
/// operations keep to what one side owns, except that both carry.
fn run(ops: &[(bool, Op)], emss: u32) {
    let (near, far) = pair(emss);
    let (mut a, mut b) = (Player::new(near, 1), Player::new(far, 2));
    // A responder speaks once it has heard something.
    settle(&mut a.side, &mut b.side);
    for (by_a, op) in ops {
        if *by_a { act(op, &mut a, &mut b) } else { act(op, &mut b, &mut a) }
    }
    settle(&mut a.side, &mut b.side);
    check(&a);
    check(&b);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn memory_and_completions_are_what_the_model_says(
        ops in prop::collection::vec(op(), 1..50),
        emss in emss(),
    ) {
        run(&ops, emss);
    }
}
