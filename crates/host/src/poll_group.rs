//! The connections of completion queues that have many: polled by one system call, and handed back
//! to the reactor by one change.
//!
//! A queue looks at each of a few connections by itself. Beyond that its connections are watched
//! by a [`PollSet`], and a poll asks the set which of them are ready. A thread that polls in a loop
//! has a lease on the set, as on a connection: meanwhile the reactor does not watch it.
//!
//! What an application thread has touched, and the next poll or arming is to see, is in the list
//! of active connections: those with a lease of their own, and those whose doorbell rang since the
//! last poll. No call walks all connections.
//!
//! Invariant: a connection with a lease of its own, or with doorbells since the last poll, is
//! active or about to be; the set is watched by the reactor or by a thread that polls.
//!
//! Lock order: the state of a group, then the reactor's tables; the list of active connections is
//! locked alone.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use weft_os::clock::{self, ns_at};
use weft_reactor::{Interest, Leased, PollSet, Token};
use weft_sync::Mutex;
use weft_verbs::Cq;

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
const UNSEEN_BACKOFF_MAX: Duration = Duration::from_millis(200);

/// Who watches the set.
struct SetLease {
    leased: bool,
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
        let backoff = Backoff::up_to(UNSEEN_BACKOFF_MAX);
        Some(Arc::new_cyclic(|this| Self {
            host: Arc::clone(host),
            generation: host.generation(),
            set,
            token,
            cqs: Mutex::default(),
            lease: Mutex::new(SetLease { leased: false, attended: false, quiet: false, backoff }),
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
            surplus.deactivate();
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
            let stays = slot.is_leased();
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
        if lease.leased
            || lease.backoff.holds(clock::now())
            || self.cqs.lock().iter().any(|cq| cq.is_armed())
        {
            return;
        }
        lease.leased = true;
        self.host.reactor().modify(self.token, Interest::NONE);
        if !std::mem::replace(&mut lease.attended, true) {
            self.host.reactor().lease(self.this.clone());
        }
    }

    /// An application thread is about to sleep until something happens: the reactor takes over at
    /// once.
    pub fn rest(&self) {
        if self.is_inherited() {
            return;
        }
        self.resume();
        let active = std::mem::take(&mut *self.active.lock());
        active.iter().for_each(|slot| slot.deactivate());
    }

    /// Has the reactor watch the set again.
    pub fn resume(&self) {
        if self.is_inherited() {
            return;
        }
        self.polled_ns.store(0, Ordering::Relaxed);
        self.looped_ns.store(0, Ordering::Relaxed);
        let mut lease = self.lease.lock();
        if std::mem::replace(&mut lease.leased, false) {
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
        if lease.leased && (polled || !quiet) {
            return false;
        }
        lease.attended = false;
        if std::mem::replace(&mut lease.leased, false) {
            // An application that polls memory between polls of its queue sees nothing meanwhile.
            if self.set.is_ready() {
                lease.backoff.begin(clock::now());
            }
            self.host.reactor().modify(self.token, Interest::READ);
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
