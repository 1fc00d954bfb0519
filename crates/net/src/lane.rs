//! Segments between two processes of one host, by memory that both map.
//!
//! A lane carries what a queue pair sends in place of a TCP connection, or beside the datagrams of
//! a Shuttle connection ([`rendezvous`]). Segments go through rings (`ring`), two for each
//! direction, and a Unix socket carries what sleeping needs, one byte for a side that sleeps (the
//! bell), and the end of the peer's process.
//!
//! Invariant: what a [`ShmLane`] gives is what the peer wrote, in order, once; or it is closed. A
//! peer that dies or writes nonsense into the memory closes it.
//!
//! Who is about to sleep says so in the memory ([`ShmLane::sleep`]), then looks once more at all
//! that the peer rings for; who writes there looks afterwards whether the other side sleeps. With a
//! full fence between each pair, one of the two sees the other, so no bell is missed and none is
//! rung for a side that is awake.
//!
//! Order of calls: when [`ShmLane::has_news`] says so or the bell is readable,
//! [`ShmLane::heed_bell`] and then those of [`SegmentLane`]. Who stops polling calls
//! [`ShmLane::sleep`] before it waits for [`ShmLane::bell`] to become readable, and again after
//! each bell; and [`ShmLane::wake`] when it polls again.

mod loan;
mod memory;
mod page;
pub mod rendezvous;
mod ring;

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use weft_os::fds::HighFd;
use weft_rnic::wire::ids::Msn;
use weft_rnic::wire::llp::Gather;
use weft_rnic::{
    LANE_SEGMENT_MAX_BYTES, LENT_MIN_BYTES, LaneFlow, LaneSegment, Loan, NotReady, Pushed,
    SegmentLane,
};
use weft_verbs::qp::send_queue::SendQueue;

use crate::tcp::Received;
use loan::{LoanLoss, LoanPlace};
use memory::Mapping;
use page::{DirectionPage, WITHDRAWN, has_reached, pack, sleeps, unpack};
use ring::{Corrupt, RingReader, RingWriter};

/// A segment of so many bytes is a sign that it pays to try whether the peer's memory can be read.
const TRY_LOAN_AT_BYTES: usize = 16 << 10;

/// Looks of a side that polls and finds nothing, between two at the bell, which costs a system
/// call.
const POLLS_A_LOOK: u32 = 1024;

/// Which end of a lane this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneEnd {
    /// The end that made the memory.
    Initiator,
    /// The other one.
    Responder,
}

/// Which of its segments a side that sleeps is woken for when the peer has taken them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckWake {
    /// None.
    Never,
    /// The next one that it takes, of either flow.
    Next,
    /// Those of [`LaneFlow::Requests`] up to this one, counted since the lane began.
    Requests(u64),
}

/// What is known of the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PeerState {
    Present,
    /// Its process has let go of the lane.
    Gone,
    /// This side let go: the peer broke the rules, or what it lends cannot be read any more.
    BrokenOff,
}

/// One end of a lane.
pub struct ShmLane {
    bell: HighFd,
    mapping: Arc<Mapping>,
    /// The directions, as [`Mapping::page`] counts them.
    out: usize,
    back: usize,
    writers: [RingWriter; 2],
    readers: [RingReader; 2],
    /// Segments taken by the peer, of each flow, as told last.
    told: [u64; 2],
    /// What this side sleeps for, one of [`mod@sleeps`].
    asleep_for: u32,
    /// Of which count of segments taken the peer is to tell it then.
    awaited: [u32; 2],
    /// What the peer had said last of a message that waits for a receive, as a word, and whether
    /// this side knows that it has refused a loan.
    heard_not_ready: Cell<u64>,
    heard_refusal: bool,
    /// Looks without news since the last one at the bell.
    polls: u32,
    /// Whether payloads may be lent, either way.
    may_lend: bool,
    /// This side has lent the memory of its requests.
    has_lent: bool,
    /// It was tried whether the peer's memory can be read.
    has_tried: bool,
    peer: PeerState,
}

impl ShmLane {
    fn new(bell: HighFd, mapping: &Arc<Mapping>, end: LaneEnd) -> Self {
        let (out, back) = match end {
            LaneEnd::Initiator => (0, 1),
            LaneEnd::Responder => (1, 0),
        };
        let counters = |direction, flow: usize| &raw const page::of(mapping, direction).flows[flow];
        let writer = |flow| RingWriter::new(mapping, counters(out, flow), mapping.ring(out, flow));
        let reader =
            |flow| RingReader::new(mapping, counters(back, flow), mapping.ring(back, flow));
        Self {
            bell,
            out,
            back,
            writers: [writer(0), writer(1)],
            readers: [reader(0), reader(1)],
            mapping: Arc::clone(mapping),
            told: [0; 2],
            asleep_for: sleeps::NOT,
            awaited: [0; 2],
            heard_not_ready: Cell::new(pack(None)),
            heard_refusal: false,
            polls: 0,
            may_lend: true,
            has_lent: false,
            has_tried: false,
            peer: PeerState::Present,
        }
    }

