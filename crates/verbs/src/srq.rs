//! Shared receive queues.
//!
//! One that belongs to an XRC domain has a number, under which peers address it, and a completion
//! queue of its own.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Weak};

use weft_sync::{Mutex, MutexGuard};

use crate::channel::Wake;
use crate::cq::Cq;
use crate::event::{AsyncKind, AsyncQueue};
use crate::misuse::Misuse;
use crate::pd::Pd;
use crate::qp::recv_queue::{RecvQueue, RecvWqe};
use crate::usage::{Counted, InUse, Users};
use crate::wc::Wc;
use crate::wr::RecvWr;
use crate::xrcd::Xrcd;

struct SrqState {
    queue: RecvQueue,
    /// Limit event: fires when fewer receives are posted; 0 when disarmed.
    limit: u32,
    /// The cookie of the queue pair that has taken each receive, by its `wr_id`, until that is
    /// settled; if somebody wants to know.
    taken: Option<HashMap<u64, u64>>,
}

struct SrqUses {
    _pd: InUse<Pd>,
    member: Option<Member>,
}

/// Membership in an XRC domain.
struct Member {
    domain: Arc<Xrcd>,
    _in_domain: InUse<Pd>,
    cq: InUse<Cq>,
}

/// A receive queue shared by several queue pairs.
pub struct Srq {
    inner: Mutex<SrqState>,
    pd: Arc<Pd>,
    number: Option<u32>,
    /// Objects in use until it is retired.
    uses: Mutex<Option<SrqUses>>,
    events: Arc<AsyncQueue>,
    cookie: u64,
    users: Users,
}

impl Counted for Srq {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl fmt::Debug for Srq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Srq({:?})", self.number)
    }
}

impl Srq {
    /// A queue for `max_wr` receives of `max_sge` entries. `cookie` names it in `events`.
    pub fn new(
        pd: &Arc<Pd>,
        max_wr: u32,
        max_sge: u32,
        limit: u32,
        events: Arc<AsyncQueue>,
        cookie: u64,
    ) -> Self {
        let inner = SrqState { queue: RecvQueue::new(max_wr, max_sge), limit, taken: None };
        Self {
            inner: Mutex::new(inner),
            pd: Arc::clone(pd),
            number: None,
            uses: Mutex::new(Some(SrqUses { _pd: InUse::of(pd), member: None })),
            events,
            cookie,
            users: Users::default(),
        }
    }

    /// Adds it to `domain` as `number`, 24 bits, unique within the device. Its receives complete in
    /// `cq`.
    pub fn join(mut self, domain: &Arc<Xrcd>, number: u32, cq: &Arc<Cq>) -> Arc<Self> {
        let member = Member {
            domain: Arc::clone(domain),
            _in_domain: InUse::of(domain.pd()),
            cq: InUse::of(cq),
        };
        self.number = Some(number);
        let uses = SrqUses { _pd: InUse::of(&self.pd), member: Some(member) };
        *self.uses() = Some(uses);
        self.pd.invite(domain.pd().id());
        let this = Arc::new(self);
        domain.enlist(number, &this);
        this
    }

    /// Number under which peers address it, if it belongs to an XRC domain.
    pub fn number(&self) -> Option<u32> {
        self.number
    }

    /// Protection domain of the regions that its receives name.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Releases the objects in use: the application destroyed the queue, while a closing connection
    /// may still refer to it.
    pub fn retire(&self) {
        let uses = self.uses().take();
        if let (Some(SrqUses { member: Some(member), .. }), Some(number)) = (uses, self.number) {
            member.domain.strike(number);
            self.pd.dismiss(member.domain.pd().id());
        }
        let waiting = self.inner().queue.let_go();
        waiting.wake();
    }

    /// Completes a receive of a queue of a domain, unless it is retired.
    pub(crate) fn complete(&self, wc: Wc, solicited: bool) {
        if let Some(SrqUses { member: Some(member), .. }) = &*self.uses() {
            member.cq.push(wc, None, solicited);
        }
    }

