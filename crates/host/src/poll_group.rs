//! The connections of completion queues that have many: polled by one system call, and handed back
//! to the reactor by one change.
//!
//! A queue looks at each of a few connections by itself. Beyond that its connections are watched
//! by a [`PollSet`], and a poll asks the set which of them are ready. A thread that polls in a loop
//! has a lease on the set, as on a connection: meanwhile the reactor does not watch it. So has one
//! that sleeps for an event again and again ([`crate::event_wait`]); arming a queue ends the lease
//! of the first, not that of the second.
//!
//! What an application thread has touched, and the next poll or arming is to see, is in two lists:
//! active connections, which have a lease or an acknowledgement that waits, and those whose
//! doorbell rang since the last poll. No call walks all connections. The lease of a connection
//! lasts as long as that of the set, unless it has to make room for another. Meanwhile polls see to
//! its timers, a millisecond late at most; afterwards the reactor does.
//!
//! Invariant: a connection with a lease or with an acknowledgement that waits is active or about to
//! be; one with doorbells since the last poll is in the list of those, or about to be, or the
//! reactor attends to it. The set is watched by the reactor or by a thread of the application.
//!
//! Lock order: the state of a group, then the reactor's tables; each list is locked alone.

mod active;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::{Interest, Leased, PollSet, Token};
use weft_sync::Mutex;
use weft_verbs::{CompChannel, Cq};

use crate::ProgressMode;
use crate::backoff::Backoff;
use crate::conn_slot::ConnSlot;
use crate::driver::todo::TIME;
use crate::host::Host;
use crate::lease::POLL_LOOP_NS;
use active::ActiveList;

/// Connections that a poll takes from the set.
const READY_MAX: usize = 16;
/// Polls that found something, each of which lengthens the time after which the next empty poll is
/// none of a loop; no more than these count.
const BETWEEN_MAX: u64 = 64;
/// Looks of the reactor, a millisecond apart, that find no poll and end a lease. A thread with many
/// connections that has not polled for 2 ms more often waits for a processor than has stopped.
const QUIET_LOOKS: u32 = 4;
/// Polls that find something keep the lease for so long after the last one that has asked the set.
const BUSY_NS: u64 = 10_000_000;

/// One of so many polls asks the set although something has come already.
const SKIPS_MAX: usize = 8;

/// Empty polls closer together than this, in nanoseconds, are a loop: between two of them the
/// application may have to answer what the first has brought, on each connection. Each poll between
/// them that found something adds its own time.
const LOOP_NS: u64 = READY_MAX as u64 * POLL_LOOP_NS;
/// One arrival in this time may be late by as long as a lease.
const UNSEEN_BACKOFF: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];

/// Who has a lease on a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaseholder {
    /// Nobody: the reactor watches it.
    None,
    /// A thread that polls.
    Poller,
    /// A thread that sleeps for events, and watches the set while it does.
    Sleeper,
}

/// Who watches the set.
struct SetLease {
    holder: Leaseholder,
    /// The reactor looks whether the lease has ended.
    attended: bool,
    /// Looks in a row before which no poll had come.
    quiet: u32,
    /// Polls that had come by then.
    polls: u64,
    backoff: Backoff,
}

/// Connections that are polled together, and the completion queues that do so.
pub(crate) struct PollGroup {
    host: Arc<Host>,
    /// The process it was made in; a forked child leaves it alone.
    generation: usize,
    set: Arc<PollSet>,
    token: Token,
    cqs: Mutex<Vec<Arc<Cq>>>,
    lease: Mutex<SetLease>,
    /// Whether the lease is that of a thread that sleeps, for who does not hold the lock.
    slept_for: AtomicBool,
    /// Whether a thread of the application has it.
    is_leased: AtomicBool,
    /// The last poll that looked at connections, and the last of a loop of them, in nanoseconds.
    polled_ns: AtomicU64,
    looped_ns: AtomicU64,
    /// Polls, those that found something included; some may be missing.
    polls: AtomicU64,
    /// Those before that poll.
    polls_before: AtomicU64,
    active: Mutex<ActiveList>,
    /// Those whose doorbells rang since the last poll, and whether there are any.
    rung: Mutex<Vec<Arc<ConnSlot>>>,
    has_rung: AtomicBool,
    turn: AtomicUsize,
    this: Weak<Self>,
}

impl PollGroup {
    /// A group without connections, which the reactor serves as the source `number`. None where
    /// the system has no descriptor for it.
    pub fn new(host: &Arc<Host>, number: usize) -> Option<Arc<Self>> {
        let (set, token) = host.reactor().new_set(number).ok()?;
        let backoff = Backoff::new(UNSEEN_BACKOFF);
        Some(Arc::new_cyclic(|this| Self {
            host: Arc::clone(host),
            generation: host.generation(),
            set,
            token,
            cqs: Mutex::default(),
            lease: Mutex::new(SetLease {
                holder: Leaseholder::None,
                attended: false,
                quiet: 0,
                polls: 0,
                backoff,
            }),
            slept_for: AtomicBool::new(false),
            is_leased: AtomicBool::new(false),
            polled_ns: AtomicU64::new(0),
            looped_ns: AtomicU64::new(0),
            polls: AtomicU64::new(0),
            polls_before: AtomicU64::new(0),
            active: Mutex::default(),
            rung: Mutex::default(),
            has_rung: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
            this: this.clone(),
        }))
    }

