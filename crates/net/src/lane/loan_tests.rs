//! Payloads that one end lends and the other reads from its memory. Both are in this process, which
//! the kernel treats as it would two.
#![allow(unsafe_code)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Barrier};
use std::{hint, thread};

use weft_rnic::wire::llp::{Gather, MemoryPiece};
use weft_rnic::{LENT_MIN_BYTES, LaneFlow, LaneSegment, Loan, Pushed, SegmentLane};
use weft_verbs::mr::{Backing, RegionSpec, RegionTable, SegmentPayload};
use weft_verbs::qp::QpCap;
use weft_verbs::qp::send_queue::SendQueue;
use weft_verbs::{Access, Pd};

use super::tests::{byte_at, pair, take};
use super::{AckWake, ShmLane};

use LaneFlow::Requests;

const HEADER: [u8; 18] = [0x41; 18];

/// The two ends of a lane of which the second reads what the first lends, and what that lends.
struct Lending {
    here: ShmLane,
    there: ShmLane,
    queue: SendQueue,
}

/// `None` where the system forbids processes to read memory of others, and even their own so.
fn lending() -> Option<Lending> {
    if !system_permits() {
        eprintln!("process_vm_readv is forbidden here");
        return None;
    }
    weft_guard::install();
    let (mut here, mut there) = pair();
    let cap = QpCap { max_send_wr: 4, max_send_sge: 4, ..QpCap::default() };
    let mut queue = SendQueue::new(&cap, false);
    here.lend(&mut queue);
    assert_eq!(here.loan(), Loan::Copied, "nobody has tried");
    let bulk = vec![7; 20_000];
    assert_eq!(send(&mut here, &bulk), Pushed::Whole);
    assert!(take(&mut there, Requests).is_some());
    assert_eq!(here.loan(), Loan::Read, "this process may read its own memory");
    Some(Lending { here, there, queue })
}

fn system_permits() -> bool {
    let (from, mut to) = (7u64, 0u64);
    let part = |at: *const u64| libc::iovec { iov_base: at.cast_mut().cast(), iov_len: 8 };
    let (remote, local) = (part(&raw const from), part(&raw mut to));
    let this = std::process::id() as i32;
    // SAFETY: both are live, and of eight bytes.
    let read = unsafe { libc::process_vm_readv(this, &local, 1, &remote, 1, 0) };
    read == 8
}

fn segment(pieces: &[&[u8]]) -> Gather {
    let mut gather = Gather::default();
    gather.push_bytes(&HEADER);
    for piece in pieces {
        let (addr, len) = (piece.as_ptr() as u64, piece.len() as u32);
        gather.push_memory(MemoryPiece { addr, len });
    }
    gather
}

fn send(lane: &mut ShmLane, memory: &[u8]) -> Pushed {
    let pushed = lane.push(Requests, &segment(&[memory]));
    lane.publish();
    pushed
}

/// Memory that a segment can be placed in.
struct Target {
    memory: Vec<u8>,
    table: RegionTable,
    key: u32,
}

impl Target {
    fn new(len: usize) -> Self {
        let memory = vec![0; len];
        let table = RegionTable::new();
        let addr = memory.as_ptr() as u64;
        let (access, backing) = (Access::LOCAL_WRITE, Backing::Mapped);
        let pd = Arc::new(Pd::new(1));
        let spec = RegionSpec { pd, addr, len: len as u64, iova: addr, access, backing };
        let key = table.register(&spec, || 0x1234_5678).unwrap();
        Self { memory, table, key }
    }

    /// Places a payload at the start; whether it could be.
    fn place(&self, payload: SegmentPayload<'_>) -> bool {
        let to = self.memory.as_ptr() as u64;
        self.table.write(self.key, 1, to, payload, Access::LOCAL_WRITE).is_ok()
    }
}

fn payload_of(lane: &mut ShmLane) -> SegmentPayload<'_> {
    let LaneSegment { head, payload } = lane.front(Requests).expect("it was sent");
    assert_eq!(head, HEADER);
    payload.expect("it lies apart")
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(byte_at).collect()
}

#[test]
fn long_payloads_are_read_from_the_memory_of_their_sender() {
    let Some(Lending { mut here, mut there, queue: _queue }) = lending() else { return };
    let sent = bytes(150_001);
    let (first, others) = sent.split_at(70_007);
    assert_eq!(here.push(Requests, &segment(&[first, others])), Pushed::Lent);
    here.publish();
    let target = Target::new(sent.len());
    let payload = payload_of(&mut there);
    assert_eq!(payload.len(), sent.len());
    // A receive of several entries takes it in parts.
    let (front, back) = payload.split_at(60_000);
    assert!(target.place(front) && target.memory[..60_000] == sent[..60_000]);
    assert!(target.place(back) && target.memory[..90_001] == sent[60_000..]);
    there.pop(Requests);
    there.release();
    assert_eq!(here.placed()[0], 2);
}

#[test]
fn short_payloads_and_responses_are_copied() {
    let Some(Lending { mut here, queue: _queue, .. }) = lending() else { return };
    let memory = bytes(LENT_MIN_BYTES);
    assert_eq!(send(&mut here, &memory[1..]), Pushed::Whole);
    assert_eq!(here.push(LaneFlow::Responses, &segment(&[&memory])), Pushed::Whole);
    assert_eq!(send(&mut here, &memory), Pushed::Lent);
}

