//! Completion queues.
//!
//! A completion is pushed once by the queue pair and polled once by the application. Polling frees
//! its send queue slots, because an application counts free slots by the completions it has polled.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use weft_sync::{Mutex, MutexGuard};

use thiserror::Error;

use crate::channel::{CompChannel, Wake};
use crate::event::{AsyncKind, AsyncQueue};
use crate::misuse::Misuse;
use crate::usage::{Counted, Users};
use crate::wc::{Wc, WcStatus};

/// The queue overflowed and lost completions; permanent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the completion queue overflowed")]
pub struct CqError;

/// Send queue slots that polling a completion frees.
#[derive(Clone, Debug)]
pub struct Reclaim {
    /// Counter of slots of the send queue that were freed. All of the send queue's completions go
    /// to one completion queue.
    pub freed: Arc<AtomicU32>,
    /// Slots that this completion frees.
    pub slots: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Armed {
    No,
    Solicited,
    Any,
}

struct CqEntry {
    wc: Wc,
    reclaim: Option<Reclaim>,
    stamp_ns: u64,
    /// It fires an arm for solicited completions.
    solicited: bool,
}

/// A clock in nanoseconds.
pub type ClockFn = fn() -> u64;

struct Ring {
    entries: VecDeque<CqEntry>,
    capacity: u32,
    armed: Armed,
    /// The last poll emptied the queue, and no event was fired since.
    drained: bool,
    overflowed: bool,
    /// Polling does not say that it overflowed.
    silent: bool,
    /// Queue pairs whose completions are dropped: they are being destroyed.
    muted: Vec<u32>,
    /// Timestamp of the last polled completion, in nanoseconds.
    stamp_ns: u64,
}

/// A completion queue.
pub struct Cq {
    ring: Mutex<Ring>,
    /// The last poll found nothing, and nothing has changed since: another one needs no lock.
    /// Changed under the lock of the ring.
    is_calm: AtomicBool,
    /// Clock for completion timestamps, if the application asked for them.
    clock: Option<ClockFn>,
    channel: Option<Arc<CompChannel>>,
    events: Arc<AsyncQueue>,
    cookie: u64,
    /// Woken on overflow.
    warden: Option<Box<dyn Wake>>,
    users: Users,
}

impl Counted for Cq {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Cq {
    /// A queue of `capacity` entries. `cookie` names it in the events of `channel` and `events`.
    pub fn new(
        capacity: u32,
        channel: Option<Arc<CompChannel>>,
        events: Arc<AsyncQueue>,
        cookie: u64,
    ) -> Self {
        let ring = Ring {
            entries: VecDeque::new(),
            capacity,
            armed: Armed::No,
            drained: false,
            overflowed: false,
            silent: false,
            muted: Vec::new(),
            stamp_ns: 0,
        };
        let (ring, users) = (Mutex::new(ring), Users::default());
        let is_calm = AtomicBool::new(false);
        Self { ring, is_calm, clock: None, channel, events, cookie, warden: None, users }
    }

    /// The same, with `warden` woken on overflow, to fail the queue pairs that complete there. It
    /// is called with their locks held.
    pub fn with_warden(mut self, warden: Box<dyn Wake>) -> Self {
        self.warden = Some(warden);
        self
    }

    /// The same, with timestamps by `clock`.
    pub fn with_clock(mut self, clock: Option<ClockFn>) -> Self {
        self.clock = clock;
        self
    }

    /// Timestamp of the last polled completion in nanoseconds; 0 without a clock.
    pub fn stamp_ns(&self) -> u64 {
        self.ring().stamp_ns
    }

    /// Moves the oldest completions to `out`; returns how many. Completions left in an armed queue
    /// because `out` was too small fire the arm: applications that poll one batch per event rely on
    /// adapters that compare an arm with the last polled entry.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize, CqError> {
        if !self.may_have_entries() {
            return Ok(0);
        }
        let mut ring = self.ring();
        let count = ring.entries.len().min(out.len());
        if count == 0 && ring.overflowed && !ring.silent {
            return Err(CqError);
        }
        let mut stamp_ns = ring.stamp_ns;
        for (slot, entry) in out.iter_mut().zip(ring.entries.drain(..count)) {
            *slot = entry.wc;
            stamp_ns = entry.stamp_ns;
            if let Some(Reclaim { freed, slots }) = entry.reclaim {
                // No other queue changes it, and this one only under the lock.
                freed.store(freed.load(Ordering::Relaxed).wrapping_add(slots), Ordering::Release);
            }
        }
        ring.stamp_ns = stamp_ns;
        ring.drained = count < out.len();
        self.is_calm.store(count == 0 && ring.drained && !ring.overflowed, Ordering::Release);
        if ring.armed == Armed::Any && count > 0 && !ring.entries.is_empty() {
            self.fire(ring);
        }
        Ok(count)
    }

