//! Frames follow the segment size of TCP, which is not known in full when a connection begins.
#![allow(dead_code)]

mod common;

use std::fs;
use std::io::Read;

use common::{ALL, Side, agreed, sockets};
use weft_host::mpa::MpaRole;
use weft_verbs::SendOp;

/// Bytes of each Write, and how many of them are sent.
const LEN: usize = 1 << 20;
const WRITES: usize = 16;

/// Whether the loopback interface carries segments of 64 KiB, as it does unless somebody chose
/// otherwise.
fn loopback_is_wide() -> bool {
    let mtu = fs::read_to_string("/sys/class/net/lo/mtu").unwrap_or_default();
    mtu.trim().parse::<u32>().is_ok_and(|mtu| mtu >= 65_536)
}

/// The lengths of the ULPDUs among `octets`, up to the first that is not whole.
fn ulpdu_lengths(mut octets: &[u8]) -> Vec<usize> {
    let mut all = Vec::new();
    while let Some((length, _)) = octets.split_first_chunk::<2>() {
        let len = usize::from(u16::from_be_bytes(*length));
        let Some(rest) = octets.get((2 + len).next_multiple_of(4) + 4..) else { break };
        all.push(len);
        octets = rest;
    }
    all
}

#[test]
fn frames_grow_with_the_segments_of_a_fast_path() {
    let (near, mut far) = sockets();
    let side = Side::new();
    side.attach(near, MpaRole::Initiator, &agreed());
    let source = side.memory(LEN, 7, ALL);
    let reader = std::thread::spawn(move || {
        let mut octets = Vec::new();
        far.read_to_end(&mut octets).map(|_| octets)
    });
    for wr_id in 0..WRITES {
        side.send(wr_id as u64, SendOp::Write { to: 0, stag: 1 << 20 }, &[source.sge(0, LEN)]);
        assert_eq!(side.completions(1)[0].status, 0);
    }
    side.qp.disconnect();
    let lengths = ulpdu_lengths(&reader.join().unwrap().unwrap());
    assert!(lengths.iter().sum::<usize>() > WRITES * LEN);
    let (first, last) = lengths.split_at(lengths.len() / 2);
    let longest = |part: &[usize]| part.iter().copied().max();
    assert!(longest(last) >= longest(first), "{lengths:?}");
    assert!(!loopback_is_wide() || longest(last) > Some(60_000), "{lengths:?}");
}