    /// All payloads are copied into the lane, also those of the peer.
    pub fn forbid_loans(&mut self) {
        self.may_lend = false;
    }

    /// Tries once whether the peer's memory can be read, if it lends any, and tells it.
    fn try_loan(&mut self) {
        let Some(peer) = rendezvous::peer_of(self.bell()) else {
            self.has_tried = true;
            return;
        };
        let tried = LoanPlace::new(&self.mapping, self.back).try_reading(peer);
        self.has_tried = tried.is_some();
        if let Some(Ok(lender)) = tried {
            self.readers[LaneFlow::Requests as usize].read_from(lender);
            self.page(self.back).loan.set_answer(Loan::Read);
        }
    }

    fn page(&self, direction: usize) -> &DirectionPage {
        page::of(&self.mapping, direction)
    }

    /// What becomes readable when a side that sleeps has something to do, or the peer has gone.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Whether there is something to do, without a system call: a segment, segments of this side
    /// that were taken, the end, or that it is time to look whether the peer is there.
    pub fn has_news(&mut self) -> bool {
        self.is_bell_due() || self.has_arrivals() || self.has_acks()
    }

    /// Counts a look of a side that polls; whether the bell is to be looked at with it.
    pub fn is_bell_due(&mut self) -> bool {
        self.polls += 1;
        self.polls >= POLLS_A_LOOK || self.is_rung()
    }

    /// Whether the peer has woken this side, or is about to.
    fn is_rung(&self) -> bool {
        self.asleep_for != sleeps::NOT && self.said() != self.asleep_for
    }

    /// What the peer is told that this side sleeps for, until it rings.
    fn said(&self) -> u32 {
        self.page(self.back).reader_sleeps.0.what.load(Ordering::Acquire)
    }

    /// Whether something arrived, or everything was taken and nothing will any more.
    pub fn has_arrivals(&self) -> bool {
        self.readers.iter().any(RingReader::has_arrivals) || self.is_finished()
    }

    /// Whether the peer has gone, or has said that nothing follows.
    fn is_over(&self) -> bool {
        self.is_abandoned() || self.page(self.back).finished.0.load(Ordering::Acquire) != 0
    }

    /// Whether the peer has taken something that [`SegmentLane::placed`] has not told yet.
    pub fn has_acks(&mut self) -> bool {
        self.refresh();
        self.writers.each_ref().map(RingWriter::placed) != self.told
    }

    /// Takes note of what the peer had taken when it wrote what was found last of a flow.
    fn heed_taken(&mut self, flow: usize) {
        if let Some(taken) = self.readers[flow].take_taken() {
            self.writers.iter_mut().zip(taken).for_each(|(writer, taken)| writer.heed_taken(taken));
        }
    }

    /// Whether each flow has room for a segment of any length.
    pub fn has_room(&mut self) -> bool {
        self.refresh();
        self.writers.iter().all(|writer| writer.room_bytes() >= LANE_SEGMENT_MAX_BYTES)
    }

    fn refresh(&mut self) {
        for flow in 0..self.writers.len() {
            if self.writers[flow].refresh() == Err(Corrupt) {
                self.break_off();
            }
        }
    }

    /// Takes what the bell says, if it is readable as far as the caller knows, or it is time to
    /// look; whether it said something. Then this side counts as awake to the peer: it takes what
    /// there is, and says so before it sleeps again.
    pub fn heed_bell(&mut self, is_readable: bool) -> bool {
        let is_due = self.polls >= POLLS_A_LOOK;
        if !is_readable && !is_due && !self.is_rung() {
            return false;
        }
        if is_due && self.asleep_for == sleeps::NOT {
            // The peer may be waiting for this very processor.
            rustix::thread::sched_yield();
        }
        self.polls = 0;
        let rung = crate::tcp::receive(self.bell(), &mut [0; 8]);
        if rung == Received::Closed && self.peer == PeerState::Present {
            self.peer = PeerState::Gone;
        }
        rung != Received::Nothing
    }

    /// Whether the peer has ended the connection, and everything that it wrote was taken: not while
    /// something of it waits for a receive.
    pub fn is_finished(&self) -> bool {
        // What is lent and has not been read cannot be had any more.
        let is_done = |reader: &RingReader| reader.is_empty() || reader.awaits_lender();
        self.is_over() && self.readers.iter().all(is_done)
    }

