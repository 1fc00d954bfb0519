//! A peer that has the key and breaks the rules of RDMAP and DDP (RFC 5042, sections 6 and 7), over
//! Shuttle. Each breach ends its own connection with the Terminate that the RFCs name, leaves the
//! memory of the program alone, and the program serves the next peer.

use weft_testkit::{Running, free_port};
use weft_wire::ids::STag;
use weft_wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};
use weft_wire::terminate::TerminateCode as T;

use crate::kit::Scene;
use crate::peer::{Peer, parse, read, tagged, untagged};
use crate::target::{INBOX, Region, SIZE, Told, connections};

/// What is sent, and the refusal that it meets.
type Breach = (fn(&Told) -> Vec<Vec<u8>>, T);

/// Makes each breach on a connection of its own; afterwards a rightful peer is served.
fn all_are_refused(breaches: &[Breach]) {
    let Some(scene) = Scene::with(&["cc", "ss"]) else { return };
    let port = free_port();
    let mut target = connections(&scene, port);
    for (at, (breach, code)) in breaches.iter().enumerate() {
        let (mut peer, said) = Peer::connect(&scene, port, b"");
        breach(&Told::parse(&said)).into_iter().for_each(|segment| peer.say(segment));
        assert_eq!(peer.until_terminated(), *code, "breach {at}");
        target = until_over(target, at + 1);
    }
    is_served(&scene, port, target);
}

/// Waits until the target has looked at its memory after `count` connections.
fn until_over(target: Running, count: usize) -> Running {
    let looked = |target: &Running| {
        target.stdout().lines().filter(|line| ["untouched", "changed"].contains(line)).count()
    };
    let target = target.until("looked", |target| looked(target) >= count);
    assert!(!target.stdout().contains("changed"), "{}", target.end());
    target
}

/// A rightful peer writes, reads what it has written, and sends the message that ends the target.
fn is_served(scene: &Scene, port: u16, target: Running) {
    let (mut peer, said) = Peer::connect(scene, port, b"");
    let Region { addr, key } = Told::parse(&said).open;
    peer.say(tagged(Opcode::Write, key, addr, &[8; SIZE]));
    peer.say(read(1, key, addr, SIZE as u32));
    assert_eq!(parse(&peer.hear()), (Opcode::ReadResponse, &[8; SIZE][..]));
    peer.say(untagged(Opcode::Send, (0, 1, 0), &[1]));
    peer.until_taken();
    peer.close();
    target.wait().success().said("open 8 8\nuntouched");
}

#[test]
fn writes_beyond_keys_bounds_and_rights_are_refused() {
    fn write(region: Region, offset: i64, len: usize) -> Vec<Vec<u8>> {
        let to = region.addr.wrapping_add_signed(offset);
        vec![tagged(Opcode::Write, region.key, to, &vec![1; len])]
    }
    all_are_refused(&[
        (
            |told| write(Region { key: told.open.key ^ 0x100, ..told.open }, 0, 8),
            T::TaggedInvalidStag,
        ),
        (|told| write(Region { key: 0, ..told.open }, 0, 8), T::TaggedInvalidStag),
        (|told| write(told.open, -1, 2), T::TaggedBounds),
        (|told| write(told.open, SIZE as i64, 1), T::TaggedBounds),
        (|told| write(told.open, 0, SIZE + 1), T::TaggedBounds),
        (|told| write(told.open, 0, 1000), T::TaggedBounds),
        (|told| write(Region { addr: u64::MAX - 3, ..told.open }, 0, 8), T::TaggedToWrap),
        (|told| write(told.source, 0, 8), T::RdmapAccess),
        (|told| write(told.closed, 0, 8), T::RdmapAccess),
    ]);
}

