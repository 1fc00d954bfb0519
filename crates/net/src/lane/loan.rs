//! Payloads that go from one process to another by one copy: the record of a segment names the
//! sender's memory, and the receiver reads it there (process_vm_readv(2), the "CMA" of MPI and
//! UCX).
//!
//! The sender lends the memory of what is posted to its queue pair, and a word beside it, in which
//! a random mark stands as long as the loan lasts. Who reads a payload reads that word after it in
//! the same call: if the mark is still there, the sender had not yet heard of the end of its
//! request, so what was read is what it posted. Another program in a process of the same number,
//! after an end or an exec, does not have the mark.
//!
//! The mark stands in the memory of the lane too. The reader says there that it reads, and then
//! looks for the mark; the sender removes that and then waits until the reader is done. So what
//! belongs to somebody else once the loan is over is not read, unless the reader takes longer than
//! [`READER_LIMIT`]; what it reads then is not delivered.
//!
//! Invariant: the last byte of a payload is written to its place after all others, and only if the
//! mark was still there. Addresses that a peer names are looked up in the process that the kernel
//! says is at the other end, never in this one.
//!
//! Order of calls: [`LoanPlace::lend`] once by the writer; [`LoanPlace::try_reading`] by the
//! reader, until there is an answer; then its [`LentRecord`]s.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;
use std::{fmt, hint, io, iter, process};

use weft_os::{clock, random};
use weft_rnic::Loan;
use weft_rnic::wire::llp::MemoryPiece;
use weft_verbs::mr::LentMemory;
use weft_verbs::qp::send_queue::{QueueLoan, SendQueue};

use super::memory::Mapping;
use super::page::{self, DirectionPage};

/// How long the end of a loan waits for a reader in the middle of a payload, which takes some 50 us
/// where that does not wait for a processor, or for pages. One that is killed there says no more
/// that it is done.
const READER_LIMIT: Duration = Duration::from_millis(100);
/// Looks at the reader before the sender sleeps between two of them, and for how long.
const READER_LOOKS: u32 = 2000;
const READER_INTERVAL: Duration = Duration::from_micros(100);

/// Bytes that are read at a time where it has to be found out which side's memory is gone.
const CHUNK_BYTES: usize = 64 << 10;

/// What the two sides of a direction say of loans. All zero: nothing is lent.
#[repr(C, align(64))]
pub struct LoanLine {
    /// Where in its process the writer's word is, and what stands there.
    word: AtomicU64,
    mark: AtomicU64,
    /// What the reader makes of it: a [`Loan`] by number.
    answer: AtomicU32,
}

impl LoanLine {
    #[cfg(test)]
    pub fn mark(&self) -> u64 {
        self.mark.load(Ordering::SeqCst)
    }

    /// What the reader makes of it.
    pub fn answer(&self) -> Loan {
        match self.answer.load(Ordering::Acquire) {
            1 => Loan::Read,
            2 => Loan::Refused,
            _ => Loan::Copied,
        }
    }

    /// Tells the writer what this side makes of it.
    pub fn set_answer(&self, loan: Loan) {
        self.answer.store(loan as u32, Ordering::Release);
    }
}

/// One direction of a lane, whose memory stays mapped.
#[derive(Clone)]
pub struct LoanPlace {
    mapping: Arc<Mapping>,
    direction: usize,
}

impl LoanPlace {
    /// That direction.
    pub fn new(mapping: &Arc<Mapping>, direction: usize) -> Self {
        Self { mapping: Arc::clone(mapping), direction }
    }

    fn page(&self) -> &DirectionPage {
        page::of(&self.mapping, self.direction)
    }

    /// Lends the memory of `queue`, and tells the reader where.
    pub fn lend(self, queue: &mut SendQueue) {
        let mark = u64::from_ne_bytes(random::random_octets()).max(1);
        let (word, process) = (AtomicU64::new(mark), process::id());
        let lent = Arc::new(LentQueue { word, process, place: self });
        let line = &lent.place.page().loan;
        line.word.store(&raw const lent.word as u64, Ordering::Relaxed);
        line.mark.store(mark, Ordering::Release);
        queue.lend(lent);
    }

    /// Tries whether the memory of process `pid` can be read: `None` before it lends any.
    pub fn try_reading(self, pid: i32) -> Option<Result<Lender, LoanUnreadable>> {
        let line = &self.page().loan;
        let mark = line.mark.load(Ordering::Acquire);
        let word = line.word.load(Ordering::Relaxed);
        let lender = Lender { pid, word, mark, place: self };
        (mark != 0).then(|| lender.state().map(|()| lender).map_err(|_| LoanUnreadable))
    }
}

