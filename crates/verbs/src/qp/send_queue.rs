//! Send work requests from posting to completion.
//!
//! Three positions advance through one sequence: `tail <= next <= head`. Requests before `next`
//! have been turned into segments, those before `tail` are complete. A request completes when all
//! its segments are sent and acknowledged, its response, if any, has arrived, and every earlier
//! request is complete.

mod completions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub use self::completions::QueueLoan;
use super::attr::QpCap;
use super::send_wqe::SendWqe;
use crate::cq::Cq;
use crate::misuse::Misuse;
use crate::sge::{Sge, total_len};
use crate::wr::{Destination, SendFlags, SendOp, SendWr};

/// The send queue of a queue pair.
#[derive(Debug)]
pub struct SendQueue {
    wqes: Vec<SendWqe>,
    /// Destinations of datagrams, slot by slot.
    destinations: Vec<Destination>,
    datagrams: bool,
    depth: u32,
    max_sge: u32,
    max_inline: u32,
    head: u32,
    next: u32,
    /// Segments of `next` are out, and not its last.
    begun: bool,
    /// A request has failed or was flushed: none behind it succeeds.
    failed: bool,
    tail: u32,
    /// Requests from here on are held back; `head`, unless `held` is set.
    open_to: u32,
    held: bool,
    /// Requests from here on stay incomplete although they are done, if it is set.
    complete_to: Option<u32>,
    /// The requests before this one have their slots freed, by completions that were polled.
    freed: Arc<AtomicU32>,
    /// Unsignaled completions since the last one pushed.
    silent: u32,
    /// Requests that the peer may still reply to by a Write; no more than the queue holds.
    unanswered: u32,
    /// Remote requests that succeeded.
    succeeded: u64,
    /// By which a reader in another process has the memory of posted requests.
    loan: Option<Arc<dyn QueueLoan>>,
}

impl SendQueue {
    /// A queue as large as `cap` says, for datagrams or for messages to one peer.
    pub fn new(cap: &QpCap, datagrams: bool) -> Self {
        Self {
            wqes: Vec::new(),
            destinations: Vec::new(),
            datagrams,
            depth: cap.max_send_wr.next_power_of_two(),
            max_sge: cap.max_send_sge,
            max_inline: cap.max_inline_data,
            head: 0,
            next: 0,
            begun: false,
            failed: false,
            tail: 0,
            open_to: 0,
            held: false,
            complete_to: None,
            freed: Arc::default(),
            silent: 0,
            unanswered: 0,
            succeeded: 0,
            loan: None,
        }
    }

    /// Adds a request. `limit` is the number of slots the application was promised.
    pub fn push(&mut self, wr: &SendWr<'_>, signal_all: bool, limit: u32) -> Result<(), Misuse> {
        if self.head.wrapping_sub(self.freed.load(Ordering::Acquire)) >= limit {
            return Err(Misuse::Full);
        }
        let len = self.check(wr)?;
        let slot = self.slot_for(self.head)?;
        self.wqes[slot].set(wr, len, signal_all);
        self.head = self.head.wrapping_add(1);
        if !self.held {
            self.open_to = self.head;
        }
        self.unanswered = self.depth.min(self.unanswered + 1);
        Ok(())
    }

    /// Where the next request goes, for [`SendQueue::rewind`].
    pub fn mark(&self) -> (u32, u32) {
        (self.head, self.unanswered)
    }

    /// Takes back what was added since `mark`, while the queue was locked all the time; whether
    /// it could, as nothing of it was flushed.
    pub fn rewind(&mut self, mark: (u32, u32)) -> bool {
        let added = self.head.wrapping_sub(mark.0);
        if self.head.wrapping_sub(self.tail) < added {
            return false;
        }
        (self.head, self.unanswered) = mark;
        if !self.held {
            self.open_to = self.head;
        }
        true
    }

    /// Addresses the newest request to untagged queue `queue` of the peer.
    pub fn address(&mut self, queue: u32) {
        self.get_mut(self.head.wrapping_sub(1)).queue = queue;
    }

    /// Addresses the newest request, a datagram, to `to`.
    pub fn direct(&mut self, to: &Destination) {
        let slot = (self.head.wrapping_sub(1) & (self.depth - 1)) as usize;
        self.destinations[slot] = *to;
    }

    /// Destination of datagram `seq`.
    pub fn destination(&self, seq: u32) -> Option<&Destination> {
        self.destinations.get((seq & (self.depth - 1)) as usize)
    }

