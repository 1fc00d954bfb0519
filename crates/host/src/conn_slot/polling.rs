//! Who looks after a connection: the application by its polls, alone or with a group of others, or
//! the reactor. A thread that polls has the lease while it does; what it leaves to its next poll is
//! done by the reactor if that does not come.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::PollSet;
use weft_sync::MutexGuard;

use super::{ConnSlot, Guarded};
use crate::ProgressMode;
use crate::diagnostics;
use crate::driver::todo::{RECEIVE, SEND};
use crate::driver::{Brief, Driver};
use crate::lease::Doorbell;
use crate::poll_group::PollGroup;
use crate::wakes::PostponedWakes;

/// How late the timers of a connection may be while a thread has the lease of its group.
const GROUP_PAUSE: Duration = Duration::from_millis(1);
/// How late an acknowledgement may be while the application takes other completions and may yet
/// answer.
const REPLY_PAUSE: Duration = Duration::from_millis(10);

impl ConnSlot {
    pub(super) fn set(&self) -> Option<&Arc<PollSet>> {
        self.group().map(|group| group.set())
    }

    /// The connections that it is polled with, if those are many.
    pub fn group(&self) -> Option<&Arc<PollGroup>> {
        self.group.get()
    }

    /// Has it polled with `group` from now on, unless it is with another one.
    pub fn join(&self, group: &Arc<PollGroup>) {
        let Some(this) = self.this.upgrade() else { return };
        if self.is_inherited() || self.group.set(Arc::clone(group)).is_err() {
            return;
        }
        // A connection that another thread brings just now is there, or will find the group.
        self.with_guarded(|Guarded { driver, polls, .. }| {
            polls.forget();
            if let Some(driver) = driver {
                self.set_leased(driver, false);
                driver.register(this, self.set());
            }
        });
    }