    /// Whether the peer's process has let go of the lane, or has broken its rules: its bell stays
    /// readable, and says nothing any more.
    pub fn is_abandoned(&self) -> bool {
        self.peer != PeerState::Present
    }

    /// Whether this side let go of it: the peer has broken its rules, or what it lends cannot be
    /// read any more. Its process lives.
    pub fn is_broken_off(&self) -> bool {
        self.peer == PeerState::BrokenOff
    }

    fn break_off(&mut self) {
        self.peer = PeerState::BrokenOff;
        self.shutdown();
    }

    /// Wakes the peer if it sleeps, for something that was written.
    fn wake_peer(&self) {
        fence(Ordering::SeqCst);
        let sleeps = &self.page(self.out).reader_sleeps.0.what;
        if sleeps.load(Ordering::Relaxed) != sleeps::NOT
            && sleeps.swap(sleeps::NOT, Ordering::AcqRel) != sleeps::NOT
        {
            // A bell that is full rings already.
            rendezvous::send_byte(self.bell());
        }
    }

    /// Wakes it if it sleeps until as many of its segments were taken as now are.
    fn wake_peer_for_acks(&self) {
        fence(Ordering::SeqCst);
        if self.waits_for_acks() {
            self.wake_peer();
        }
    }

    /// Says that this side sleeps until something arrives, or also until so many of its own
    /// segments were taken; whether there is something to do already, so that it should not.
    pub fn sleep(&mut self, for_acks: AckWake) -> bool {
        let what = match for_acks {
            AckWake::Never => sleeps::FOR_SEGMENTS,
            _ => sleeps::FOR_ALL,
        };
        let awaited = self.awaited_of(for_acks);
        // What was said and not heard still holds.
        if (self.asleep_for, self.awaited) != (what, awaited) || self.is_rung() {
            (self.asleep_for, self.awaited) = (what, awaited);
            let said = &self.page(self.back).reader_sleeps.0;
            for (word, acks) in said.acks.iter().zip(awaited) {
                word.store(acks, Ordering::Relaxed);
            }
            said.what.store(what, Ordering::Release);
            fence(Ordering::SeqCst);
        }
        self.has_arrivals() || self.is_acknowledged(for_acks) || self.has_word()
    }

    /// The counts of segments taken that are news to a side that sleeps so, modulo 2^32.
    fn awaited_of(&self, for_acks: AckWake) -> [u32; 2] {
        let told = self.told.map(|told| told as u32);
        // A count that is not reached for a long time.
        let never = told.map(|told| told.wrapping_add(i32::MAX as u32));
        match for_acks {
            AckWake::Never => self.awaited,
            AckWake::Next => told.map(|told| told.wrapping_add(1)),
            AckWake::Requests(count) => [count as u32, never[LaneFlow::Responses as usize]],
        }
    }

    fn is_acknowledged(&mut self, for_acks: AckWake) -> bool {
        if for_acks == AckWake::Never {
            return false;
        }
        self.refresh();
        let placed = self.writers.each_ref().map(|writer| writer.placed() as u32);
        has_reached(placed, self.awaited)
    }

    /// Whether the peer has said that a message waits for a receive, and [`SegmentLane::not_ready`]
    /// was not called since, or that it refuses a loan; once for each.
    fn has_word(&mut self) -> bool {
        let not_ready = self.page(self.out).not_ready.0.load(Ordering::Acquire);
        let waits = self.heard_not_ready.replace(not_ready) != not_ready;
        let refused = self.loan() == Loan::Refused;
        let refuses = std::mem::replace(&mut self.heard_refusal, refused) != refused;
        waits && not_ready != pack(None) || refuses
    }

    /// Says that this side polls.
    pub fn wake(&mut self) {
        if std::mem::replace(&mut self.asleep_for, sleeps::NOT) != sleeps::NOT {
            self.page(self.back).reader_sleeps.0.what.store(sleeps::NOT, Ordering::Relaxed);
        }
    }

    /// Waits up to a millisecond for the peer.
    pub fn wait(&mut self) {
        if !self.sleep(AckWake::Next) {
            crate::tcp::wait(self.bell(), false);
        }
    }

    /// Ends the sending half: the peer sees the end after everything written before.
    pub fn shutdown_write(&self) {
        self.page(self.out).finished.0.store(1, Ordering::Release);
        self.wake_peer();
    }

    /// Ends both halves, also for copies of the socket that a forked child holds.
    pub fn shutdown(&self) {
        crate::tcp::shutdown(self.bell());
    }
}