    /// What watches the sockets of its connections.
    pub fn set(&self) -> &Arc<PollSet> {
        &self.set
    }

    /// Whether it was made before the process was forked.
    pub fn is_inherited(&self) -> bool {
        self.generation != self.host.generation()
    }

    /// `cq` has completions of its connections.
    pub fn serve(&self, cq: &Arc<Cq>) {
        let mut cqs = self.cqs.lock();
        if !cqs.iter().any(|known| Arc::ptr_eq(known, cq)) {
            cqs.push(Arc::clone(cq));
        }
    }

    /// No connection completes into `cq` any more.
    pub fn stop_serving(&self, cq: &Arc<Cq>) {
        self.cqs.lock().retain(|known| !Arc::ptr_eq(known, cq));
    }

    /// Whether one of its completion queues is polled in a loop.
    pub fn is_polled(&self, now_ns: u64) -> bool {
        self.is_leased() || self.looped_ns.load(Ordering::Relaxed) + LOOP_NS >= now_ns
    }

    /// Whether a thread of the application has the lease, as far as this thread can tell.
    pub fn is_leased(&self) -> bool {
        self.is_leased.load(Ordering::Acquire)
    }

    /// Adds a connection that has a lease or an acknowledgement that waits; the one that was added
    /// first makes room, and is handed back to the reactor.
    pub fn activate(&self, slot: &Arc<ConnSlot>) {
        let surplus = {
            let mut active = self.active.lock();
            if slot.set_active(true) {
                return;
            }
            active.add(slot)
        };
        if let Some(surplus) = surplus {
            surplus.deactivate(false);
        }
    }

    /// A doorbell of a connection rings that is in no list of those.
    pub fn note_doorbell(&self, slot: Arc<ConnSlot>) {
        self.rung.lock().push(slot);
        self.has_rung.store(true, Ordering::Release);
    }

    /// A connection is active no longer.
    pub fn unlist(&self, slot: &Arc<ConnSlot>) {
        let mut active = self.active.lock();
        active.remove(slot);
        slot.set_active(false);
    }

    /// A connection goes away.
    pub fn forget(&self, slot: &Arc<ConnSlot>) {
        if self.is_inherited() {
            return;
        }
        self.unlist(slot);
        self.rung.lock().retain(|other| !Arc::ptr_eq(other, slot));
        slot.unlist_doorbell();
        // It may stay in use.
        slot.deactivate(false);
    }

    /// A poll: what doorbells have left to it goes out.
    pub fn flush(&self) {
        if self.is_inherited() {
            return;
        }
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if !self.has_rung.load(Ordering::Acquire) {
            return;
        }
        self.has_rung.store(false, Ordering::Release);
        let mut rung = std::mem::take(&mut *self.rung.lock());
        for slot in rung.drain(..) {
            slot.unlist_doorbell();
            slot.flush();
        }
        // Its memory serves the next ones.
        let mut list = self.rung.lock();
        if list.capacity() == 0 {
            *list = rung;
        }
    }

    /// An empty poll: looks at the connection that became active last and at one of the others, and
    /// at those that have something to receive unless that has `filled` the queue.
    pub fn look(&self, now: Moment, filled: impl Fn() -> bool) {
        self.look_at(now, true, filled);
    }

    /// The same in a poll that has found something. What the application may yet answer is not
    /// acknowledged now.
    pub fn look_meanwhile(&self, now: Moment) {
        self.look_at(now, false, || false);
    }

    fn look_at(&self, now: Moment, is_idle: bool, filled: impl Fn() -> bool) {
        if self.is_inherited() {
            return;
        }
        self.note_poll(ns_at(now));
        self.flush();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let looks = self.active.lock().looks(turn, now, is_idle);
        looks.lanes.iter().flatten().for_each(|slot| slot.poll(now));
        looks.others.iter().flatten().for_each(|slot| slot.poll(now));
        looks.due.iter().for_each(|slot| slot.drive(TIME));
        looks.left.iter().for_each(|slot| slot.deactivate(false));
        if !filled() || turn.is_multiple_of(SKIPS_MAX) {
            self.set.poll(READY_MAX, now);
        }
    }

    /// Takes the lease on the set, if this poll and the last are a loop.
    fn note_poll(&self, now_ns: u64) {
        let last_ns = self.polled_ns.swap(now_ns, Ordering::Relaxed);
        let polls = self.polls.load(Ordering::Relaxed);
        let before = self.polls_before.swap(polls, Ordering::Relaxed);
        let between = polls.saturating_sub(before).min(BETWEEN_MAX);
        let loop_ns = LOOP_NS + between * POLL_LOOP_NS;
        let inline = self.host.settings().progress == ProgressMode::Inline;
        if inline || last_ns.saturating_add(loop_ns) > now_ns {
            self.looped_ns.store(now_ns, Ordering::Relaxed);
            self.claim();
        }
    }