    fn check(&self, wr: &SendWr<'_>) -> Result<u32, Misuse> {
        let inline = wr.flags.contains(SendFlags::INLINE);
        if wr.sges.len() > self.max_sge as usize && !(inline && wr.sges.len() <= 255) {
            return Err(Misuse::Invalid("more gather entries than the queue pair was made for"));
        }
        let len = total_len(wr.sges);
        if inline && (len > u64::from(self.max_inline) || wr.op.awaits_response()) {
            return Err(Misuse::Invalid("more inline data than the queue pair was made for"));
        }
        if wr.op.is_atomic() && (wr.sges.len() != 1 || len < 8) {
            return Err(Misuse::Invalid("an atomic operation needs one entry of eight octets"));
        }
        if let SendOp::AtomicWrite { to, .. } = wr.op
            && (len != 8 || !to.is_multiple_of(8))
        {
            return Err(Misuse::Invalid("an atomic write has eight octets, aligned to eight"));
        }
        if len > 1 << 31 {
            return Err(Misuse::Invalid("a message has at most 2^31 octets"));
        }
        Ok(len as u32)
    }

    fn slot_for(&mut self, seq: u32) -> Result<usize, Misuse> {
        let slot = (seq & (self.depth - 1)) as usize;
        if slot == self.wqes.len() {
            self.wqes.try_reserve(1)?;
            if self.datagrams {
                self.destinations.try_reserve(1)?;
                self.destinations.push(Destination::default());
            }
            self.wqes.push(SendWqe::vacant());
        }
        Ok(slot)
    }

    /// The next request to turn into segments, with its sequence number.
    pub fn peek(&self) -> Option<(u32, &SendWqe)> {
        (self.next != self.open_to).then(|| (self.next, self.get(self.next)))
    }

    /// Whether `seq` is posted and not turned into segments yet.
    pub fn is_pending(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.next) < self.open_to.wrapping_sub(self.next)
    }

    /// The request `seq`, which must lie between tail and head.
    pub fn get(&self, seq: u32) -> &SendWqe {
        &self.wqes[(seq & (self.depth - 1)) as usize]
    }

    fn get_mut(&mut self, seq: u32) -> &mut SendWqe {
        &mut self.wqes[(seq & (self.depth - 1)) as usize]
    }

    /// The oldest request that is not complete.
    pub fn tail(&self) -> u32 {
        self.tail
    }

    /// Records the message sequence number of `seq`.
    pub fn number(&mut self, seq: u32, msn: u32) {
        self.get_mut(seq).msn = msn;
    }

    /// Notes that a segment of `seq` was sent; with `last` the next request is up.
    pub fn segment_out(&mut self, seq: u32, last: bool) {
        let wqe = self.get_mut(seq);
        wqe.unacked += 1;
        self.begun = !last;
        if last {
            let wqe = self.get_mut(seq);
            wqe.sent = true;
            self.next = seq.wrapping_add(1);
        }
    }

    /// Notes that a request without segments is done.
    pub fn done_locally(&mut self, seq: u32) {
        self.get_mut(seq).sent = true;
        self.next = seq.wrapping_add(1);
        self.begun = false;
    }

    /// Notes that `count` segments of `seq` are acknowledged.
    pub fn segments_acked(&mut self, seq: u32, count: u32) {
        if self.is_live(seq) {
            let wqe = self.get_mut(seq);
            wqe.unacked = wqe.unacked.saturating_sub(count);
        }
    }

    /// Whether the peer has all of `seq`.
    pub fn is_placed(&self, seq: u32) -> bool {
        !self.is_live(seq) || !self.get(seq).is_out()
    }

    /// Oldest started request for which `wanted` holds. One that was not started has the message
    /// number of the request that had its slot before.
    pub fn find(&self, wanted: impl Fn(&SendWqe) -> bool) -> Option<u32> {
        let begun = self.next.wrapping_sub(self.tail) + u32::from(self.begun);
        let mut all = (0..begun).map(|i| self.tail.wrapping_add(i));
        all.find(|seq| wanted(self.get(*seq)))
    }

    /// Started request with message number `msn`, of those that take a receive.
    pub fn under_way(&self, msn: u32) -> Option<u32> {
        self.find(|wqe| wqe.op.takes_receive() && wqe.msn == msn && wqe.unacked > 0)
    }

    /// Sink of the response to `seq`; empty once that is complete.
    pub fn sinks(&self, seq: u32) -> &[Sge] {
        if self.is_live(seq) { self.get(seq).sges() } else { &[] }
    }

    /// Notes that the response to `seq` has arrived.
    pub fn responded(&mut self, seq: u32) {
        if self.is_live(seq) {
            self.get_mut(seq).awaiting = false;
        }
    }

    /// Notes that `seq` awaits a confirmation of placement.
    pub fn await_confirmation(&mut self, seq: u32) {
        self.get_mut(seq).awaiting = true;
    }

    /// Notes that the peer has confirmed the placement of everything up to `last`.
    pub fn confirmed(&mut self, last: u32) {
        let mut seq = self.tail;
        while seq != self.next && !seq_before(last, seq) {
            let wqe = self.get_mut(seq);
            wqe.awaiting &= wqe.op.awaits_response();
            seq = seq.wrapping_add(1);
        }
    }

    fn is_live(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.tail) < self.head.wrapping_sub(self.tail)
    }

    /// Whether no request is posted or incomplete.
    pub fn is_idle(&self) -> bool {
        self.tail == self.head
    }

    /// Whether the peer has something to do before all requests are complete: those that are held
    /// back, or are done and complete later on purpose, are not its business.
    pub fn awaits_peer(&self) -> bool {
        let acknowledged = self.complete_to.is_some() && self.done_to() == self.open_to;
        self.tail != self.open_to && !acknowledged
    }

    /// Count of requests posted and not complete, and of those that nothing was sent of.
    pub fn backlog(&self) -> (u32, u32) {
        (self.head.wrapping_sub(self.tail), self.head.wrapping_sub(self.next))
    }

    /// Holds back requests posted from now on.
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Whether requests are held back.
    pub fn is_holding(&self) -> bool {
        self.held
    }

    /// Releases requests that were held back.
    pub fn release(&mut self) {
        self.held = false;
        self.open_to = self.head;
    }

    /// Whether everything before the first request that is held back is complete.
    pub fn is_held_up(&self) -> bool {
        self.tail == self.open_to && self.open_to != self.head
    }

    /// Count of remote requests that succeeded, in the life of the queue.
    pub fn succeeded(&self) -> u64 {
        self.succeeded
    }

    /// Whether every started request is complete.
    pub fn is_drained(&self) -> bool {
        self.tail == self.next && !self.begun
    }

    /// Whether a request waits to be turned into segments.
    pub fn has_pending(&self) -> bool {
        self.next != self.open_to
    }

    /// Wakes the application that sleeps on `cq`, at most once per request.
    pub fn rouse(&mut self, cq: &Cq) {
        if self.unanswered > 0 && cq.rouse() {
            self.unanswered -= 1;
        }
    }
}