impl SegmentLane for ShmLane {
    fn lend(&mut self, queue: &mut SendQueue) {
        if self.may_lend {
            LoanPlace::new(&self.mapping, self.out).lend(queue);
            self.has_lent = true;
        }
    }

    fn loan(&self) -> Loan {
        if self.has_lent { self.page(self.out).loan.answer() } else { Loan::Copied }
    }

    fn refuse(&mut self) -> bool {
        match self.readers.iter().find_map(RingReader::loss) {
            Some(LoanLoss::Unmapped) => {
                self.page(self.back).loan.set_answer(Loan::Refused);
                self.wake_peer();
                false
            }
            // What was lent cannot be had any more, and its sender is not to believe that it was.
            Some(LoanLoss::Forbidden) => {
                self.break_off();
                false
            }
            Some(LoanLoss::Ended) | None => true,
        }
    }

    fn is_ended(&self) -> bool {
        self.is_over()
    }

    fn room_bytes(&mut self, flow: LaneFlow) -> usize {
        if self.is_abandoned() { 0 } else { self.writers[flow as usize].room_bytes() }
    }

    fn push(&mut self, flow: LaneFlow, segment: &Gather) -> Pushed {
        let is_long = segment.len() >= LENT_MIN_BYTES;
        match is_long && flow == LaneFlow::Requests && self.loan() == Loan::Read {
            true => self.writers[flow as usize].push_lent(segment),
            false => self.writers[flow as usize].push(segment),
        }
    }

    fn publish(&mut self) {
        let taken = self.readers.each_ref().map(RingReader::announced);
        let [requests, responses] = self.writers.each_mut().map(|writer| writer.publish(taken));
        if requests || responses {
            self.wake_peer();
        }
    }

    fn find(&mut self, flow: LaneFlow) -> bool {
        let found = self.readers[flow as usize].find();
        self.heed_taken(flow as usize);
        if found == Err(Corrupt) {
            self.break_off();
        }
        found == Ok(true)
    }

    fn front(&mut self, flow: LaneFlow) -> Option<LaneSegment<'_>> {
        if !self.find(flow) {
            return None;
        }
        self.readers[flow as usize].front()
    }

    fn pop(&mut self, flow: LaneFlow) {
        let bytes = self.readers[flow as usize].front_bytes();
        if self.may_lend && !self.has_tried && bytes >= TRY_LOAN_AT_BYTES {
            self.try_loan();
        }
        self.readers[flow as usize].pop();
    }

    fn release(&mut self) {
        let [requests, responses] = self.readers.each_mut().map(RingReader::release);
        if requests || responses {
            self.wake_peer_for_acks();
        }
    }

    fn announce(&mut self) {
        self.readers.iter_mut().for_each(RingReader::announce);
    }

    fn waits_for_acks(&self) -> bool {
        let taken = self.readers.each_ref().map(RingReader::taken);
        self.page(self.out).reader_sleeps.0.awaits(taken)
    }

    fn placed(&mut self) -> [u64; 2] {
        for flow in 0..self.readers.len() {
            // What is wrong here is found when the segment is.
            let _ = self.readers[flow].look();
            self.heed_taken(flow);
        }
        self.refresh();
        self.told = self.writers.each_ref().map(RingWriter::placed);
        self.told
    }

    fn set_not_ready(&mut self, not_ready: Option<NotReady>) {
        // It is the reader of a direction who says so.
        let word = &self.page(self.back).not_ready.0;
        let said = word.load(Ordering::Acquire);
        if said == pack(not_ready) || said == WITHDRAWN {
            return;
        }
        let now_says =
            word.compare_exchange(said, pack(not_ready), Ordering::AcqRel, Ordering::Acquire);
        // Else the peer has just taken it back.
        if now_says.is_ok() && not_ready.is_some() {
            self.wake_peer();
        }
    }

    fn not_ready(&self) -> Option<NotReady> {
        let word = self.page(self.out).not_ready.0.load(Ordering::Acquire);
        self.heard_not_ready.set(word);
        unpack(word)
    }

    fn withdraw(&mut self, credit: Msn) -> bool {
        let word = &self.page(self.out).not_ready.0;
        let said = word.load(Ordering::Acquire);
        let swap = || word.compare_exchange(said, WITHDRAWN, Ordering::AcqRel, Ordering::Relaxed);
        unpack(said).is_some_and(|waits| waits.credit == credit) && swap().is_ok()
    }

    fn claim(&mut self) -> bool {
        let word = &self.page(self.back).not_ready.0;
        let nothing = pack(None);
        let outcome = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |said| {
            (said != WITHDRAWN).then_some(nothing)
        });
        outcome.is_ok()
    }
}

#[cfg(test)]
mod loan_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wake_tests;
