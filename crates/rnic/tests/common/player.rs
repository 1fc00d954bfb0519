//! Operations of one side on the other, and a model of what memory and completions must be.
//!
//! The model runs each operation at once. That is what the applications see in the end, because
//! each side reaches a part of the other's memory that nobody else touches, and Reads come after
//! the Writes of the same side.

use std::ops::Deref;

use proptest::prelude::*;
use weft_verbs::{SendFlags, SendOp, SendWr};

use super::{ALL, Host, Memory};

/// Bytes of each memory.
const SIZE: u64 = 16 << 10;

#[derive(Clone, Debug)]
pub enum Op {
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
    /// A Read into several places, so much to each.
    Scatter {
        from: u32,
        to: Vec<(u32, u32)>,
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
}

/// Any operation.
pub fn op() -> impl Strategy<Value = Op> {
    let len = prop_oneof![Just(0u32), 1u32..64, 1u32..4000];
    let at = 0u32..(SIZE as u32 - 4000);
    let [from, to] = [at.clone(), at.clone()];
    let write = (len.clone(), from.clone(), to.clone());
    let read = write.clone();
    let places = prop::collection::vec((at, prop_oneof![0u32..8, 0u32..1000]), 2..5);
    let scatter = (from.clone(), places);
    prop_oneof![
        (len.clone(), from.clone()).prop_map(|(len, from)| Op::Send { len, from }),
        write.prop_map(|(len, from, to)| Op::Write { len, from, to }),
        read.prop_map(|(len, from, to)| Op::Read { len, from, to }),
        scatter.prop_map(|(from, to)| Op::Scatter { from, to }),
        (0u32..64, any::<u64>()).prop_map(|(at, value)| Op::Add { at, value }),
        (0u32..64, any::<bool>(), any::<u64>()).prop_map(|(at, compare_right, value)| Op::Swap {
            at,
            compare_right,
            value
        }),
        (len, from, to, any::<u32>()).prop_map(|(len, from, to, imm)| Op::WriteImm {
            len,
            from,
            to,
            imm
        }),
    ]
}

/// One side, its memories, and what the model says they hold.
pub struct Player<S> {
    pub side: S,
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

impl<S: Deref<Target = Host>> Player<S> {
    pub fn new(side: S, seed: u8) -> Self {
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
pub fn act<S: Deref<Target = Host>>(op: &Op, me: &mut Player<S>, peer: &mut Player<S>) {
    let target = |to: u32| peer.target.addr() + u64::from(to);
    match *op {
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
        Op::Scatter { from, ref to } => {
            let op = SendOp::Read { to: target(from), stag: peer.target.key };
            let sge = |&(at, len): &(u32, u32)| me.sink.sge(u64::from(at), len);
            let sges: Vec<_> = to.iter().map(sge).collect();
            me.post(op, &sges);
            let mut from = from;
            for &(at, len) in to {
                copy(&peer.target_model, from, &mut me.sink_model, at, len);
                from += len;
            }
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
pub fn check<S: Deref<Target = Host>>(player: &Player<S>) {
    let difference = |memory: &Memory, model: &[u8]| {
        memory.octets().iter().zip(model).position(|(found, expected)| found != expected)
    };
    assert_eq!(difference(&player.source, &player.source_model), None, "nobody writes the source");
    assert_eq!(difference(&player.sink, &player.sink_model), None, "read results");
    assert_eq!(difference(&player.target, &player.target_model), None, "written by the peer");
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