impl fmt::Debug for LoanPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LoanPlace({})", self.direction)
    }
}

/// The loan of a send queue, at the writer.
#[derive(Debug)]
struct LentQueue {
    word: AtomicU64,
    /// Whose memory it is: its children have the lane's in common with it, and copies of the rest.
    process: u32,
    place: LoanPlace,
}

impl QueueLoan for LentQueue {
    fn end(&self) {
        self.word.store(0, Ordering::Relaxed);
        if process::id() != self.process {
            return;
        }
        let page = self.place.page();
        // The reader does the same in the reverse order: one of the two sees the other.
        page.loan.mark.store(0, Ordering::SeqCst);
        await_reader(page);
    }
}

/// Waits until the reader is in no payload, [`READER_LIMIT`] at most.
fn await_reader(page: &DirectionPage) {
    let until = clock::now() + READER_LIMIT;
    let mut looks = 0;
    while page.reads.0.load(Ordering::SeqCst) != 0 && clock::now() < until {
        looks += 1;
        if looks < READER_LOOKS {
            hint::spin_loop();
        } else {
            weft_os::sys::pause(READER_INTERVAL);
        }
    }
}

/// The reader reads memory that is lent, until this is dropped.
struct ReadingGuard<'a>(&'a DirectionPage);

impl Drop for ReadingGuard<'_> {
    fn drop(&mut self) {
        self.0.reads.0.store(0, Ordering::Release);
    }
}

/// The memory of a process cannot be read: the system forbids it, or it has gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoanUnreadable;

/// A process that lends memory.
#[derive(Clone, Debug)]
pub struct Lender {
    pid: i32,
    word: u64,
    mark: u64,
    place: LoanPlace,
}

impl Lender {
    /// Says that this side reads, unless the loan is over.
    fn begin(&self) -> Option<ReadingGuard<'_>> {
        let page = self.place.page();
        page.reads.0.store(1, Ordering::SeqCst);
        let guard = ReadingGuard(page);
        (page.loan.mark.load(Ordering::SeqCst) == self.mark).then_some(guard)
    }

    /// Whether it still lends its memory; else why that cannot be read.
    fn state(&self) -> Result<(), LoanLoss> {
        let mut mark = 0;
        match self.read(&[], &mut [], &mut mark) {
            Ok(true) if mark == self.mark => Ok(()),
            // The process has ended, or another program runs in it.
            Ok(_) | Err(libc::ESRCH | libc::EFAULT) => Err(LoanLoss::Ended),
            Err(_) => Err(LoanLoss::Forbidden),
        }
    }

    /// Reads `remote` into `local`, and the word after that into `mark`; whether all was there, or
    /// the errno of the system. The thread that the process began with may end before the process:
    /// then another one names it, looked up each time, because its number may soon be another's.
    fn read(
        &self,
        remote: &[libc::iovec],
        local: &mut [libc::iovec],
        mark: &mut u64,
    ) -> Result<bool, i32> {
        let threads = [self.pid].into_iter().chain(threads_of(self.pid));
        let mut outcomes = threads.map(|thread| self.read_by(thread, remote, local, mark));
        let ended = Err(libc::ESRCH);
        outcomes.find(|outcome| *outcome != ended).unwrap_or(ended)
    }

    fn read_by(
        &self,
        thread: i32,
        remote: &[libc::iovec],
        local: &mut [libc::iovec],
        mark: &mut u64,
    ) -> Result<bool, i32> {
        let word = libc::iovec { iov_base: self.word as *mut _, iov_len: size_of::<u64>() };
        let remote = [remote, &[word]].concat();
        let here = libc::iovec { iov_base: (&raw mut *mark).cast(), iov_len: size_of::<u64>() };
        let local = [&*local, &[here]].concat();
        let len: usize = local.iter().map(|part| part.iov_len).sum();
        let counts = (local.len() as libc::c_ulong, remote.len() as libc::c_ulong);
        // SAFETY: the kernel checks all addresses; whoever filled `local` vouches for those here.
        let read = unsafe {
            let (here, there) = (local.as_ptr(), remote.as_ptr());
            libc::process_vm_readv(thread, here, counts.0, there, counts.1, 0)
        };
        // Before anything else is called, which may change it.
        let error = io::Error::last_os_error();
        match usize::try_from(read) {
            Ok(read) => Ok(read == len),
            Err(_) => Err(error.raw_os_error().unwrap_or(libc::EIO)),
        }
    }
}

