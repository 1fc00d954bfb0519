//! Receive work requests in posting order, for a queue pair of its own or shared by several.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use crate::channel::Wake;
use crate::misuse::Misuse;
use crate::sge::{Sge, SgeList, total_len};
use crate::srq::Srq;
use crate::wr::RecvWr;

/// A posted receive.
#[derive(Clone, Debug, Default)]
pub struct RecvWqe {
    /// Id chosen by the caller.
    pub wr_id: u64,
    sges: SgeList,
    /// Shared queue of an XRC domain, which determines its completion queue.
    pub(crate) home: Option<Arc<Srq>>,
}

impl RecvWqe {
    /// Local memory for the received data.
    pub fn sges(&self) -> &[Sge] {
        self.sges.as_slice()
    }

    /// Capacity in bytes.
    pub fn room(&self) -> u64 {
        total_len(self.sges())
    }
}

/// Waiters for a receive.
#[derive(Default)]
pub struct RecvWaiters(Vec<Weak<dyn Wake>>);

impl RecvWaiters {
    /// Wakes all. The caller must hold no lock, because they may take work at once.
    pub fn wake(self) {
        for waiter in self.0.iter().filter_map(Weak::upgrade) {
            waiter.wake();
        }
    }
}

impl fmt::Debug for RecvWaiters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.0.len())
    }
}

/// A bounded queue of receives.
#[derive(Debug)]
pub struct RecvQueue {
    wqes: VecDeque<RecvWqe>,
    waiting: RecvWaiters,
    depth: u32,
    max_sge: u32,
}

impl RecvQueue {
    /// A queue for `depth` receives of up to `max_sge` entries.
    pub fn new(depth: u32, max_sge: u32) -> Self {
        Self { wqes: VecDeque::new(), waiting: RecvWaiters::default(), depth, max_sge }
    }

    /// Adds a receive; returns the waiters to wake.
    pub fn push(&mut self, wr: &RecvWr<'_>) -> Result<RecvWaiters, Misuse> {
        if wr.sges.len() > self.max_sge as usize {
            return Err(Misuse::Invalid("more scatter entries than the queue was made for"));
        }
        if self.wqes.len() >= self.depth as usize {
            return Err(Misuse::Full);
        }
        let mut wqe = RecvWqe { wr_id: wr.wr_id, ..RecvWqe::default() };
        wqe.sges.set(wr.sges);
        self.wqes.try_reserve(1)?;
        self.wqes.push_back(wqe);
        Ok(self.let_go())
    }

    /// Wakes `who` at the next receive, unless one is posted; returns whether so.
    pub fn await_one(&mut self, who: Weak<dyn Wake>) -> bool {
        if self.wqes.is_empty() {
            self.waiting.0.push(who);
        }
        !self.wqes.is_empty()
    }

    /// Takes all waiters.
    pub fn let_go(&mut self) -> RecvWaiters {
        std::mem::take(&mut self.waiting)
    }

    /// Takes the oldest receive.
    pub fn pop(&mut self) -> Option<RecvWqe> {
        self.wqes.pop_front()
    }

    /// Count of posted receives.
    pub fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Whether no receive is posted.
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Drops all receives without completions.
    pub fn clear(&mut self) {
        self.wqes.clear();
    }

    /// Capacity in receives.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Most scatter entries of a receive.
    pub fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Changes the capacity, which must hold the posted receives.
    pub fn set_depth(&mut self, depth: u32) -> Result<(), Misuse> {
        if (depth as usize) < self.wqes.len() {
            return Err(Misuse::Invalid("more receives than that are waiting"));
        }
        self.depth = depth;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receives_leave_in_order_and_never_exceed_the_depth() {
        let mut queue = RecvQueue::new(2, 1);
        let wr = |wr_id| RecvWr { wr_id, sges: &[] };
        queue.push(&wr(1)).unwrap();
        queue.push(&wr(2)).unwrap();
        assert_eq!(queue.push(&wr(3)).unwrap_err(), Misuse::Full);
        assert!(queue.set_depth(1).is_err());
        assert_eq!(queue.pop().map(|w| w.wr_id), Some(1));
        let two = [Sge::default(); 2];
        assert!(queue.push(&RecvWr { wr_id: 4, sges: &two }).is_err());
    }
}
