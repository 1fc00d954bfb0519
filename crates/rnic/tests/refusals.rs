//! What a hostile or broken peer sends is refused with the Terminate that the RFCs name, places
//! nothing, and ends this stream alone (RFC 5040, 5041, 5044, 7306; RFC 5042 as a checklist).

mod common;

use common::{ALL, Memory, Side, agreed, fpdu, terminate_in};
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_rnic::wire::ddp::{TaggedHeader, UntaggedHeader};
use weft_rnic::wire::ids::{Msn, STag};
use weft_rnic::wire::rdmap::{AtomicOp, AtomicRequest, Opcode, ReadRequest};
use weft_rnic::wire::terminate::TerminateCode as T;
use weft_verbs::{Access, AsyncKind, SendOp, WcStatus};

fn tagged(opcode: Opcode, stag: u32, to: u64, payload: &[u8]) -> Vec<u8> {
    let header = TaggedHeader { last: true, control: opcode.control(), stag: STag(stag), to };
    [&header.to_bytes(), payload].concat()
}

fn untagged(opcode: Opcode, qn: u32, msn: u32, mo: u32, payload: &[u8]) -> Vec<u8> {
    let control = opcode.control();
    let header = UntaggedHeader { last: true, control, ulp: 0, qn, msn: Msn(msn), mo };
    [&header.to_bytes(), payload].concat()
}

fn read(stag: u32, to: u64, size: u32) -> Vec<u8> {
    let request =
        ReadRequest { sink_stag: STag(1), sink_to: 0, size, src_stag: STag(stag), src_to: to };
    untagged(Opcode::ReadRequest, 1, 1, 0, &request.to_bytes())
}

fn atomic(stag: u32, to: u64) -> Vec<u8> {
    let request = AtomicRequest {
        op: Ok(AtomicOp::FetchAdd),
        id: 1,
        stag: STag(stag),
        to,
        data: 1,
        mask: 0,
        compare: 0,
        compare_mask: u64::MAX,
    };
    untagged(Opcode::AtomicRequest, 1, 1, 0, &request.to_bytes())
}

/// A responder with open memory, closed memory and memory of another domain, and one receive of
/// eight bytes.
struct Victim {
    side: Side,
    open: Memory,
    local: Memory,
    foreign: Memory,
    inbox: Memory,
}

impl Victim {
    fn new() -> Self {
        let side = Side::new(MpaRole::Responder, &agreed(), 1460);
        let open = side.memory(64, ALL);
        let local = side.memory(64, Access::LOCAL_WRITE);
        let other = side.device.alloc_pd();
        let foreign = side.memory_in(&other, 64, ALL);
        let inbox = side.memory(8, Access::LOCAL_WRITE);
        side.recv(50, &[inbox.sge(0, 8)]);
        Self { side, open, local, foreign, inbox }
    }

    /// Feeds `frames` and expects `code` back, all memory untouched and the receive flushed.
    fn refuses(mut self, frames: &[Vec<u8>], code: T) -> Self {
        let before: Vec<_> = frames.iter().flatten().copied().collect();
        self.side.input(&before);
        let terminate = terminate_in(&self.side.output(usize::MAX));
        assert_eq!(terminate.map(|t| t.code), Some(code));
        for memory in [&self.open, &self.local, &self.foreign, &self.inbox] {
            assert!(memory.bytes.iter().all(|w| *w == 0), "memory was written");
        }
        let statuses = self.side.statuses();
        assert_eq!(statuses.len(), 1, "the receive completes once: {statuses:?}");
        assert_ne!(statuses[0].1, WcStatus::Success as u32);
        assert!(self.side.mpa.is_finished());
        // Whatever comes after the fault is dropped.
        let late = fpdu(&tagged(Opcode::Write, self.open.key, self.open.addr(), &[1; 8]));
        self.side.input(&late);
        assert!(self.open.bytes.iter().all(|w| *w == 0));
        assert_eq!(self.side.statuses(), []);
        self
    }
}

fn refuse(make: impl FnOnce(&Victim) -> Vec<u8>, code: T) -> Victim {
    let victim = Victim::new();
    let frame = fpdu(&make(&victim));
    victim.refuses(&[frame], code)
}