/// The threads of process `pid` that the system shows.
fn threads_of(pid: i32) -> impl Iterator<Item = i32> {
    let tasks = iter::once_with(move || std::fs::read_dir(format!("/proc/{pid}/task")));
    let tasks = tasks.flatten().flatten().flatten();
    tasks.filter_map(|task| task.file_name().to_str()?.parse().ok())
}

/// Why a payload cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoanLoss {
    /// The loan is over.
    Ended,
    /// The loan lasts, but the memory is not mapped.
    Unmapped,
    /// The system permits this process no longer to read that one's memory: one of them has given
    /// up rights, or is not dumpable any more.
    Forbidden,
}

/// The payload of a segment that a process lends.
#[derive(Debug)]
pub struct LentRecord {
    lender: Lender,
    pieces: Vec<MemoryPiece>,
    loss: Cell<Option<LoanLoss>>,
}

impl LentRecord {
    /// Nothing, of `lender`.
    pub fn new(lender: Lender) -> Self {
        Self { lender, pieces: Vec::new(), loss: Cell::new(None) }
    }

    /// Names other memory.
    pub fn set(&mut self, pieces: impl Iterator<Item = MemoryPiece>) {
        self.pieces.clear();
        self.pieces.extend(pieces);
        self.loss.set(None);
    }

    /// Why it cannot be had, if so.
    pub fn loss(&self) -> Option<LoanLoss> {
        self.loss.get()
    }

    /// Where the bytes at `range` are.
    fn remote(&self, range: &Range<usize>) -> Vec<libc::iovec> {
        let mut parts = Vec::with_capacity(self.pieces.len() + 1);
        let mut at = 0;
        for piece in &self.pieces {
            let len = piece.len as usize;
            let from = range.start.clamp(at, at + len) - at;
            let to = range.end.clamp(at, at + len) - at;
            if from < to {
                let iov_base = (piece.addr + from as u64) as *mut libc::c_void;
                parts.push(libc::iovec { iov_base, iov_len: to - from });
            }
            at += len;
        }
        parts
    }

    /// [`LentMemory::copy_to`] by way of a buffer, after some memory turned out not to be there:
    /// tells whose.
    ///
    /// # Safety
    /// As there.
    unsafe fn copy_by_chunks(&self, range: Range<usize>, to: u64) -> bool {
        let mut chunk = vec![0; CHUNK_BYTES.min(range.len())];
        for start in range.clone().step_by(CHUNK_BYTES) {
            let part = start..range.end.min(start + CHUNK_BYTES);
            let bytes = &mut chunk[..part.len()];
            let here = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
            let mut mark = 0;
            let read = self.lender.read(&self.remote(&part), &mut [here], &mut mark);
            if read != Ok(true) || mark != self.lender.mark {
                let state = self.lender.state();
                self.loss.set(Some(state.err().unwrap_or(LoanLoss::Unmapped)));
                return false;
            }
            // SAFETY: the caller vouches for the memory.
            if !unsafe { weft_guard::write(to + (start - range.start) as u64, bytes) } {
                return false;
            }
        }
        true
    }
}

impl LentMemory for LentRecord {
    unsafe fn copy_to(&self, range: Range<usize>, to: u64) -> bool {
        self.loss.set(None);
        let Some(body_len) = range.len().checked_sub(1) else { return true };
        let Some(_reading) = self.lender.begin() else {
            self.loss.set(Some(LoanLoss::Ended));
            return false;
        };
        let (mut last, mut mark) = (0u8, 0);
        let mut local = [
            libc::iovec { iov_base: to as *mut _, iov_len: body_len },
            libc::iovec { iov_base: (&raw mut last).cast(), iov_len: 1 },
        ];
        if self.lender.read(&self.remote(&range), &mut local, &mut mark) != Ok(true) {
            // SAFETY: passed on.
            return unsafe { self.copy_by_chunks(range, to) };
        }
        if mark != self.lender.mark {
            self.loss.set(Some(LoanLoss::Ended));
            return false;
        }
        fence(Ordering::Release);
        // SAFETY: the last byte of the range that the caller vouches for.
        unsafe { weft_guard::write(to + body_len as u64, &[last]) }
    }

    fn is_lost(&self) -> bool {
        self.loss.get().is_some()
    }
}
