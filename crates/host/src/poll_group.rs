//! The connections of completion queues that have many: polled by one system call, and handed back
//! to the reactor by one change.
//!
//! A queue looks at each of a few connections by itself. Beyond that its connections are watched
//! by a [`PollSet`], and a poll asks the set which of them are ready. A thread that polls in a loop
//! has a lease on the set, as on a connection: meanwhile the reactor does not watch it. So has one
//! that sleeps for an event again and again ([`crate::event_wait`]); arming a queue ends the lease
//! of the first, not that of the second.
//!
//! What an application thread has touched, and the next poll or arming is to see, is in the list
//! of active connections: those with a lease of their own, those whose doorbell rang since the last
//! poll, and those whose acknowledgement waits. No call walks all connections.
//!
//! Invariant: a connection with a lease of its own, with doorbells since the last poll or with an
//! acknowledgement that waits is active or about to be; the set is watched by the reactor or by a
//! thread of the application.
//!
//! Lock order: the state of a group, then the reactor's tables; the list of active connections is
//! locked alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_os::clock::{self, ns_at};
use weft_reactor::{Interest, Leased, PollSet, Token};
use weft_sync::Mutex;
use weft_verbs::{CompChannel, Cq};

use crate::ProgressMode;
use crate::backoff::Backoff;
use crate::conn_slot::ConnSlot;
use crate::host::Host;
use crate::lease::POLL_LOOP_NS;

/// Active connections. What a poll takes from the set is no more, so that all that it leads to is
/// polled before any of them is put off the list.
const ACTIVE_MAX: usize = 16;

/// One of so many polls asks the set although something has come already.
const SKIPS_MAX: usize = 8;

/// Empty polls closer together than this, in nanoseconds, are a loop: between two of them the
/// application may have to answer what the first has brought, on each connection.
const LOOP_NS: u64 = ACTIVE_MAX as u64 * POLL_LOOP_NS;
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
    /// It did, and no poll had come since the look before.
    quiet: bool,
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
    /// The last empty poll, and the last of a loop of them, in nanoseconds.
    polled_ns: AtomicU64,
    looped_ns: AtomicU64,
    active: Mutex<VecDeque<Arc<ConnSlot>>>,
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
                quiet: false,
                backoff,
            }),
            slept_for: AtomicBool::new(false),
            polled_ns: AtomicU64::new(0),
            looped_ns: AtomicU64::new(0),
            active: Mutex::default(),
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
        self.looped_ns.load(Ordering::Relaxed) + LOOP_NS >= now_ns
    }

    /// Adds a connection that an application thread has touched; the one that was added first makes
    /// room, and is handed back to the reactor.
    pub fn activate(&self, slot: &Arc<ConnSlot>) {
        let surplus = {
            let mut active = self.active.lock();
            if slot.set_active(true) {
                return;
            }
            active.push_back(Arc::clone(slot));
            if active.len() > ACTIVE_MAX { active.pop_front() } else { None }
        };
        if let Some(surplus) = surplus {
            surplus.deactivate(false);
        }
    }

    /// A connection goes away.
    pub fn forget(&self, slot: &Arc<ConnSlot>) {
        if self.is_inherited() {
            return;
        }
        let mut active = self.active.lock();
        active.retain(|other| !Arc::ptr_eq(other, slot));
        slot.set_active(false);
    }

    /// A poll: what doorbells have left to it goes out.
    pub fn flush(&self) {
        if self.is_inherited() {
            return;
        }
        let mut left = Vec::new();
        self.active.lock().retain(|slot| {
            let stays = slot.is_leased() || slot.owes_reply();
            if !stays {
                slot.set_active(false);
            }
            if slot.end_run() {
                left.push(Arc::clone(slot));
            }
            stays
        });
        left.iter().for_each(|slot| slot.drive(0));
    }

    /// An empty poll: looks at the connection that became active last and at one of the others, and
    /// at those that have something to receive unless that has `filled` the queue.
    pub fn look(&self, now: Instant, filled: impl Fn() -> bool) {
        if self.is_inherited() {
            return;
        }
        self.note_poll(ns_at(now));
        self.flush();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        for slot in self.at_turn(turn).into_iter().flatten() {
            slot.poll(now);
        }
        if !filled() || turn.is_multiple_of(SKIPS_MAX) {
            self.set.poll(ACTIVE_MAX, now);
        }
    }

    /// The connection that became active last, and one of the others.
    fn at_turn(&self, turn: usize) -> [Option<Arc<ConnSlot>>; 2] {
        let active = self.active.lock();
        let others = active.len().saturating_sub(1);
        let other = if others > 0 { active.get(turn % others) } else { None };
        [active.back().cloned(), other.cloned()]
    }

    /// Takes the lease on the set, if this poll and the last are a loop.
    fn note_poll(&self, now_ns: u64) {
        let last_ns = self.polled_ns.swap(now_ns, Ordering::Relaxed);
        let inline = self.host.settings().progress == ProgressMode::Inline;
        if inline || last_ns + LOOP_NS > now_ns {
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
    pub fn claim_for_sleeper(&self, channel: &Arc<CompChannel>, now: Instant) -> Option<bool> {
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
    pub fn look_for_sleeper(&self, now: Instant) {
        self.note_sleeper(now);
        self.set.poll(ACTIVE_MAX, now);
    }

    fn note_sleeper(&self, now: Instant) {
        self.polled_ns.store(ns_at(now), Ordering::Relaxed);
        self.looped_ns.store(ns_at(now), Ordering::Relaxed);
    }

    fn may_lease(&self, lease: &SetLease) -> bool {
        lease.holder == Leaseholder::None && !lease.backoff.holds(clock::now())
    }

    fn take_lease(&self, lease: &mut SetLease, holder: Leaseholder) {
        self.slept_for.store(holder == Leaseholder::Sleeper, Ordering::Release);
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
        let active = std::mem::take(&mut *self.active.lock());
        active.iter().for_each(|slot| slot.deactivate(missed));
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
        if std::mem::replace(&mut lease.holder, Leaseholder::None) != Leaseholder::None {
            self.host.reactor().modify(self.token, Interest::READ);
        }
    }
}

impl Leased for PollGroup {
    fn reclaim(&self, before: Instant) -> bool {
        let polled_ns = self.polled_ns.load(Ordering::Relaxed);
        let mut lease = self.lease.lock();
        let polled = polled_ns >= ns_at(before);
        let quiet = std::mem::replace(&mut lease.quiet, !polled);
        // Who works on what a poll has given it will poll again.
        let leased = lease.holder != Leaseholder::None;
        if leased && (polled || !quiet) {
            return false;
        }
        lease.attended = false;
        // An application that polls memory between polls of its queue sees nothing meanwhile.
        if leased && self.set.is_ready() {
            lease.backoff.begin(clock::now());
        }
        let slept_for = lease.holder == Leaseholder::Sleeper;
        self.end_lease(&mut lease);
        drop(lease);
        if slept_for {
            self.put_down_active(true);
        }
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