    /// Whether a poll may return anything or fail: not if the last one found nothing, and nothing
    /// has changed since.
    pub fn may_have_entries(&self) -> bool {
        !self.is_calm.load(Ordering::Acquire)
    }

    /// Whether a poll would return anything.
    pub fn has_entries(&self) -> bool {
        self.may_have_entries() && !self.ring().entries.is_empty()
    }

    /// Arms the queue for one event at the next completion, or the next solicited one. Completions
    /// since the last empty poll count as next: UCX polls, arms and sleeps, which is right with
    /// adapters that compare an arm with the last polled entry.
    pub fn req_notify(&self, solicited_only: bool) {
        let mut ring = self.ring();
        if ring.drained && ring.entries.iter().any(|entry| entry.solicited || !solicited_only) {
            return self.fire(ring);
        }
        if !solicited_only {
            ring.armed = Armed::Any;
        } else if ring.armed == Armed::No {
            ring.armed = Armed::Solicited;
        }
    }

    /// Whether it can be waited for by events.
    pub fn has_channel(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether its events go to another channel than `channel`.
    pub fn tells_other_than(&self, channel: &Arc<CompChannel>) -> bool {
        self.channel.as_ref().is_some_and(|own| !Arc::ptr_eq(own, channel))
    }

    /// Whether the queue is armed.
    pub fn is_armed(&self) -> bool {
        self.ring().armed != Armed::No
    }

    /// Capacity in completions.
    pub fn capacity(&self) -> u32 {
        self.ring().capacity
    }

    /// Changes the capacity; it must hold the present entries.
    pub fn resize(&self, capacity: u32) -> Result<(), Misuse> {
        let mut ring = self.ring();
        if (capacity as usize) < ring.entries.len() {
            return Err(Misuse::Invalid("the completion queue holds more entries than that"));
        }
        ring.capacity = capacity;
        Ok(())
    }

    /// Adds a completion, unless its queue pair is muted. Errors count as `solicited`. A completion
    /// without memory is lost as in an overflow; all that follow are lost too.
    pub fn push(&self, wc: Wc, reclaim: Option<Reclaim>, solicited: bool) {
        let mut ring = self.ring();
        if ring.muted.contains(&wc.qp_num) {
            return;
        }
        // Under the lock: the stamps are in the order of the completions.
        let stamp_ns = self.clock.map_or(0, |clock| clock());
        let full = ring.overflowed || ring.entries.len() >= ring.capacity as usize;
        if full || ring.entries.try_reserve(1).is_err() {
            if self.lose(ring)
                && let Some(warden) = &self.warden
            {
                warden.wake();
            }
            return;
        }
        let solicited = solicited || !wc.is_success();
        self.is_calm.store(false, Ordering::Release);
        ring.entries.push_back(CqEntry { wc, reclaim, stamp_ns, solicited });
        let fire = match ring.armed {
            Armed::No => false,
            Armed::Solicited => solicited,
            Armed::Any => true,
        };
        if fire {
            self.fire(ring);
        }
    }

    /// Drops all entries and fails the queue as in an overflow; the warden is not woken, since it
    /// is the caller.
    pub fn overflow(&self) {
        let mut ring = self.ring();
        ring.entries.clear();
        self.lose(ring);
    }

    /// The same, as an adapter does it: polling finds nothing more, and does not fail.
    pub fn overrun(&self) {
        let mut ring = self.ring();
        ring.entries.clear();
        ring.silent = true;
        self.lose(ring);
    }

    /// Marks the overflow; returns whether it is the first.
    fn lose(&self, mut ring: MutexGuard<'_, Ring>) -> bool {
        let first = !std::mem::replace(&mut ring.overflowed, true);
        self.is_calm.store(false, Ordering::Release);
        drop(ring);
        if first {
            self.events.push(AsyncKind::CqErr, self.cookie);
        }
        first
    }

    /// Fires an arm for any completion without a completion; returns whether there was one.
    /// Applications must tolerate events whose completions were polled already
    /// (ibv_get_cq_event(3)).
    pub fn rouse(&self) -> bool {
        let ring = self.ring();
        let armed = ring.armed == Armed::Any;
        if armed {
            self.fire(ring);
        }
        armed
    }

    fn fire(&self, mut ring: MutexGuard<'_, Ring>) {
        ring.armed = Armed::No;
        ring.drained = false;
        self.is_calm.store(false, Ordering::Release);
        drop(ring);
        if let Some(channel) = &self.channel {
            channel.push(self.cookie);
        }
    }

    /// Drops its asynchronous events: it is destroyed. Returns how many had been announced.
    pub fn retire(&self) -> usize {
        self.events.forget(self.cookie)
    }

    /// Drops present and future completions of a queue pair, until [`Cq::unmute_qp`].
    pub fn mute_qp(&self, qp_num: u32) {
        let mut ring = self.ring();
        ring.entries.retain(|e| e.wc.qp_num != qp_num);
        ring.muted.push(qp_num);
    }

    /// Drops future completions of a queue pair, until [`Cq::unmute_qp`].
    pub fn hush_qp(&self, qp_num: u32) {
        self.ring().muted.push(qp_num);
    }

    /// Undoes every [`Cq::mute_qp`] and [`Cq::hush_qp`] of the queue pair.
    pub fn unmute_qp(&self, qp_num: u32) {
        self.ring().muted.retain(|muted| *muted != qp_num);
    }

    /// Completions to poll until none of a successful request of that queue pair is left.
    pub fn depth_of_success(&self, qp_num: u32) -> usize {
        let success = |wc: &Wc| wc.qp_num == qp_num && wc.status == WcStatus::Success as u32;
        self.ring().entries.iter().rposition(|e| success(&e.wc)).map_or(0, |last| last + 1)
    }

    /// Whether no thread has it locked just now, or its channel.
    pub(crate) fn is_unlocked(&self) -> bool {
        let channel = self.channel.as_ref();
        self.ring.try_lock().is_some() && channel.is_none_or(|channel| channel.is_unlocked())
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::Wake;
    use crate::wc::WcOpcode;
    use std::sync::atomic::AtomicUsize;

    #[derive(Clone, Default)]
    struct Count(Arc<AtomicUsize>);
    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    impl Count {
        fn get(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    fn wc(id: u64, status: WcStatus) -> Wc {
        Wc::new(id, 1, WcOpcode::Send, status)
    }

    fn cq(capacity: u32) -> (Cq, Arc<CompChannel>, Arc<AsyncQueue>, Count) {
        let wakes = Count::default();
        let channel = CompChannel::new(Box::new(wakes.clone()));
        let events = AsyncQueue::new(Box::new(Count::default()));
        let cq = Cq::new(capacity, Some(Arc::clone(&channel)), Arc::clone(&events), 77);
        (cq, channel, events, wakes)
    }

    #[test]
    fn an_arm_gives_one_event_and_none_for_what_is_already_there() {
        let (cq, channel, _, wakes) = cq(8);
        cq.push(wc(1, WcStatus::Success), None, false);
        cq.req_notify(false);
        assert_eq!(wakes.get(), 0);
        cq.push(wc(2, WcStatus::Success), None, false);
        cq.push(wc(3, WcStatus::Success), None, false);
        assert_eq!(wakes.get(), 1);
        assert_eq!((channel.pop(), channel.pop()), (Some(77), None));
    }

    #[test]
    fn what_comes_between_the_last_poll_and_an_arm_gives_the_event() {
        let (cq, channel, _, wakes) = cq(8);
        let mut out = [Wc::default(); 2];
        assert_eq!(cq.poll(&mut out), Ok(0));
        cq.push(wc(1, WcStatus::Success), None, false);
        cq.req_notify(true);
        assert_eq!(wakes.get(), 0);
        cq.req_notify(false);
        assert_eq!((wakes.get(), channel.pop()), (1, Some(77)));
        // Who was told of one is expected to poll again, and is not told of the next twice.
        cq.push(wc(2, WcStatus::WrFlushErr), None, false);
        cq.req_notify(false);
        assert_eq!(wakes.get(), 1);
        assert_eq!(cq.poll(&mut out), Ok(2));
        assert_eq!(cq.poll(&mut out), Ok(0));
    }

    #[test]
    fn a_muted_queue_pair_leaves_nothing_and_adds_nothing() {
        let (cq, _, _, wakes) = cq(4);
        cq.push(wc(1, WcStatus::Success), None, false);
        cq.push(Wc { qp_num: 2, ..wc(2, WcStatus::Success) }, None, false);
        cq.req_notify(false);
        cq.mute_qp(1);
        cq.push(wc(3, WcStatus::WrFlushErr), None, false);
        let mut out = [Wc::default(); 4];
        assert_eq!((cq.poll(&mut out), out[0].wr_id, wakes.get()), (Ok(1), 2, 0));
        cq.unmute_qp(1);
        cq.push(wc(4, WcStatus::Success), None, false);
        assert_eq!((cq.poll(&mut out), out[0].wr_id, wakes.get()), (Ok(1), 4, 1));
    }

    #[test]
    fn a_solicited_arm_waits_for_solicited_or_error_and_never_weakens_a_full_arm() {
        let (cq, _, _, wakes) = cq(8);
        cq.req_notify(true);
        cq.push(wc(1, WcStatus::Success), None, false);
        assert_eq!(wakes.get(), 0);
        cq.push(wc(2, WcStatus::WrFlushErr), None, false);
        assert_eq!(wakes.get(), 1);
        cq.req_notify(false);
        cq.req_notify(true);
        cq.push(wc(3, WcStatus::Success), None, false);
        assert_eq!(wakes.get(), 2);
    }

    #[test]
    fn a_full_arm_can_be_roused_once_and_a_solicited_one_cannot() {
        let (cq, channel, _, _) = cq(8);
        assert!(!cq.rouse());
        cq.req_notify(true);
        assert!(!cq.rouse());
        cq.req_notify(false);
        assert!(cq.rouse());
        assert!(!cq.rouse());
        assert_eq!((channel.pop(), channel.pop()), (Some(77), None));
    }

    #[test]
    fn what_a_poll_leaves_in_an_armed_queue_gives_the_event() {
        let (cq, _, _, wakes) = cq(8);
        for id in 1..=3 {
            cq.push(wc(id, WcStatus::Success), None, false);
        }
        let mut out = [Wc::default(); 2];
        assert_eq!((cq.poll(&mut out[..1]), wakes.get()), (Ok(1), 0));
        cq.req_notify(false);
        assert_eq!((cq.poll(&mut out[..1]), wakes.get()), (Ok(1), 1));
        cq.req_notify(false);
        assert_eq!((cq.poll(&mut out), wakes.get()), (Ok(1), 1));
        cq.push(wc(4, WcStatus::Success), None, false);
        assert_eq!(wakes.get(), 2);
    }

    #[test]
    fn overflow_is_an_event_and_an_error_after_the_last_entry() {
        let (cq, _, events, _) = cq(1);
        let told = Count::default();
        let cq = cq.with_warden(Box::new(told.clone()));
        cq.push(wc(1, WcStatus::Success), None, false);
        cq.push(wc(2, WcStatus::Success), None, false);
        cq.push(wc(3, WcStatus::Success), None, false);
        assert_eq!(events.pop().map(|e| (e.kind, e.cookie)), Some((AsyncKind::CqErr, 77)));
        assert_eq!((events.pop(), told.get()), (None, 1));
        let mut out = [Wc::default(); 4];
        assert_eq!(cq.poll(&mut out), Ok(1));
        assert_eq!(cq.poll(&mut out), Err(CqError));
        cq.push(wc(4, WcStatus::Success), None, false);
        assert_eq!(cq.poll(&mut out), Err(CqError));
    }

    #[test]
    fn a_queue_can_be_made_to_overflow_once() {
        let (cq, _, events, _) = cq(4);
        cq.push(wc(1, WcStatus::Success), None, false);
        cq.overflow();
        cq.overflow();
        assert_eq!(events.pop().map(|e| e.kind), Some(AsyncKind::CqErr));
        assert_eq!(events.pop(), None);
        assert_eq!(cq.poll(&mut [Wc::default()]), Err(CqError));
    }

    #[test]
    fn polling_gives_slots_back_and_resizing_never_loses_entries() {
        let (cq, _, _, _) = cq(4);
        let freed = Arc::new(AtomicU32::new(5));
        let reclaim = Reclaim { freed: Arc::clone(&freed), slots: 3 };
        cq.push(wc(1, WcStatus::Success), Some(reclaim), false);
        assert_eq!(freed.load(Ordering::Relaxed), 5);
        assert!(cq.resize(0).is_err());
        assert_eq!(cq.poll(&mut [Wc::default()]), Ok(1));
        assert_eq!(freed.load(Ordering::Relaxed), 8);
        assert!(cq.resize(0).is_ok());
    }
}
