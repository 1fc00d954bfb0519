//! Completion of send work requests: in posting order, as what each waits for comes about, or all
//! at once where the queue ends.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use super::{SendQueue, seq_before};
use crate::cq::{Cq, Reclaim};
use crate::wc::{Wc, WcStatus};

/// A loan of the memory of posted requests to a reader in another process.
pub trait QueueLoan: fmt::Debug + Send + Sync {
    /// Ends it: from now on the reader does not read that memory, unless it is stopped in the
    /// middle of that, and delivers nothing that it has read of a request that was not complete.
    fn end(&self);
}

impl SendQueue {
    /// Lends the memory of posted requests, until one fails or is flushed or dropped, from when on
    /// the application may use that memory otherwise.
    pub fn lend(&mut self, loan: Arc<dyn QueueLoan>) {
        self.loan = Some(loan);
    }

    /// Before anybody hears of the end of a request that the reader may be at.
    fn end_loan(&mut self) {
        if let Some(loan) = self.loan.take() {
            loan.end();
        }
    }

    /// Has requests that are done stay incomplete from `seq` on, until it is called again; for
    /// acknowledgements that are late on purpose.
    pub fn complete_up_to(&mut self, seq: u32) {
        self.complete_to = Some(seq);
    }

    /// The oldest request that is not done: all before it may complete.
    pub fn done_to(&self) -> u32 {
        let mut seq = self.tail;
        while seq != self.next && self.get(seq).is_done() {
            seq = seq.wrapping_add(1);
        }
        seq
    }

    /// Completes finished requests, in order.
    pub fn complete(&mut self, qp_num: u32, cq: &Cq) {
        while !self.failed
            && self.tail != self.next
            && self.complete_to != Some(self.tail)
            && self.get(self.tail).is_done()
        {
            self.finish(qp_num, cq, WcStatus::Success, 0);
        }
    }

    /// Completes `seq` and everything before it as flushed, `seq` itself with `status`; for a
    /// request that failed. [`SendQueue::flush`] follows.
    pub fn fail(&mut self, seq: u32, qp_num: u32, cq: &Cq, status: WcStatus, vendor_err: u32) {
        if !self.is_live(seq) {
            return;
        }
        self.end_loan();
        self.flush_to(seq, qp_num, cq);
        self.finish(qp_num, cq, status, vendor_err);
        self.failed = true;
    }

    /// Completes all remaining requests as flushed, but for the first ones that are done if none
    /// has failed.
    pub fn flush(&mut self, qp_num: u32, cq: &Cq) {
        self.end_loan();
        self.flush_to(self.head, qp_num, cq);
        self.failed = false;
    }

    /// The same up to `seq`. None completes with success behind one that is flushed, although the
    /// peer may have answered it: applications take the first error for the end of what succeeded.
    fn flush_to(&mut self, seq: u32, qp_num: u32, cq: &Cq) {
        while self.tail != seq {
            self.failed |= self.tail == self.next || !self.get(self.tail).is_done();
            let status = if self.failed { WcStatus::WrFlushErr } else { WcStatus::Success };
            self.finish(qp_num, cq, status, 0);
        }
    }

    /// Completes all remaining requests successfully: unreliable services do not report losses.
    pub fn let_go(&mut self, qp_num: u32, cq: &Cq) {
        self.end_loan();
        while self.tail != self.head {
            self.finish(qp_num, cq, WcStatus::Success, 0);
        }
    }

    /// Drops everything without completions.
    pub fn reset(&mut self) {
        self.end_loan();
        self.tail = self.head;
        self.next = self.head;
        self.begun = false;
        self.failed = false;
        self.complete_to = self.complete_to.map(|_| self.head);
        self.release();
        self.silent = 0;
        self.unanswered = 0;
        self.succeeded = 0;
        self.freed = Arc::new(AtomicU32::new(self.head));
    }

    fn finish(&mut self, qp_num: u32, cq: &Cq, status: WcStatus, vendor_err: u32) {
        let wqe = self.get(self.tail);
        let success = status == WcStatus::Success;
        let signaled = wqe.signaled || !success;
        let remote = !wqe.op.is_local();
        let mut wc = Wc::new(wqe.wr_id, qp_num, wqe.wc_opcode(), status);
        wc.vendor_err = vendor_err;
        if success && wqe.op.awaits_response() {
            wc.byte_len = if wqe.op.is_read() { wqe.len } else { 8 };
        }
        self.tail = self.tail.wrapping_add(1);
        if seq_before(self.next, self.tail) {
            self.next = self.tail;
            self.begun = false;
        }
        if seq_before(self.open_to, self.tail) {
            self.open_to = self.tail;
        }
        self.silent += 1;
        self.succeeded += u64::from(success && remote);
        if signaled {
            let slots = std::mem::take(&mut self.silent);
            let reclaim = Reclaim { freed: Arc::clone(&self.freed), slots };
            cq.push(wc, Some(reclaim), false);
        }
    }
}