#[test]
fn writes_are_bounded_by_key_domain_range_and_right() {
    let write = |stag, to, len: usize| tagged(Opcode::Write, stag, to, &vec![1; len]);
    refuse(|v| write(v.open.key ^ 1, v.open.addr(), 8), T::TaggedInvalidStag);
    refuse(|v| write(v.open.key, v.open.addr() - 1, 8), T::TaggedBounds);
    refuse(|v| write(v.open.key, v.open.addr() + 57, 8), T::TaggedBounds);
    refuse(|v| write(v.open.key, u64::MAX - 15, 32), T::TaggedToWrap);
    refuse(|v| write(v.foreign.key, v.foreign.addr(), 8), T::TaggedNotAssociated);
    let victim = refuse(|v| write(v.local.key, v.local.addr(), 8), T::RdmapAccess);
    let kinds: Vec<_> = victim.side.events().iter().map(|e| e.kind).collect();
    assert_eq!(kinds, [AsyncKind::QpAccessErr]);
}

#[test]
fn reads_are_bounded_by_key_domain_range_and_right() {
    refuse(|v| read(v.open.key ^ 1, v.open.addr(), 8), T::RdmapInvalidStag);
    refuse(|v| read(v.open.key, v.open.addr() + 60, 8), T::RdmapBounds);
    refuse(|v| read(v.open.key, u64::MAX - 3, 8), T::RdmapToWrap);
    refuse(|v| read(v.foreign.key, v.foreign.addr(), 8), T::RdmapNotAssociated);
    refuse(|v| read(v.local.key, v.local.addr(), 8), T::RdmapAccess);
}

#[test]
fn a_refused_read_is_quoted_in_full() {
    let victim = Victim::new();
    let ulpdu = read(7, 0, 8);
    let mut side = victim.side;
    side.input(&fpdu(&ulpdu));
    let terminate = terminate_in(&side.output(usize::MAX)).unwrap();
    assert_eq!(terminate.ddp.unwrap().as_bytes(), &ulpdu[..18]);
    assert_eq!(&terminate.rdmap.unwrap()[..], &ulpdu[18..]);
    assert_eq!(terminate.segment_len, Some(46));
}

#[test]
fn atomics_are_aligned_and_allowed() {
    refuse(|v| atomic(v.open.key, v.open.addr() + 4), T::RdmapStreamCatastrophic);
    refuse(|v| atomic(v.local.key, v.local.addr()), T::RdmapAccess);
    refuse(|v| atomic(v.open.key, v.open.addr() + 64), T::RdmapBounds);
}

#[test]
fn untagged_messages_keep_to_their_queue_number_offset_and_buffer() {
    let send = |qn, msn, mo, len: usize| untagged(Opcode::Send, qn, msn, mo, &vec![1; len]);
    refuse(|_| send(4, 1, 0, 4), T::UntaggedInvalidQn);
    refuse(|_| send(0, 2, 0, 4), T::UntaggedInvalidMsn);
    refuse(|_| send(0, 0, 0, 4), T::UntaggedInvalidMsn);
    refuse(|_| send(0, 1, 4, 4), T::UntaggedInvalidMo);
    let split = |opcode, mut ulpdu: Vec<u8>| {
        // The message offset is the last word of the header.
        ulpdu[17] = 4;
        assert_eq!(ulpdu[1], Opcode::control(opcode));
        ulpdu
    };
    let whole = |v: &Victim| read(v.open.key, v.open.addr(), 8);
    refuse(|v| split(Opcode::ReadRequest, whole(v)), T::UntaggedInvalidMo);
    let whole = |v: &Victim| atomic(v.open.key, v.open.addr());
    refuse(|v| split(Opcode::AtomicRequest, whole(v)), T::UntaggedInvalidMo);
    refuse(|_| send(1, 1, 0, 4), T::RdmapUnexpectedOpcode);
    let victim = refuse(|_| send(0, 1, 0, 9), T::UntaggedTooLong);
    assert_eq!(victim.side.events()[0].kind, AsyncKind::QpReqErr);
}

#[test]
fn a_send_too_long_for_its_receive_fails_that_receive_with_a_length_error() {
    let mut victim = Victim::new();
    victim.side.recv(51, &[]);
    victim.side.input(&fpdu(&untagged(Opcode::Send, 0, 1, 0, &[1; 9])));
    let (length, flushed) = (WcStatus::LocLenErr as u32, WcStatus::WrFlushErr as u32);
    assert_eq!(victim.side.statuses(), [(50, length), (51, flushed)]);
}

