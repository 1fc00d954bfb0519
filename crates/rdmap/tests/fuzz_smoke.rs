//! The fuzz target of the receiver, over mutations of what peers send.

#[path = "../../../fuzz/src/rdmap.rs"]
mod bodies;
#[path = "../../../fuzz/src/mutate.rs"]
mod mutate;

use bodies::{CONFIRM, FOREIGN, INITIATOR, LOCAL, OPEN, POST, READABLE, SEGMENT, SHUTTLE};
use bodies::{TRANSMIT, UNRELIABLE, address_of, key_of};
use weft_wire::ddp::{TaggedHeader, UntaggedHeader};
use weft_wire::ids::{Msn, STag};
use weft_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};
use weft_wire::terminate::{Terminate, TerminateCode};

fn step(kind: u8, argument: u8, body: &[u8]) -> Vec<u8> {
    [&[kind | argument << 2], &(body.len() as u16).to_be_bytes()[..], body].concat()
}

/// A segment that arrives `ahead` of the first that is missing.
fn segment(ahead: u8, header: &[u8], payload: &[u8]) -> Vec<u8> {
    step(SEGMENT, ahead, &[header, payload].concat())
}

fn tagged(ahead: u8, last: bool, opcode: Opcode, region: u32, at: u64, len: usize) -> Vec<u8> {
    let (stag, to) = (STag(key_of(region)), address_of(region) + at);
    let header = TaggedHeader { last, control: opcode.control(), stag, to };
    segment(ahead, &header.to_bytes(), &vec![9; len])
}

fn untagged(ahead: u8, opcode: Opcode, msn: u32, mo: u32, last: bool, payload: &[u8]) -> Vec<u8> {
    let (qn, ulp) = (opcode.queue().unwrap_or(0), key_of(OPEN));
    let header = UntaggedHeader { last, control: opcode.control(), ulp, qn, msn: Msn(msn), mo };
    segment(ahead, &header.to_bytes(), payload)
}

fn read(msn: u32, region: u32, at: u64, size: u32) -> Vec<u8> {
    let (src_stag, src_to) = (STag(key_of(region)), address_of(region) + at);
    let request = ReadRequest { sink_stag: STag(5), sink_to: 0, size, src_stag, src_to };
    untagged(0, Opcode::ReadRequest, msn, 0, true, &request.to_bytes())
}

fn atomic(msn: u32, region: u32) -> Vec<u8> {
    let request = AtomicRequest {
        op: Ok(AtomicOp::FetchAdd),
        id: 1,
        stag: STag(key_of(region)),
        to: address_of(region) + 8,
        data: 1,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    untagged(0, Opcode::AtomicRequest, msn, 0, true, &request.to_bytes())
}

fn life(mode: u8, steps: &[Vec<u8>]) -> Vec<u8> {
    [&[mode], &steps.concat()[..]].concat()
}

/// Writes, Sends, Reads and Atomics of a peer that keeps to the rules.
fn good(mode: u8) -> Vec<u8> {
    life(
        mode,
        &[
            step(POST, 0, &[]),
            step(POST, 1, &[]),
            tagged(0, false, Opcode::Write, OPEN, 0, 100),
            tagged(0, true, Opcode::Write, OPEN, 100, 50),
            untagged(0, Opcode::Send, 1, 0, false, &[1; 20]),
            untagged(0, Opcode::Send, 1, 20, true, &[2; 10]),
            read(1, READABLE, 16, 200),
            atomic(2, OPEN),
            step(TRANSMIT, 0, &[]),
            untagged(0, Opcode::Immediate, 2, 0, true, &[0; 8]),
            untagged(0, Opcode::SendInvalidate, 3, 0, true, &[3; 8]),
            step(POST, 2, &[]),
        ],
    )
}

/// Answers to this side's own Read and Atomic.
fn answers(mode: u8) -> Vec<u8> {
    let steps =
        [step(POST, 3, &[]), step(POST, 4, &[]), step(POST, 7, &[]), step(TRANSMIT, 0, &[])];
    let sink = tagged(0, true, Opcode::ReadResponse, LOCAL, 24, 24);
    let old = untagged(0, Opcode::AtomicResponse, 1, 0, true, &[0; 12]);
    life(mode, &[steps.concat(), sink, old])
}

/// Segments of Shuttle that come out of order, some of them into each other's place.
fn early(mode: u8) -> Vec<u8> {
    life(
        mode | SHUTTLE,
        &[
            step(POST, 0, &[]),
            tagged(3, false, Opcode::Write, OPEN, 20, 40),
            tagged(1, false, Opcode::Write, OPEN, 0, 60),
            untagged(4, Opcode::SendImmediate, 1, 0, true, &[1; 8]),
            tagged(2, true, Opcode::Write, OPEN, 60, 8),
            tagged(0, true, Opcode::Write, OPEN, 30, 8),
            tagged(5, false, Opcode::Write, FOREIGN, 0, 8),
        ],
    )
}

/// What each ends in a refusal.
fn refused() -> Vec<Vec<u8>> {
    let mut terminate = vec![0; 18];
    Terminate::bare(TerminateCode::RdmapCatastrophic).encode(&mut terminate);
    [
        tagged(0, true, Opcode::Write, FOREIGN, 0, 8),
        tagged(0, true, Opcode::Write, READABLE, 0, 8),
        tagged(0, true, Opcode::Write, OPEN, 250, 8),
        read(1, LOCAL, 0, 8),
        atomic(1, READABLE),
        untagged(0, Opcode::Terminate, 1, 0, true, &terminate),
    ]
    .iter()
    .flat_map(|step| [0, SHUTTLE].map(|mode| life(mode, std::slice::from_ref(step))))
    .collect()
}

#[test]
fn rdmap_receiver() {
    let modes = [0, SHUTTLE, INITIATOR, SHUTTLE | CONFIRM, SHUTTLE | UNRELIABLE];
    let mut seeds: Vec<_> =
        modes.into_iter().flat_map(|mode| [good(mode), answers(mode)]).collect();
    seeds.extend([0, UNRELIABLE].map(early));
    seeds.extend(refused());
    mutate::smoke("rdmap_receiver", &seeds, 20_000, bodies::receiver);
}