impl Drop for SendQueue {
    fn drop(&mut self) {
        self.end_loan();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::super::tests::{READ, SIGNALED, polled, post, queue};
    use super::*;
    use crate::misuse::Misuse;
    use crate::wr::{SendFlags, SendOp};

    #[test]
    fn acks_in_a_bad_order_complete_in_posting_order() {
        let (mut queue, cq) = queue(4);
        for id in 0..3 {
            post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
        }
        for seq in 0..3 {
            queue.segment_out(seq, false);
            queue.segment_out(seq, true);
        }
        for seq in [2, 1, 2, 0, 1] {
            queue.segments_acked(seq, 1);
            queue.complete(1, &cq);
        }
        assert_eq!(polled(&cq), []);
        queue.segments_acked(0, 1);
        queue.complete(1, &cq);
        assert_eq!(polled(&cq), [(0, 0), (1, 0), (2, 0)]);
        assert!(queue.is_idle());
    }

    #[test]
    fn a_loan_ends_with_the_first_request_that_does_not_succeed() {
        type End = fn(&mut SendQueue, &Cq);
        let ends: [End; 4] = [
            |queue, cq| queue.fail(1, 1, cq, WcStatus::RetryExcErr, 0),
            |queue, cq| queue.flush(1, cq),
            |queue, cq| queue.let_go(1, cq),
            |queue, _| queue.reset(),
        ];
        #[derive(Debug, Default)]
        struct Ended(AtomicU32);
        impl QueueLoan for Ended {
            fn end(&self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        for end in ends {
            let (mut queue, cq) = queue(4);
            let loan = Arc::<Ended>::default();
            queue.lend(loan.clone());
            for id in 0..2 {
                post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
                queue.segment_out(id as u32, true);
            }
            queue.segments_acked(0, 1);
            queue.complete(1, &cq);
            assert_eq!(loan.0.load(Ordering::Relaxed), 0);
            end(&mut queue, &cq);
            assert_eq!(loan.0.load(Ordering::Relaxed), 1);
        }
    }

    #[test]
    fn what_is_done_completes_no_further_than_is_said() {
        let (mut queue, cq) = queue(4);
        queue.complete_up_to(0);
        for id in 0..3 {
            post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
            queue.segment_out(id as u32, true);
        }
        queue.segments_acked(0, 1);
        queue.segments_acked(1, 1);
        queue.complete(1, &cq);
        assert_eq!((polled(&cq), queue.done_to()), (vec![], 2));
        assert!(queue.awaits_peer());
        queue.complete_up_to(1);
        queue.complete(1, &cq);
        assert_eq!((polled(&cq), queue.done_to()), (vec![(0, 0)], 2));
        queue.flush(1, &cq);
        assert_eq!(polled(&cq), [(1, 0), (2, 5)]);
    }

    #[test]
    fn a_read_holds_later_completions_back() {
        let (mut queue, cq) = queue(4);
        post(&mut queue, 1, READ, SIGNALED).unwrap();
        post(&mut queue, 2, SendOp::Send, SIGNALED).unwrap();
        for seq in 0..2 {
            queue.segment_out(seq, true);
            queue.segments_acked(seq, 1);
        }
        queue.complete(1, &cq);
        assert_eq!(polled(&cq), []);
        queue.responded(0);
        queue.complete(1, &cq);
        assert_eq!(polled(&cq), [(1, 0), (2, 0)]);
    }

    #[test]
    fn unsignaled_slots_return_with_a_later_polled_completion() {
        let (mut queue, cq) = queue(4);
        for id in 0..4 {
            let flags = if id == 3 { SIGNALED } else { SendFlags::empty() };
            post(&mut queue, id, SendOp::Send, flags).unwrap();
        }
        for seq in 0..4 {
            queue.segment_out(seq, true);
            queue.segments_acked(seq, 1);
        }
        queue.complete(1, &cq);
        assert_eq!(post(&mut queue, 9, SendOp::Send, SIGNALED), Err(Misuse::Full));
        assert_eq!(polled(&cq), [(3, 0)]);
        for id in 0..4 {
            post(&mut queue, id, SendOp::Send, SIGNALED).unwrap();
        }
    }

    #[test]
    fn a_failure_flushes_the_rest_once_and_reports_unsignaled_ones() {
        let (mut queue, cq) = queue(4);
        post(&mut queue, 1, SendOp::Send, SendFlags::empty()).unwrap();
        post(&mut queue, 2, READ, SendFlags::empty()).unwrap();
        post(&mut queue, 3, SendOp::Send, SendFlags::empty()).unwrap();
        queue.segment_out(0, true);
        queue.segments_acked(0, 1);
        queue.segment_out(1, true);
        queue.fail(1, 1, &cq, WcStatus::RemAccessErr, 0);
        queue.flush(1, &cq);
        queue.flush(1, &cq);
        assert_eq!(polled(&cq), [(2, 10), (3, 5)]);
        queue.segments_acked(1, 1);
        assert_eq!(polled(&cq), []);
    }

    #[test]
    fn none_succeeds_behind_one_that_fails() {
        type End = fn(&mut SendQueue, &Cq);
        let ends: [(End, [u32; 3]); 3] = [
            (|queue, cq| queue.flush(1, cq), [5, 5, 5]),
            (|queue, cq| queue.fail(3, 1, cq, WcStatus::RemAccessErr, 0), [5, 5, 10]),
            (|queue, cq| queue.fail(1, 1, cq, WcStatus::RemAccessErr, 0), [10, 5, 5]),
        ];
        for (end, [one, two, three]) in ends {
            let (mut queue, cq) = queue(4);
            for (id, op) in [(0, READ), (1, READ), (2, SendOp::Send), (3, SendOp::Send)] {
                let flags = if id == 2 { SendFlags::empty() } else { SIGNALED };
                post(&mut queue, id, op, flags).unwrap();
                queue.segment_out(id as u32, true);
            }
            queue.responded(0);
            [0, 2, 3].into_iter().for_each(|seq| queue.segments_acked(seq, 1));
            end(&mut queue, &cq);
            queue.complete(1, &cq);
            queue.flush(1, &cq);
            assert_eq!(polled(&cq), [(0, 0), (1, one), (2, two), (3, three)]);
            post(&mut queue, 4, SendOp::Send, SIGNALED).unwrap();
            queue.segment_out(4, true);
            queue.segments_acked(4, 1);
            queue.complete(1, &cq);
            assert_eq!(polled(&cq), [(4, 0)], "it goes on after SQE");
        }
    }
}