#[test]
fn a_send_without_a_receive_ends_only_its_stream() {
    let mut side = Side::new(MpaRole::Responder, &agreed(), 1460);
    side.input(&fpdu(&untagged(Opcode::Send, 0, 1, 0, &[1; 4])));
    let terminate = terminate_in(&side.output(usize::MAX)).unwrap();
    assert_eq!(terminate.code, T::UntaggedNoBuffer);
}

#[test]
fn versions_opcodes_and_lengths_that_nobody_speaks_are_refused() {
    let with = |at: usize, value: u8| {
        let mut ulpdu = untagged(Opcode::Send, 0, 1, 0, &[1; 4]);
        ulpdu[at] = value;
        ulpdu
    };
    refuse(|_| with(0, 0x40), T::UntaggedVersion);
    refuse(|_| with(0, 0xc0), T::TaggedVersion);
    refuse(|_| with(1, 0x03), T::RdmapVersion);
    refuse(|_| with(1, 0x4c), T::RdmapUnexpectedOpcode);
    refuse(|_| tagged(Opcode::Send, 0, 0, &[1; 20]), T::RdmapUnexpectedOpcode);
    refuse(|_| untagged(Opcode::Write, 0, 1, 0, &[]), T::RdmapUnexpectedOpcode);
    refuse(|_| vec![0x41; 3], T::LlpFraming);
    refuse(|_| untagged(Opcode::ReadRequest, 1, 1, 0, &[0; 27]), T::LlpFraming);
}

#[test]
fn responses_to_nothing_are_unexpected() {
    refuse(
        |v| tagged(Opcode::ReadResponse, v.open.key, v.open.addr(), &[1; 8]),
        T::RdmapUnexpectedOpcode,
    );
    refuse(|_| untagged(Opcode::AtomicResponse, 3, 1, 0, &[0; 12]), T::RdmapUnexpectedOpcode);
}

#[test]
fn a_wrong_crc_is_told_and_nothing_is_delivered() {
    let victim = Victim::new();
    let mut frame = fpdu(&tagged(Opcode::Write, victim.open.key, victim.open.addr(), &[1; 8]));
    frame[20] ^= 1;
    victim.refuses(&[frame], T::LlpCrc);
}

#[test]
fn invalidation_by_a_peer_needs_domain_and_remote_rights() {
    let invalidate = |stag: u32| {
        let control = Opcode::SendInvalidate.control();
        let header = UntaggedHeader { last: true, control, ulp: stag, qn: 0, msn: Msn(1), mo: 0 };
        header.to_bytes().to_vec()
    };
    refuse(|v| invalidate(v.foreign.key), T::RdmapCannotInvalidate);
    refuse(|v| invalidate(v.local.key), T::RdmapCannotInvalidate);
    refuse(|v| invalidate(v.open.key ^ 1), T::RdmapInvalidateFailed);
    let mut victim = Victim::new();
    victim.side.input(&fpdu(&invalidate(victim.open.key)));
    let wc = victim.side.completions()[0];
    assert_eq!((wc.status, wc.imm_data), (0, victim.open.key));
    let write = tagged(Opcode::Write, victim.open.key, victim.open.addr(), &[1; 8]);
    victim.side.input(&fpdu(&write));
    assert!(victim.open.bytes.iter().all(|w| *w == 0), "the key is dead");
}

#[test]
fn a_region_that_is_deregistered_between_two_segments_stays_as_it_was() {
    let mut victim = Victim::new();
    let segment = |last, to, fill| {
        let control = Opcode::Write.control();
        let header = TaggedHeader { last, control, stag: STag(victim.open.key), to };
        fpdu(&[&header.to_bytes()[..], &[fill; 8]].concat())
    };
    let (first, second) =
        (segment(false, victim.open.addr(), 1), segment(true, victim.open.addr() + 8, 2));
    victim.side.input(&first);
    victim.side.device.regions().deregister(victim.open.key).unwrap();
    victim.side.input(&second);
    let code = terminate_in(&victim.side.output(usize::MAX)).unwrap().code;
    assert_eq!(code, T::TaggedInvalidStag);
    assert_eq!(victim.open.bytes[..2], [u64::from_ne_bytes([1; 8]), 0]);
}

#[test]
fn zero_length_operations_need_no_key() {
    let mut victim = Victim::new();
    victim.side.input(&fpdu(&tagged(Opcode::Write, 0xdead_beef, u64::MAX, &[])));
    victim.side.input(&fpdu(&read(0xdead_beef, u64::MAX, 0)));
    let answer = victim.side.output(usize::MAX);
    assert_eq!(common::ulpdus(&answer)[0][1], Opcode::ReadResponse.control());
    assert!(!victim.side.mpa.is_dead());
}