#[test]
fn reads_beyond_keys_bounds_and_rights_are_refused() {
    fn from(region: Region, offset: i64, size: u32) -> Vec<Vec<u8>> {
        vec![read(1, region.key, region.addr.wrapping_add_signed(offset), size)]
    }
    all_are_refused(&[
        (
            |told| from(Region { key: told.open.key ^ 0x100, ..told.open }, 0, 8),
            T::RdmapInvalidStag,
        ),
        (|told| from(told.open, -1, 2), T::RdmapBounds),
        (|told| from(told.open, SIZE as i64, 1), T::RdmapBounds),
        (|told| from(told.open, 0, SIZE as u32 + 1), T::RdmapBounds),
        (|told| from(told.open, 0, u32::MAX), T::RdmapBounds),
        (|told| from(Region { addr: u64::MAX - 3, ..told.open }, 0, 8), T::RdmapToWrap),
        (|told| from(told.sink, 0, 8), T::RdmapAccess),
        (|told| from(told.closed, 0, 8), T::RdmapAccess),
        (|told| vec![read(2, told.open.key, told.open.addr, 8)], T::UntaggedInvalidMsn),
        (|told| vec![read(0, told.open.key, told.open.addr, 8)], T::UntaggedInvalidMsn),
        (|told| vec![read(1, told.open.key, told.open.addr, 8)[..40].to_vec()], T::LlpFraming),
    ]);
}

#[test]
fn answers_beyond_their_read_are_refused() {
    // Offset and length of the answer to a Read of eight bytes, and whether it has its key.
    let breaches: [(i64, usize, bool); 5] =
        [(-1, 8, true), (0, 9, true), (8, 1, true), (0, 7, true), (0, 8, false)];
    let Some(scene) = Scene::with(&["cc", "ss"]) else { return };
    let port = free_port();
    let mut target = connections(&scene, port);
    for (at, (offset, len, own_key)) in breaches.into_iter().enumerate() {
        let (mut peer, said) = Peer::connect(&scene, port, b"read");
        let ulpdu = peer.hear();
        let (Opcode::ReadRequest, request) = parse(&ulpdu) else { panic!("{ulpdu:?}") };
        let request = ReadRequest::parse(request).unwrap();
        let to = request.sink_to.wrapping_add_signed(offset);
        let key = if own_key { request.sink_stag.0 } else { Told::parse(&said).open.key };
        peer.say(tagged(Opcode::ReadResponse, key, to, &vec![1; len]));
        assert_eq!(peer.until_terminated(), T::TaggedBounds, "breach {at}");
        target = until_over(target, at + 1);
    }
    is_served(&scene, port, target);
}

#[test]
fn messages_beyond_their_numbers_and_receives_are_refused() {
    fn send(numbers: (u32, u32, u32), len: usize) -> Vec<Vec<u8>> {
        vec![untagged(Opcode::Send, numbers, &vec![1; len])]
    }
    all_are_refused(&[
        (|_| send((0, 1, 0), INBOX + 1), T::UntaggedTooLong),
        (|_| send((0, 1, 0), 1000), T::UntaggedTooLong),
        (|_| send((0, 2, 0), 8), T::UntaggedInvalidMsn),
        (|_| send((0, 0, 0), 8), T::UntaggedInvalidMsn),
        (|_| send((0, u32::MAX, 0), 8), T::UntaggedInvalidMsn),
        (|_| send((0, 1, 4), 8), T::UntaggedInvalidMo),
        (|_| send((0, 1, u32::MAX), 8), T::UntaggedTooLong),
        (|_| send((7, 1, 0), 8), T::UntaggedInvalidQn),
    ]);
}

#[test]
fn opcodes_out_of_place_are_refused() {
    fn atomic(region: Region, offset: u64) -> Vec<Vec<u8>> {
        let request = AtomicRequest {
            op: Ok(AtomicOp::FetchAdd),
            id: 1,
            stag: STag(region.key),
            to: region.addr + offset,
            data: 1,
            mask: 0,
            compare: 0,
            compare_mask: u64::MAX,
        };
        vec![untagged(Opcode::AtomicRequest, (1, 1, 0), &request.to_bytes())]
    }
    all_are_refused(&[
        // Nobody has asked.
        (
            |told| vec![tagged(Opcode::ReadResponse, told.open.key, told.open.addr, &[1; 8])],
            T::TaggedBounds,
        ),
        (|_| vec![untagged(Opcode::AtomicResponse, (3, 1, 0), &[0; 12])], T::RdmapUnexpectedOpcode),
        (|told| atomic(told.sink, 0), T::RdmapAccess),
        (|told| atomic(told.open, 4), T::RdmapStreamCatastrophic),
        (|told| atomic(told.open, SIZE as u64), T::RdmapBounds),
    ]);
}