    fn uses(&self) -> MutexGuard<'_, Option<SrqUses>> {
        self.uses.lock()
    }

    /// Posts a receive, and wakes whoever waits for one.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), Misuse> {
        let waiting = self.inner().queue.push(wr)?;
        waiting.wake();
        Ok(())
    }

    /// Wakes `who` at the next receive, unless one is posted or none ever will be; returns whether
    /// so.
    pub fn await_recv(&self, who: Weak<dyn Wake>) -> bool {
        let mut inner = self.inner();
        self.uses().is_none() || inner.queue.await_one(who)
    }

    /// Whether a receive is posted, or never will be.
    pub fn has_recv(&self) -> bool {
        let inner = self.inner();
        self.uses().is_none() || !inner.queue.is_empty()
    }

    /// Takes the oldest receive; fires the limit event once per arming.
    pub fn take(&self) -> Option<RecvWqe> {
        self.take_from(&mut self.inner())
    }

    fn take_from(&self, inner: &mut SrqState) -> Option<RecvWqe> {
        let wqe = inner.queue.pop();
        self.check_limit(inner);
        wqe
    }

    /// Takes the oldest receive for the queue pair of cookie `qp`.
    pub(crate) fn take_for(&self, qp: u64) -> Option<RecvWqe> {
        let mut inner = self.inner();
        let wqe = self.take_from(&mut inner)?;
        if let Some(taken) = &mut inner.taken {
            taken.insert(wqe.wr_id, qp);
        }
        Some(wqe)
    }

    /// Records from now on which queue pair takes which receive. Their `wr_id`s are all different,
    /// and so are the cookies; [`Srq::settle`] is called for each whose completion was polled.
    pub fn keep_record(&self) {
        self.inner().taken.get_or_insert_default();
    }

    /// The completion of receive `wr_id` was polled.
    pub fn settle(&self, wr_id: u64) {
        if let Some(taken) = &mut self.inner().taken {
            taken.remove(&wr_id);
        }
    }

    /// Receives that the queue pair of cookie `qp`, which is destroyed, has taken and that will not
    /// complete.
    pub fn lost_with(&self, qp: u64) -> Vec<u64> {
        let mut inner = self.inner();
        let Some(taken) = &mut inner.taken else { return Vec::new() };
        taken.extract_if(|_, by| *by == qp).map(|(wr_id, _)| wr_id).collect()
    }

    /// Changes the capacity, or arms the limit event, which fires at once if already below.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), Misuse> {
        let mut inner = self.inner();
        let depth = max_wr.unwrap_or(inner.queue.depth());
        if limit.is_some_and(|l| l > depth) {
            return Err(Misuse::Invalid("the limit exceeds the queue"));
        }
        inner.queue.set_depth(depth)?;
        if let Some(limit) = limit {
            inner.limit = limit;
            self.check_limit(&mut inner);
        }
        Ok(())
    }

    /// Capacity, entries of a receive, and limit.
    pub fn query(&self) -> (u32, u32, u32) {
        let inner = self.inner();
        (inner.queue.depth(), inner.queue.max_sge(), inner.limit)
    }

    /// Whether no thread has it locked just now.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.inner.try_lock().is_some() && self.uses.try_lock().is_some()
    }

    fn check_limit(&self, inner: &mut SrqState) {
        if (inner.queue.len() as u64) < u64::from(inner.limit) {
            inner.limit = 0;
            self.events.push(AsyncKind::SrqLimitReached, self.cookie);
        }
    }

    fn inner(&self) -> MutexGuard<'_, SrqState> {
        self.inner.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Wake;

    struct Silent;
    impl Wake for Silent {
        fn wake(&self) {}
    }

    #[test]
    fn what_a_queue_pair_has_taken_is_known_until_it_is_polled() {
        let events = AsyncQueue::new(Box::new(Silent));
        let srq = Srq::new(&Arc::new(Pd::new(1)), 8, 1, 0, events, 5);
        srq.keep_record();
        (0..4).for_each(|wr_id| srq.post_recv(&RecvWr { wr_id, sges: &[] }).unwrap());
        for qp in [7, 9, 7] {
            srq.take_for(qp).unwrap();
        }
        srq.settle(0);
        assert_eq!((srq.lost_with(7), srq.lost_with(7)), (vec![2], vec![]));
        assert_eq!(srq.lost_with(9), [1]);
    }

    #[test]
    fn the_limit_fires_once_per_arming() {
        let events = AsyncQueue::new(Box::new(Silent));
        let pd = Arc::new(Pd::new(1));
        let srq = Srq::new(&pd, 8, 1, 0, Arc::clone(&events), 5);
        for wr_id in 0..4 {
            srq.post_recv(&RecvWr { wr_id, sges: &[] }).unwrap();
        }
        srq.modify(None, Some(3)).unwrap();
        assert_eq!(srq.take().map(|w| w.wr_id), Some(0));
        assert_eq!(events.pop(), None);
        srq.take();
        srq.take();
        let fired = events.pop().map(|e| (e.kind, e.cookie));
        assert_eq!(fired, Some((AsyncKind::SrqLimitReached, 5)));
        assert_eq!(events.pop(), None);
        srq.modify(None, Some(2)).unwrap();
        assert!(events.pop().is_some());
        assert!(srq.modify(None, Some(9)).is_err() && srq.modify(None, Some(8)).is_ok());
        assert!(srq.modify(Some(0), None).is_err() && srq.modify(Some(1), None).is_ok());
    }
}