#[test]
fn nothing_is_delivered_of_a_request_that_its_sender_has_dropped() {
    let Some(Lending { mut here, mut there, mut queue }) = lending() else { return };
    let sent = bytes(LENT_MIN_BYTES);
    assert_eq!(send(&mut here, &sent), Pushed::Lent);
    queue.reset();
    let target = Target::new(sent.len());
    let payload = payload_of(&mut there);
    assert!(!target.place(payload) && payload.is_lost());
    assert!(target.memory.iter().all(|byte| *byte == 0), "nor is any of it read");
    assert!(there.refuse() && here.loan() == Loan::Read, "no memory is missing");
    assert!(!there.is_finished());
    here.shutdown_write();
    assert!(there.is_finished(), "what cannot be had any more is not waited for");
}

/// What is in the memory once the loan is over is not read, however close that comes to a reader.
#[test]
fn nothing_is_read_once_the_loan_is_over() {
    for delay in 0..200 {
        let Some(Lending { mut here, mut there, mut queue }) = lending() else { return };
        let mut sent = vec![1; 4 * LENT_MIN_BYTES];
        assert_eq!(send(&mut here, &sent), Pushed::Lent);
        let start = Barrier::new(2);
        let target = Target::new(sent.len());
        thread::scope(|scope| {
            scope.spawn(|| {
                start.wait();
                target.place(payload_of(&mut there))
            });
            start.wait();
            (0..delay * 50).for_each(|_| hint::spin_loop());
            match delay % 2 {
                0 => queue.reset(),
                _ => drop(queue),
            }
            sent.fill(2);
        });
        assert!(!target.memory.contains(&2), "after {delay}");
    }
}

#[test]
fn a_reader_that_never_ends_does_not_keep_the_loan() {
    let Some(Lending { mut here, there, mut queue }) = lending() else { return };
    assert_eq!(send(&mut here, &bytes(LENT_MIN_BYTES)), Pushed::Lent);
    there.page(there.back).reads.0.store(1, Ordering::SeqCst);
    queue.reset();
    assert_eq!(there.page(there.back).loan.mark(), 0);
}

#[test]
fn a_sender_hears_that_its_memory_is_gone() {
    let Some(Lending { mut here, mut there, queue: _queue }) = lending() else { return };
    let len = 4 * LENT_MIN_BYTES;
    let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let mut gather = segment(&[]);
    gather.push_memory(MemoryPiece { addr: start as u64, len: len as u32 });
    assert_eq!(here.push(Requests, &gather), Pushed::Lent);
    here.publish();
    let middle = start.wrapping_byte_add(len / 2);
    // SAFETY: nothing else uses it.
    assert_eq!(unsafe { libc::munmap(middle, len / 2) }, 0);
    let target = Target::new(len);
    let payload = payload_of(&mut there);
    assert!(!target.place(payload) && payload.is_lost());
    assert!(!there.refuse());
    assert_eq!(here.loan(), Loan::Refused);
    assert!(here.sleep(AckWake::Never), "it may not have looked since");
    assert!(!here.sleep(AckWake::Never), "it is told once");
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munmap(start, len / 2) }, 0);
    assert_eq!(here.push(Requests, &gather), Pushed::Gone);
}

#[test]
fn memory_of_the_receiver_that_is_gone_is_not_the_sender_s_fault() {
    let Some(Lending { mut here, mut there, queue: _queue }) = lending() else { return };
    let sent = bytes(3 * LENT_MIN_BYTES);
    assert_eq!(send(&mut here, &sent), Pushed::Lent);
    let len = 4 * LENT_MIN_BYTES;
    let (rights, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new memory, which cannot be written.
    let start = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, -1, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let SegmentPayload::Lent { memory, len: lent, .. } = payload_of(&mut there) else {
        panic!("it is lent")
    };
    // SAFETY: nobody else uses the memory.
    assert!(!unsafe { memory.copy_to(0..lent, start as u64) } && !memory.is_lost());
    // SAFETY: as above.
    assert_eq!(unsafe { libc::munmap(start, len) }, 0);
}

#[test]
fn who_does_not_read_memory_gets_copies() {
    let (mut here, mut there) = pair();
    there.forbid_loans();
    let mut queue = SendQueue::new(&QpCap::default(), false);
    here.lend(&mut queue);
    let memory = bytes(LENT_MIN_BYTES);
    for _ in 0..3 {
        assert_eq!(send(&mut here, &memory), Pushed::Whole);
        assert_eq!(take(&mut there, Requests).map(|taken| taken.len()), Some(memory.len() + 18));
    }
    assert_eq!(here.loan(), Loan::Copied);
}

#[test]
fn lent_payloads_of_nonsense_close_the_lane() {
    for (words, list) in [
        ((16, 18 | 1 << 31), [1 << 20, 0]),
        ((16, 18 | 1 << 31), [1 << 20, 1 << 33]),
        ((16, 18 | 1 << 31), [u64::MAX, 2]),
        ((16, 17 | 1 << 31), [1 << 20, 40_000]),
        ((15, 18 | 1 << 31), [1 << 20, 40_000]),
        ((16, 18 | 1 << 31), [1 << 20, 300_000]),
        ((16 * 65, 18 | 1 << 31), [1 << 20, 40_000]),
    ] {
        let Some(Lending { mut here, mut there, queue: _queue }) = lending() else { return };
        here.push(Requests, &segment(&[&bytes(2000)]));
        here.writers[0].forge_last(words, list);
        here.publish();
        assert!(there.front(Requests).is_none() && there.is_abandoned(), "{words:?} {list:?}");
    }
}

#[test]
fn lent_payloads_of_who_was_not_asked_close_the_lane() {
    let (mut here, mut there) = pair();
    here.push(Requests, &segment(&[&bytes(2000)]));
    here.writers[0].forge_last((16, 18 | 1 << 31), [1 << 20, 40_000]);
    here.publish();
    assert!(there.front(Requests).is_none() && there.is_abandoned());
}