fn seq_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Wake;
    use crate::event::AsyncQueue;
    use crate::wc::{Wc, WcStatus};

    struct Silent;
    impl Wake for Silent {
        fn wake(&self) {}
    }

    pub(super) fn queue(depth: u32) -> (SendQueue, Cq) {
        let cap = QpCap {
            max_send_wr: depth,
            max_send_sge: 2,
            max_inline_data: 16,
            ..Default::default()
        };
        let cq = Cq::new(64, None, AsyncQueue::new(Box::new(Silent)), 0);
        (SendQueue::new(&cap, true), cq)
    }

    pub(super) fn post(
        queue: &mut SendQueue,
        wr_id: u64,
        op: SendOp,
        flags: SendFlags,
    ) -> Result<(), Misuse> {
        let sges: &[Sge] =
            if op.awaits_response() { &[Sge { addr: 0, length: 8, lkey: 0 }] } else { &[] };
        queue.push(&SendWr { wr_id, op, flags, sges }, false, 4)
    }

    pub(super) fn polled(cq: &Cq) -> Vec<(u64, u32)> {
        let mut out = [Wc::default(); 64];
        let n = cq.poll(&mut out).unwrap();
        out[..n].iter().map(|w| (w.wr_id, w.status)).collect()
    }

    pub(super) const READ: SendOp = SendOp::Read { to: 0, stag: 0 };
    pub(super) const SIGNALED: SendFlags = SendFlags::SIGNALED;

    /// The promised slots may be fewer than those that a power of two gives.
    #[test]
    fn a_queue_takes_as_many_requests_as_it_promised_and_none_more() {
        let (mut queue, _) = queue(3);
        let wr = SendWr { wr_id: 0, op: SendOp::Send, flags: SIGNALED, sges: &[] };
        assert!((0..3).all(|_| queue.push(&wr, false, 3).is_ok()));
        assert_eq!(queue.push(&wr, false, 3), Err(Misuse::Full));
    }

    #[test]
    fn a_request_as_large_as_promised_is_taken_and_none_larger_by_one() {
        let (mut queue, _) = queue(64);
        let mut push = |op, flags, lengths: &[u32]| {
            let payload = [0_u8; 17];
            let addr = payload.as_ptr() as u64;
            let sges: Vec<_> = lengths.iter().map(|l| Sge { addr, length: *l, lkey: 0 }).collect();
            queue.push(&SendWr { wr_id: 0, op, flags, sges: &sges }, false, 64).is_ok()
        };
        let inline = SendFlags::INLINE;
        assert!(push(SendOp::Send, SIGNALED, &[1; 2]) && !push(SendOp::Send, SIGNALED, &[1; 3]));
        assert!(push(SendOp::Send, inline, &[16]) && !push(SendOp::Send, inline, &[17]));
        assert!(push(SendOp::Send, inline, &[0; 255]) && !push(SendOp::Send, inline, &[0; 256]));
        let half = 1 << 30;
        assert!(push(SendOp::Send, SIGNALED, &[half, half]));
        assert!(!push(SendOp::Send, SIGNALED, &[half, half + 1]));
        let add = SendOp::FetchAdd { to: 0, stag: 0, add: 1 };
        assert!(push(add, SIGNALED, &[8]) && !push(add, SIGNALED, &[7]));
        assert!(!push(add, SIGNALED, &[8, 0]) && !push(add, inline, &[8]));
        let write = |to| SendOp::AtomicWrite { to, stag: 0 };
        assert!(push(write(8), SIGNALED, &[8]) && !push(write(8), SIGNALED, &[7]));
        assert!(!push(write(8), SIGNALED, &[4, 5]) && !push(write(4), SIGNALED, &[8]));
    }

    #[test]
    fn the_peer_has_a_request_once_each_of_its_segments_is_acknowledged() {
        let (mut queue, cq) = queue(4);
        assert!(queue.is_placed(0), "of what was never posted nothing is under way");
        post(&mut queue, 0, SendOp::Send, SIGNALED).unwrap();
        queue.segment_out(0, false);
        queue.segment_out(0, true);
        assert!(!queue.is_placed(0));
        queue.segments_acked(0, 1);
        assert!(!queue.is_placed(0));
        queue.segments_acked(0, 1);
        assert!(queue.is_placed(0));
        queue.complete(1, &cq);
        assert!(queue.is_placed(0), "it is complete");
    }

    #[test]
    fn a_request_that_was_not_started_is_not_taken_for_the_one_before_it_in_its_slot() {
        let (mut queue, cq) = queue(2);
        for id in 0..2 {
            post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
            queue.number(id as u32, 1 + id as u32);
            queue.segment_out(id as u32, true);
        }
        assert_eq!(queue.under_way(1), Some(0));
        queue.segments_acked(0, 1);
        queue.complete(1, &cq);
        assert_eq!(polled(&cq), [(0, 0)]);
        post(&mut queue, 2, SendOp::Send, SIGNALED).unwrap();
        assert_eq!(queue.under_way(1), None, "the peer spoke of the request that is complete");
        assert_eq!(queue.under_way(2), Some(1));
    }

    #[test]
    fn what_is_held_back_waits_for_its_release_or_fails_in_its_turn() {
        let (mut queue, cq) = queue(4);
        post(&mut queue, 0, SendOp::Send, SIGNALED).unwrap();
        queue.hold();
        for id in 1..3 {
            post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
        }
        assert!(!queue.is_held_up() && queue.is_pending(0) && !queue.is_pending(1));
        queue.segment_out(0, true);
        assert!(!queue.has_pending() && queue.peek().is_none() && queue.awaits_peer());
        queue.segments_acked(0, 1);
        queue.complete(1, &cq);
        assert!(queue.is_held_up() && !queue.awaits_peer());
        queue.fail(1, 1, &cq, WcStatus::RetryExcErr, 0);
        queue.release();
        assert_eq!(queue.peek().map(|(seq, _)| seq), Some(2));
        queue.flush(1, &cq);
        assert_eq!(polled(&cq), [(0, 0), (1, 12), (2, 5)]);
        assert_eq!(queue.succeeded(), 1);
    }

    #[test]
    fn each_datagram_keeps_its_destination() {
        let (mut queue, cq) = queue(2);
        for round in 0..3 {
            for qpn in [round, round + 100] {
                post(&mut queue, 0, SendOp::Send, SIGNALED).unwrap();
                queue.direct(&Destination { qpn, ..Destination::default() });
            }
            for qpn in [round, round + 100] {
                let seq = queue.peek().unwrap().0;
                assert_eq!(queue.destination(seq).unwrap().qpn, qpn);
                queue.segment_out(seq, true);
                queue.segments_acked(seq, 1);
            }
            queue.complete(1, &cq);
            assert_eq!(polled(&cq).len(), 2);
        }
    }

    #[test]
    fn inline_data_is_copied_when_posting() {
        let (mut queue, _) = queue(4);
        let mut data = *b"hello";
        let sges = [Sge { addr: data.as_ptr() as u64, length: 5, lkey: 0 }];
        let wr = SendWr { wr_id: 1, op: SendOp::Send, flags: SendFlags::INLINE, sges: &sges };
        queue.push(&wr, false, 4).unwrap();
        data[0] = b'j';
        assert_eq!(queue.peek().unwrap().1.inline(), Some(&b"hello"[..]));
        assert_eq!(data[0], b'j');
        let long = [Sge { addr: data.as_ptr() as u64, length: 17, lkey: 0 }];
        assert!(queue.push(&SendWr { sges: &long, ..wr }, false, 4).is_err());
    }
}
