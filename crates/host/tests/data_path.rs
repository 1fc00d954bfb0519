//! Every operation between two queue pairs, with the data checked.
#![allow(dead_code)]

mod common;

use common::{ALL, pair};
use weft_verbs::{SendOp, WcOpcode, WcStatus};

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}

#[test]
fn sends_of_every_size_arrive_whole() {
    let (a, b) = pair();
    for (i, len) in [0usize, 1, 7, 4096, 65_536, 1_000_003].into_iter().enumerate() {
        let mut source = a.memory(len.max(1), 0, ALL);
        source.bytes.copy_from_slice(&pattern(len.max(1), i as u8));
        let target = b.memory(len.max(1), 0xee, ALL);
        b.recv(10, &[target.sge(0, len)]);
        a.send(20, SendOp::Send, &[source.sge(0, len)]);
        let sent = a.completions(1)[0];
        assert_eq!((sent.wr_id, sent.status), (20, WcStatus::Success as u32));
        let got = b.completions(1)[0];
        assert_eq!((got.wr_id, got.status, got.byte_len), (10, 0, len as u32));
        assert_eq!(target.bytes[..len], source.bytes[..len]);
    }
}

#[test]
fn writes_and_reads_move_memory_without_the_peer() {
    let (a, b) = pair();
    for len in [1usize, 100, 70_000, 3_000_000] {
        let mut source = a.memory(len, 0, ALL);
        source.bytes.copy_from_slice(&pattern(len, 3));
        let target = b.memory(len, 0, ALL);
        let back = a.memory(len, 0, ALL);
        let (to, stag) = (target.addr(), target.key);
        a.send(1, SendOp::Write { to, stag }, &[source.sge(0, len)]);
        a.send(2, SendOp::Read { to, stag }, &[back.sge(0, len)]);
        let done = a.completions(2);
        assert_eq!(done.iter().map(|w| (w.wr_id, w.status)).collect::<Vec<_>>(), [(1, 0), (2, 0)]);
        assert_eq!(done[1].opcode, WcOpcode::RdmaRead as u32);
        assert_eq!(target.bytes, source.bytes);
        assert_eq!(back.bytes, source.bytes);
    }
}

#[test]
fn weft_peers_do_atomics_and_immediate_data_from_either_side() {
    let (a, b) = pair();
    let cell = b.memory(16, 0, ALL);
    let old = a.memory(8, 0, ALL);
    let (to, stag) = (cell.addr(), cell.key);
    a.send(1, SendOp::FetchAdd { to, stag, add: 5 }, &[old.sge(0, 8)]);
    assert_eq!(a.completions(1)[0].status, 0);
    a.send(2, SendOp::CmpSwap { to, stag, compare: 5, swap: 9 }, &[old.sge(0, 8)]);
    assert_eq!(a.completions(1)[0].status, 0);
    assert_eq!(old.bytes, 5u64.to_ne_bytes());
    assert_eq!(cell.bytes[..8], 9u64.to_ne_bytes());
    b.recv(7, &[]);
    let imm = u32::from_ne_bytes(*b"imm!");
    a.send(3, SendOp::WriteImm { to, stag, imm }, &[old.sge(0, 8)]);
    let got = b.completions(1)[0];
    assert_eq!((got.wr_id, got.imm_data, got.byte_len), (7, imm, 8));
    assert_eq!(got.opcode, WcOpcode::RecvRdmaWithImm as u32);
    let mine = a.memory(8, 0, ALL);
    let result = b.memory(8, 1, ALL);
    let add = SendOp::FetchAdd { to: mine.addr(), stag: mine.key, add: 3 };
    b.send(4, add, &[result.sge(0, 8)]);
    assert_eq!(b.completions(1)[0].status, 0);
    assert_eq!(mine.bytes, 3u64.to_ne_bytes());
}