    fn claim(&self) {
        let mut lease = self.lease.lock();
        // Who waits for an event may stop polling at any moment.
        if !self.may_lease(&lease) || self.cqs.lock().iter().any(|cq| cq.is_armed()) {
            return;
        }
        self.take_lease(&mut lease, Leaseholder::Poller);
    }

    /// A thread of the application is about to sleep for an event of `channel`, and to watch the
    /// set itself; whether it may, and whether the reactor did until now.
    pub fn claim_for_sleeper(&self, channel: &Arc<CompChannel>, now: Moment) -> Option<bool> {
        let mut lease = self.lease.lock();
        let begins = lease.holder != Leaseholder::Sleeper;
        if begins {
            let others = self.cqs.lock().iter().any(|cq| cq.tells_other_than(channel));
            let free = lease.holder == Leaseholder::Poller || self.may_lease(&lease);
            if others || !free || self.is_inherited() {
                return None;
            }
            self.take_lease(&mut lease, Leaseholder::Sleeper);
        }
        drop(lease);
        self.note_sleeper(now);
        Some(begins)
    }

    /// The thread that sleeps for events is about to: nothing is left to its next call.
    pub fn prepare_sleep(&self) {
        self.put_down_active(false);
    }

    /// Whether a thread that sleeps for events has the lease, as far as this thread can tell.
    pub fn is_slept_for(&self) -> bool {
        self.slept_for.load(Ordering::Acquire)
    }

    /// The thread that sleeps for events looks at what its descriptors are ready for.
    pub fn look_for_sleeper(&self, now: Moment) {
        self.note_sleeper(now);
        self.set.poll(READY_MAX, now);
    }

    fn note_sleeper(&self, now: Moment) {
        self.polled_ns.store(ns_at(now), Ordering::Relaxed);
        self.looped_ns.store(ns_at(now), Ordering::Relaxed);
    }

    fn may_lease(&self, lease: &SetLease) -> bool {
        lease.holder == Leaseholder::None && !lease.backoff.holds(clock::now())
    }

    fn take_lease(&self, lease: &mut SetLease, holder: Leaseholder) {
        self.slept_for.store(holder == Leaseholder::Sleeper, Ordering::Release);
        self.is_leased.store(true, Ordering::Release);
        if std::mem::replace(&mut lease.holder, holder) == Leaseholder::None {
            self.host.reactor().modify(self.token, Interest::NONE);
        }
        if !std::mem::replace(&mut lease.attended, true) {
            self.host.reactor().lease(self.this.clone());
        }
    }

    /// An application thread is about to sleep until something happens: the reactor takes over at
    /// once, unless that thread is to watch the set itself.
    pub fn rest(&self) {
        if !self.is_slept_for() {
            self.resume();
        }
    }

    /// Nothing is left to the application's next call, which is to sleep, or was `missed`.
    fn put_down_active(&self, missed: bool) {
        self.flush();
        let active = std::mem::take(&mut *self.active.lock());
        active.all().for_each(|slot| slot.deactivate(missed));
    }

    /// Has the reactor watch the set again, and do what is left to the application's next call.
    pub fn resume(&self) {
        if self.is_inherited() {
            return;
        }
        self.polled_ns.store(0, Ordering::Relaxed);
        self.looped_ns.store(0, Ordering::Relaxed);
        self.end_lease(&mut self.lease.lock());
        self.put_down_active(false);
    }

    fn end_lease(&self, lease: &mut SetLease) {
        self.slept_for.store(false, Ordering::Release);
        self.is_leased.store(false, Ordering::Release);
        if std::mem::replace(&mut lease.holder, Leaseholder::None) != Leaseholder::None {
            self.host.reactor().modify(self.token, Interest::READ);
        }
    }
}

impl Leased for PollGroup {
    fn reclaim(&self, before: Moment) -> bool {
        let polls = self.polls.load(Ordering::Relaxed);
        let polled_ns = self.polled_ns.load(Ordering::Relaxed);
        let mut lease = self.lease.lock();
        // A thread may have much to take before it finds nothing.
        let is_busy = std::mem::replace(&mut lease.polls, polls) != polls
            && polled_ns.saturating_add(BUSY_NS) >= ns_at(before);
        let polled = polled_ns >= ns_at(before) || is_busy;
        lease.quiet = if polled { 0 } else { lease.quiet + 1 };
        // Who works on what a poll has given it will poll again.
        let leased = lease.holder != Leaseholder::None;
        if leased && lease.quiet < QUIET_LOOKS {
            return false;
        }
        lease.quiet = 0;
        lease.attended = false;
        // An application that polls memory between polls of its queue sees nothing meanwhile.
        if leased && self.set.is_ready() {
            lease.backoff.begin(clock::now());
        }
        self.end_lease(&mut lease);
        drop(lease);
        self.put_down_active(true);
        true
    }
}

impl Drop for PollGroup {
    fn drop(&mut self) {
        if !self.is_inherited() {
            self.host.reactor().remove(self.token);
        }
    }
}