#[test]
fn more_reads_than_agreed_end_the_stream() {
    let mut victim = Victim::new();
    let (stag, to) = (victim.open.key, victim.open.addr());
    for msn in 1..=6 {
        let mut ulpdu = read(stag, to, 8);
        ulpdu[13] = msn;
        victim.side.input(&fpdu(&ulpdu));
    }
    let code = terminate_in(&victim.side.output(usize::MAX)).map(|t| t.code);
    assert_eq!(code, Some(T::UntaggedInvalidMsn));
}

#[test]
fn atomics_never_go_to_a_peer_that_did_not_say_it_has_them() {
    let agreed = Agreed { rtr: None, ..agreed() };
    let mut side = Side::new(MpaRole::Initiator, &agreed, 1460);
    let result = side.memory(8, ALL);
    let add = SendOp::FetchAdd { to: 0, stag: 1, add: 1 };
    side.send(1, add, &[result.sge(0, 8)]);
    let sent = side.output(usize::MAX);
    let question = common::ulpdus(&sent);
    assert_eq!(question.len(), 1);
    assert_eq!(question[0][1], Opcode::ReadRequest.control());
    side.input(&fpdu(&tagged(Opcode::ReadResponse, 1, 0, &[])));
    let rest = side.output(usize::MAX);
    assert!(common::ulpdus(&rest).iter().all(|u| u[1] != Opcode::AtomicRequest.control()));
    assert_eq!(side.statuses(), [(1, WcStatus::LocQpOpErr as u32)]);
}

/// Reads sixteen bytes into the second half of one region and the first half of another, and
/// hears `answer`, made of the name that the request gave its sink. Gives what it tells the peer,
/// and what both regions hold.
fn answer_to_list(
    mut answer: impl FnMut(&Side, &[Memory; 2], u32) -> Vec<u8>,
) -> (Option<T>, [Vec<u64>; 2]) {
    let mut side = Side::new(MpaRole::Initiator, &agreed(), 1460);
    let memory = [(); 2].map(|()| side.memory(16, Access::LOCAL_WRITE));
    let sinks = [memory[0].sge(8, 8), memory[1].sge(0, 8)];
    side.send(1, SendOp::Read { to: 0, stag: 1 }, &sinks);
    let sent = side.output(usize::MAX);
    let asked = common::ulpdus(&sent).pop().unwrap();
    assert_eq!(asked[1], Opcode::ReadRequest.control());
    let request = ReadRequest::parse(&asked[18..]).unwrap();
    assert_eq!((request.sink_to, request.size), (0, 16));
    let ulpdu = answer(&side, &memory, request.sink_stag.0);
    side.input(&fpdu(&ulpdu));
    let told = terminate_in(&side.output(usize::MAX)).map(|terminate| terminate.code);
    (told, memory.map(|memory| memory.bytes))
}

#[test]
fn the_name_of_a_list_leads_to_its_entries_and_no_further() {
    let ones = u64::MAX;
    let untouched = [vec![0; 2], vec![0; 2]];
    let response = |stag, to, len| tagged(Opcode::ReadResponse, stag, to, &vec![0xff; len]);
    let (told, found) = answer_to_list(|_, _, name| response(name, 0, 16));
    assert_eq!((told, found), (None, [vec![0, ones], vec![ones, 0]]));
    let refused = |code| (Some(code), untouched.clone());
    let found = answer_to_list(|_, _, name| response(name, 0, 17));
    assert_eq!(found, refused(T::TaggedBounds));
    let found = answer_to_list(|_, _, name| response(name, 8, 16));
    assert_eq!(found, refused(T::TaggedBounds));
    let found = answer_to_list(|_, _, name| response(name + 1, 0, 16));
    assert_eq!(found, refused(T::TaggedInvalidStag));
    let found = answer_to_list(|_, memory, _| response(memory[0].key, memory[0].addr(), 16));
    assert_eq!(found, refused(T::TaggedInvalidStag));
    let found = answer_to_list(|_, _, name| tagged(Opcode::Write, name, 0, &[0xff; 16]));
    assert_eq!(found, refused(T::TaggedInvalidStag));
    let gone = |side: &Side, memory: &[Memory; 2], name| {
        side.device.regions().deregister(memory[1].key).unwrap();
        response(name, 0, 16)
    };
    assert_eq!(answer_to_list(gone), refused(T::TaggedInvalidStag));
}