    /// Puts it on the list of its group's active connections, or off; whether it was there.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::AcqRel)
    }

    /// Whether a polling thread has the lease, as far as this thread can tell.
    pub fn is_leased(&self) -> bool {
        self.leased.load(Ordering::Acquire)
    }

    /// Takes it off the list of its group's connections whose doorbells rang.
    pub fn unlist_doorbell(&self) {
        self.is_rung.swap(false, Ordering::AcqRel);
    }

    /// Whether a poll looks at it by reading its lane, which nothing else says anything of.
    pub fn polls_lane(&self) -> bool {
        self.polls_lane.load(Ordering::Relaxed)
    }

    /// When a thread of the application has last had something to do for it, in nanoseconds.
    pub fn news_ns(&self) -> u64 {
        self.news_ns.load(Ordering::Relaxed)
    }

    /// Whether something of it is due that the reactor does not look after, as its lease has it.
    pub fn is_due(&self, now: Moment) -> bool {
        self.is_leased() && self.due_ns.load(Ordering::Relaxed) <= ns_at(now)
    }

    /// A step has ended: what of it is due, for whoever has the lease with others.
    pub(super) fn note_due(&self, driver: &Driver, now: Moment) {
        if self.group().is_none() {
            return;
        }
        let pause = if driver.has_deferred_reply() { REPLY_PAUSE } else { GROUP_PAUSE };
        let due = driver.due().map(|due| due.max(now + pause));
        self.due_ns.store(due.map_or(u64::MAX, ns_at), Ordering::Relaxed);
        if self.polls_lane() != driver.has_lane() {
            self.polls_lane.store(driver.has_lane(), Ordering::Relaxed);
        }
    }

    /// It is not among the active ones any more: what they wait for is done now.
    /// The acknowledgement among it was `missed` if the call that it waited for has not come.
    pub fn deactivate(&self, missed: bool) {
        self.set_active(false);
        self.flush();
        self.send_reply(missed);
        if self.is_leased() {
            // The set knows whether something has come, but for lanes.
            if missed && self.polls_lane() {
                self.take_lease(self.slot.lock());
                self.drive(0);
            } else {
                self.rest();
            }
        }
    }

    /// Whether an acknowledgement waits for the application's next call, as far as this thread can
    /// tell.
    pub fn owes_reply(&self) -> bool {
        self.owes_reply.load(Ordering::Acquire)
    }

    /// Sends the acknowledgement that has waited for the application's next call: that was to
    /// sleep, or has not come, if it was `missed`.
    fn send_reply(&self, missed: bool) {
        if self.owes_reply() {
            if missed {
                self.slot.lock().polls.defer_backoff.begin(clock::now());
            }
            self.drive(SEND);
        }
    }

    /// An acknowledgement waits for the application's next call: whoever finds that there is none
    /// sends it.
    pub(super) fn note_reply(&self) {
        if let (Some(group), Some(this)) = (self.group(), self.this.upgrade()) {
            group.activate(&this);
        }
        // A lease that has ended meanwhile was perhaps not told of this connection.
        if !self.is_leased() && !self.is_slept_for() {
            self.send_reply(false);
        }
    }

    /// Whether a thread that sleeps for events looks after it with others.
    pub(super) fn is_slept_for(&self) -> bool {
        self.group().is_some_and(|group| group.is_slept_for())
    }

    /// An application thread found its completion queue empty.
    pub fn poll(&self, now: Moment) {
        if !self.is_attached() {
            return;
        }
        self.lease.note_own_poll(ns_at(now));
        self.lease.end_run();
        // Waiting for the holder, which may need this very core, beats spinning until the scheduler
        // sees to it.
        self.poll_locked(self.slot.lock(), false, now);
    }

    pub(super) fn poll_locked(
        &self,
        mut guard: MutexGuard<'_, Guarded>,
        is_readable: bool,
        now: Moment,
    ) {
        let mut wakes = PostponedWakes::begin_briefly();
        let Guarded { driver: Some(driver), polls, .. } = &mut *guard else { return };
        if self.step_briefly(driver, false, now) != Brief::Whole {
            polls.note(now);
            drop(guard);
            drop(wakes);
            return self.drive(0);
        }
        wakes.forbid_cancel();
        let inline = self.host.settings().progress == ProgressMode::Inline;
        let group = self.group();
        let alone = polls.note(now) || inline;
        let looping = group.map_or(alone, |group| group.is_polled(ns_at(now)));
        // Who waits for an event may stop polling at any moment. The lease of a group ends those of
        // its connections.
        let lease = looping
            && group.is_none_or(|group| group.is_leased())
            && !polls.lease_backoff.holds(now)
            && !driver.is_leased()
            && !self.cqs.iter().any(|cq| cq.is_armed());
        driver.schedule().slept_for = self.is_slept_for();
        driver.schedule().patient = looping && !polls.defer_backoff.holds(now);
        let work = driver.look(now);
        let plain = !lease && work == RECEIVE && self.slot.pending() == 0;
        if plain && driver.finds_nothing(is_readable, now) || !lease && work == 0 {
            drop(guard);
            drop(wakes);
        } else {
            if lease {
                self.set_leased(driver, true);
            }
            if !plain {
                self.slot.leave(work);
            }
            self.step(guard, wakes, now);
            self.lease.note_work();
            self.news_ns.store(ns_at(now), Ordering::Relaxed);
        }
        self.drive(0);
        if lease {
            self.note_lease();
        }
    }

    /// A thread that polls has taken the lease: others are to know.
    fn note_lease(&self) {
        let Some(group) = self.group() else {
            if self.lease.claim() {
                self.attend();
            }
            return;
        };
        let Some(this) = self.this.upgrade() else { return };
        group.activate(&this);
        // Who armed a queue or ended the group's lease meanwhile may have looked at the active ones
        // just before.
        if !group.is_leased() || self.cqs.iter().any(|cq| cq.is_armed()) {
            group.unlist(&this);
            self.deactivate(false);
        }
    }

    /// Has the next poll or arming of its group see that its doorbell rang.
    fn list_doorbell(&self) {
        if let Some(group) = self.group()
            && !self.is_rung.swap(true, Ordering::AcqRel)
            && let Some(this) = self.this.upgrade()
        {
            group.note_doorbell(this);
        }
    }

    /// The application is about to sleep until something happens: the reactor takes over at once.
    pub fn rest(&self) {
        if self.is_attached() {
            self.with_guarded(|Guarded { driver, polls, .. }| {
                polls.forget();
                if let Some(driver) = driver {
                    self.set_leased(driver, false);
                }
            });
        }
    }

    fn set_leased(&self, driver: &mut Driver, leased: bool) {
        if driver.is_leased() != leased {
            driver.schedule().leased = leased;
            self.leased.store(leased, Ordering::Release);
            let device = self.host.devices().name(self.device);
            diagnostics::tell_lease(device, driver.qp(), leased);
        }
    }

    /// Takes the lease from a thread that has stopped polling, which has its consequences if
    /// something arrived that it did not see, or waited for it to leave.
    pub(super) fn take_lease(&self, mut guard: MutexGuard<'_, Guarded>) {
        let (now, wakes) = (clock::now(), PostponedWakes::begin());
        if let Guarded { driver: Some(driver), polls, .. } = &mut *guard {
            if driver.is_leased() && driver.has_arrivals() {
                polls.lease_backoff.begin(now);
            }
            if driver.has_deferred_reply() {
                polls.defer_backoff.begin(now);
            }
            self.set_leased(driver, false);
        }
        self.step(guard, wakes, now);
    }

    /// Posted work waits: sends it from here, or has the reactor send it.
    ///
    /// An application that posts many requests one by one between its polls has them sent in
    /// batches: a doorbell in the middle of a batch leaves its work to the next poll. Should that
    /// not come, the reactor finds the work within a millisecond and there are no more batches for
    /// this application until it streams again.
    pub fn ring(&self) {
        if self.host.settings().progress == ProgressMode::Engine {
            self.with_driver(|driver| driver.schedule().blocked = true);
            return;
        }
        match self.lease.ring() {
            Doorbell::Send => {
                self.list_doorbell();
                return self.send();
            }
            Doorbell::Leave => {}
            Doorbell::LeaveAndAttend => self.attend(),
        }
        self.slot.leave(SEND);
        self.list_doorbell();
        // The reactor may have looked for the last time just before.
        if !self.lease.is_attended() {
            self.drive(0);
        }
    }

    /// Sends what is posted, or leaves it to the thread that holds the lock.
    fn send(&self) {
        let sent = self.is_leased() && self.send_briefly() == Brief::Done;
        self.drive(if sent { 0 } else { SEND });
    }

    fn send_briefly(&self) -> Brief {
        // Dropped after the lock, as the wake-ups are told after it.
        let _wakes = PostponedWakes::begin_briefly();
        let Some(mut guard) = self.slot.try_lock() else { return Brief::Whole };
        match &mut guard.driver {
            Some(driver) => self.step_briefly(driver, true, clock::now()),
            None => Brief::Whole,
        }
    }

    /// A brief step, unless more than the connection's own is to be seen to.
    fn step_briefly(&self, driver: &mut Driver, sends: bool, now: Moment) -> Brief {
        if self.faults.is_some() || self.slot.pending() != 0 {
            return Brief::Whole;
        }
        let brief = driver.step_briefly(sends, now);
        if brief == Brief::Done {
            self.lease.note_work();
            self.note_due(driver, now);
            self.news_ns.store(ns_at(now), Ordering::Relaxed);
        }
        brief
    }

    /// A poll found something: work that waited for it goes out.
    pub fn flush(&self) {
        if self.end_run() {
            self.drive(0);
        }
    }

    /// A poll ends a run of doorbells; whether they may have left work.
    pub fn end_run(&self) -> bool {
        self.lease.end_run() > 1
    }

    /// Has the reactor look after this connection until nothing happens for a while.
    fn attend(&self) {
        self.host.reactor().lease(self.this.clone());
    }
}
