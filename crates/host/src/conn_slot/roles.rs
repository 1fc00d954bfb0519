//! What a slot is to those who call it without knowing queue pairs: the reactor, threads that help
//! or end the process, and who posts receives.

use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::{Leased, Pollable, Readiness};
use weft_verbs::Wake;

use super::ConnSlot;
use crate::connections::{DrivenConnection, WatchedConn};
use crate::driver::Driver;
use crate::driver::todo::{POSTED, RECEIVE, SEND, TIME, WRITABLE};

impl DrivenConnection for ConnSlot {
    fn help(&self, now: Moment) {
        let now_ns = ns_at(now);
        if !self.lease.is_polled(now_ns)
            && self.group().is_none_or(|group| !group.is_polled(now_ns))
            && let Some(guard) = self.slot.try_lock()
        {
            self.poll_locked(guard, false, now);
        }
    }

    fn hush(&self) {
        if let Some(qp) = self.qp.upgrade() {
            qp.hush();
        }
    }

    fn report(&self, told: bool, until: Option<Moment>) -> Option<WatchedConn> {
        let guard = match until {
            Some(until) => self.seize(until),
            // A thread that polls takes it again and again: whoever only tries may never have it.
            None => Some(self.slot.lock()),
        };
        let found = guard.and_then(|guard| {
            let driver = guard.driver.as_deref()?;
            let name = self.host.devices().name(self.device);
            let report = told.then(|| driver.report(name));
            let counters = report.as_ref().map(|report| report.counters);
            Some((self.device, counters.unwrap_or_else(|| driver.counters()), report))
        });
        // What was left to the holder of the lock, which this was. Nobody waits for it at the end
        // of the process, where the list of connections is held.
        if until.is_none() {
            self.drive(0);
        }
        found
    }

    fn flush_now(&self, until: Moment) {
        let mut seized = clock::retry(until, || {
            // No lock is waited for: the thread that this one has interrupted may have it.
            let is_free = |driver: &Driver| driver.qp().is_unlocked();
            let guard = self.slot.try_lock()?;
            guard.driver.as_deref().is_none_or(is_free).then_some(guard)
        });
        if let Some(driver) = seized.as_mut().and_then(|guard| guard.driver.as_deref_mut()) {
            driver.work(SEND, clock::now());
            if driver.is_open() {
                self.host.local().open_at_exit.note(false);
            }
        }
    }
}

impl Wake for ConnSlot {
    fn wake(&self) {
        if self.is_attached() {
            self.drive(POSTED);
        }
    }
}

impl Pollable for ConnSlot {
    fn ready(&self, readiness: Readiness) {
        let receive = if readiness.read { RECEIVE } else { 0 };
        let send = if readiness.write { SEND | WRITABLE } else { 0 };
        self.slot.leave(receive | send);
        // The engine waits for the lock: going round would find the same event again.
        self.with_driver(|_| ());
    }

    fn polled(&self, readiness: Readiness, now: Moment) {
        if readiness.write {
            return self.ready(readiness);
        }
        // Whoever has the lock receives what is there; what comes later is found by the next poll.
        if let Some(guard) = self.slot.try_lock() {
            self.lease.end_run();
            self.poll_locked(guard, readiness.read, now);
        }
    }

    fn timeout(&self, now: Moment) {
        self.slot.leave(TIME | SEND);
        self.with_driver(|driver| driver.schedule().heed_timer(now));
    }

    fn number(&self) -> usize {
        self.number as usize - 1
    }

    fn lost(&self) {
        self.lose();
    }

    fn at_exit(&self, until: Moment) {
        if let Some(driver) =
            self.seize(until).as_mut().and_then(|guard| guard.driver.as_deref_mut())
        {
            let was_open = driver.is_open();
            let told = driver.flush_at_exit(until);
            if was_open {
                self.host.local().open_at_exit.note(told);
            }
            if let Some(tally) = self.host.tally() {
                driver.note_work(tally);
            }
        }
    }
}

impl Leased for ConnSlot {
    fn reclaim(&self, before: Moment) -> bool {
        // Who is at work, or was just now, will poll again: taking the lease would make two threads
        // share the work, often on one core.
        let guard = self.slot.try_lock();
        let idle = guard.as_ref().is_some_and(|guarded| guarded.polls.is_over(before));
        let over = self.lease.look(idle);
        if self.slot.pending() & SEND != 0 {
            self.lease.end_stream();
        }
        // The lease of a group covers those of its connections.
        let is_covered = self.group().is_some_and(|group| group.is_leased());
        match guard {
            Some(guard) if over && !is_covered => self.take_lease(guard),
            guard => drop(guard),
        }
        // What a poll has missed, and what was left to the holder of the lock, which this was.
        self.drive(0);
        over
    }
}
