//! One of the reactor's threads: what it watches, its timers, the leases it looks after.
//!
//! Invariant: what it sleeps for is known to it; whoever brings the time forward wakes it.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_os::clock::Moment;
use weft_os::fds::HighFd;
use weft_os::{clock, fds, sys, thread};
use weft_sync::Mutex;

use crate::fork_gate::ForkGate;
use crate::source::{Interest, Leased, Pollable, Sources};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 64;
/// How often that many are taken before timers have their turn, once the process was stopped.
const CATCH_UP_MAX: usize = 64;
/// How often leases are looked at.
const LEASE_CHECK: Duration = Duration::from_millis(1);
/// Names the descriptor that wakes the thread.
pub(super) const WAKE_TOKEN: u64 = 0;

/// Timers whose sources are no more are looked for once there are so many.
const PRUNE_FROM: usize = 64;

#[derive(Default)]
struct Timers {
    queue: BTreeMap<(Moment, u64), Weak<dyn Pollable>>,
    next: u64,
    /// How many there are when those of sources that are no more are dropped.
    prune_at: usize,
}

impl Timers {
    fn insert(&mut self, deadline: Moment, source: Weak<dyn Pollable>) {
        // A weak reference keeps the memory of its source, and timers of connections are minutes
        // away.
        if self.queue.len() >= self.prune_at.max(PRUNE_FROM) {
            self.queue.retain(|_, source| source.strong_count() > 0);
            self.prune_at = 2 * self.queue.len();
        }
        self.queue.insert((deadline, self.next), source);
        self.next += 1;
    }
}

thread_local! {
    /// Which of the reactor's threads this is.
    static SELF: Cell<*const Worker> = const { Cell::new(ptr::null()) };
    /// Until when this thread looks for events instead of sleeping.
    static LOOKS_UNTIL: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// Whether this is a thread of a reactor.
pub fn runs_here() -> bool {
    !SELF.get().is_null()
}

/// Has this thread, which is a reactor's, look for events until then at least before it sleeps:
/// something is likely to happen sooner than it would have slept and woken. On another thread it
/// does nothing.
pub fn look_until(until: Moment) {
    LOOKS_UNTIL.set(LOOKS_UNTIL.get().max(Some(until)));
}

/// What is done to the list of watched descriptors.
#[derive(Clone, Copy, Debug)]
pub(super) enum EpollOperation {
    Add,
    Modify,
    Remove,
}

impl EpollOperation {
    fn code(self) -> libc::c_int {
        match self {
            Self::Add => libc::EPOLL_CTL_ADD,
            Self::Modify => libc::EPOLL_CTL_MOD,
            Self::Remove => libc::EPOLL_CTL_DEL,
        }
    }

    /// Does it to what is watched of `fd`. A descriptor that epoll refuses is never ready; the
    /// timers of its owner end it.
    pub fn apply(self, list: BorrowedFd<'_>, fd: RawFd, interest: Interest, token: u64) {
        let _ = sys::epoll_ctl(list, self.code(), fd, interest.bits(), token);
    }
}

/// A thread of the reactor.
pub(super) struct Worker {
    epoll: HighFd,
    wake: HighFd,
    timers: Mutex<Timers>,
    leases: Mutex<Vec<Weak<dyn Leased>>>,
    has_leases: AtomicBool,
    /// Where the thread is without locks.
    gate: Arc<ForkGate>,
    sources: Arc<Sources>,
    /// A thread tells the sources that descriptors are closed.
    heeds_loss: AtomicBool,
    stops: AtomicBool,
}

impl Worker {
    /// Starts a thread that serves `sources` and calls `at_start` before anything else, as soon as
    /// its gate lets it.
    ///
    /// # Errors
    /// The errno of the system that has no descriptor or no thread left for it.
    pub fn start(
        sources: Arc<Sources>,
        at_start: Option<fn()>,
        gate: Arc<ForkGate>,
    ) -> io::Result<Arc<Self>> {
        let worker = Arc::new(Self::new(gate, sources)?);
        let own = Arc::clone(&worker);
        thread::spawn(c"weft", move || {
            own.gate.leave();
            if let Some(call) = at_start {
                call();
            }
            own.run();
        })?;
        Ok(worker)
    }

    /// One that nobody runs yet.
    fn new(gate: Arc<ForkGate>, sources: Arc<Sources>) -> io::Result<Self> {
        let epoll = HighFd::new(sys::epoll_create()?);
        let wake = HighFd::new(sys::eventfd()?);
        let fd = wake.as_fd().as_raw_fd();
        let bits = Interest::READ.bits();
        sys::epoll_ctl(epoll.as_fd(), libc::EPOLL_CTL_ADD, fd, bits, WAKE_TOKEN)?;
        Ok(Self {
            epoll,
            wake,
            timers: Mutex::default(),
            leases: Mutex::default(),
            has_leases: AtomicBool::new(false),
            gate,
            sources,
            heeds_loss: AtomicBool::new(false),
            stops: AtomicBool::new(false),
        })
    }

    /// Its list of watched descriptors.
    pub fn list(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Calls `source` at `deadline`.
    pub fn set_timer(&self, deadline: Moment, source: Weak<dyn Pollable>) {
        let mut timers = self.timers.lock();
        let first = timers.queue.first_key_value().map(|(key, _)| key.0);
        timers.insert(deadline, source);
        drop(timers);
        // The thread looks at its timers before it sleeps.
        if first.is_none_or(|first| deadline < first) && !ptr::eq(SELF.get(), self) {
            self.wake();
        }
    }

    /// Looks after a lease until it can be taken back.
    pub fn lease(&self, leased: Weak<dyn Leased>) {
        self.leases.lock().push(leased);
        if !self.has_leases.swap(true, Ordering::AcqRel) {
            self.wake();
        }
    }

    fn wake(&self) {
        if sys::notify(self.wake.as_fd()) {
            return;
        }
        // What a child of a fork has of its parent's reactor wakes nobody.
        let is_inherited = self.wake.is_given_up() && !fds::are_lost();
        if !is_inherited && !sys::is_open(self.wake.as_fd()) {
            self.heed_loss();
        }
    }

    /// The application has closed descriptors. A new thread tells the sources: the worker's may
    /// sleep for ever, and this one may hold what a source needs.
    pub(super) fn heed_loss(&self) {
        if self.heeds_loss.swap(true, Ordering::AcqRel) {
            return;
        }
        let sources = Arc::clone(&self.sources);
        let begun = thread::spawn(c"weft", move || sources.lose());
        // Whoever comes next tries again.
        self.heeds_loss.store(begun.is_ok(), Ordering::Release);
    }

    /// Has the thread end once it has done what it is about.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wake();
    }

    /// Serves what it watches until it is stopped, or cannot any more.
    fn run(&self) {
        SELF.set(self);
        sys::wake_on_time();
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX];
        let (mut due, mut look_at) = (None, clock::now());
        while !self.stops.load(Ordering::Acquire) {
            let now = clock::now();
            if due.is_some_and(|due| clock::stopped_since(due, now).is_some()) {
                self.catch_up(&mut events);
            }
            // Timers last, because the end of a lease may set one.
            let deadlines = [self.check_leases(now, &mut look_at), self.run_timers(now)];
            due = deadlines.into_iter().flatten().min();
            let limit = if still_looks() { Some(Duration::ZERO) } else { due.map(time_to) };
            self.gate.enter();
            let waited = sys::epoll_wait(self.epoll.as_fd(), &mut events, limit);
            self.gate.leave();
            let Some(count) = waited.ok().filter(|_| !fds::are_lost()) else {
                self.sources.lose();
                // Who forks does not wait for it.
                return self.gate.enter();
            };
            for event in &events[..count] {
                self.dispatch(event);
            }
        }
    }

    /// The process was stopped: what came meanwhile is taken before any timer says that it did not.
    fn catch_up(&self, events: &mut [libc::epoll_event]) {
        for _ in 0..CATCH_UP_MAX {
            let waited = sys::epoll_wait(self.epoll.as_fd(), events, Some(Duration::ZERO));
            let count = waited.unwrap_or(0);
            for event in &events[..count] {
                self.dispatch(event);
            }
            if count < events.len() {
                break;
            }
        }
    }

    fn dispatch(&self, event: &libc::epoll_event) {
        if event.u64 == WAKE_TOKEN {
            sys::drain(self.wake.as_fd());
            return;
        }
        self.sources.dispatch(event, |source, readiness| source.ready(readiness));
    }

    /// Calls what is due; gives the time of the next timer. One that is set meanwhile has its turn
    /// after the descriptors, which it would keep waiting if it was due at once again and again.
    fn run_timers(&self, now: Moment) -> Option<Moment> {
        let due = {
            let mut timers = self.timers.lock();
            let later = timers.queue.split_off(&(now, u64::MAX));
            std::mem::replace(&mut timers.queue, later)
        };
        for source in due.values().filter_map(Weak::upgrade) {
            source.timeout(now);
        }
        let timers = self.timers.lock();
        Some(timers.queue.first_key_value()?.0.0)
    }

    /// Takes back the leases that nobody renewed, if it is time to look, at `look_at`; gives the
    /// time to look again.
    fn check_leases(&self, now: Moment, look_at: &mut Moment) -> Option<Moment> {
        if !self.has_leases.load(Ordering::Acquire) {
            return None;
        }
        if now < *look_at {
            return Some(*look_at);
        }
        *look_at = now + LEASE_CHECK;
        let mut leases = std::mem::take(&mut *self.leases.lock());
        let before = now.checked_sub(LEASE_CHECK)?;
        leases.retain(|l| l.upgrade().is_some_and(|l| !l.reclaim(before)));
        let mut current = self.leases.lock();
        current.append(&mut leases);
        if current.is_empty() {
            self.has_leases.store(false, Ordering::Release);
            return None;
        }
        Some(*look_at)
    }
}

/// Whether it is yet to look for events rather than to sleep.
fn still_looks() -> bool {
    let looks = LOOKS_UNTIL.get().is_some_and(|until| clock::now() < until);
    if !looks {
        LOOKS_UNTIL.set(None);
    }
    looks
}

/// How long it is until `due`, by the clock as it is now: what was set for at once meanwhile is
/// due. To sleep for a moment takes some 30 us on a virtual machine.
fn time_to(due: Moment) -> Duration {
    due.saturating_duration_since(clock::now())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    use crate::source::Readiness;

    struct Nobody;

    impl Pollable for Nobody {
        fn ready(&self, _: Readiness) {}
        fn timeout(&self, _: Moment) {}
    }

    /// A source that has more to do at once, in its turn.
    struct Busy(Weak<Worker>, Weak<Self>);

    impl Pollable for Busy {
        fn ready(&self, _: Readiness) {}
        fn timeout(&self, _: Moment) {
            self.0.upgrade().unwrap().set_timer(clock::now(), self.1.clone());
        }
    }

    #[test]
    fn what_a_timer_sets_for_at_once_is_not_slept_for() {
        let worker =
            Arc::new(Worker::new(Arc::new(ForkGate::new()), Arc::new(Sources::new(None))).unwrap());
        let busy = Arc::new_cyclic(|this| Busy(Arc::downgrade(&worker), this.clone()));
        let this: Weak<dyn Pollable> = Arc::downgrade(&busy) as _;
        worker.set_timer(clock::now(), this);
        for _ in 0..1000 {
            assert_eq!(worker.run_timers(clock::now()).map(time_to), Some(Duration::ZERO));
        }
    }

    #[test]
    fn timers_of_sources_that_are_no_more_do_not_gather() {
        let (mut timers, later) = (Timers::default(), clock::now() + Duration::from_secs(60));
        let stays: Vec<Arc<dyn Pollable>> = (0..100).map(|_| Arc::new(Nobody) as _).collect();
        stays.iter().for_each(|source| timers.insert(later, Arc::downgrade(source)));
        for _ in 0..100_000 {
            let gone: Arc<dyn Pollable> = Arc::new(Nobody);
            timers.insert(later, Arc::downgrade(&gone));
        }
        assert!(timers.queue.len() <= 4 * stays.len(), "{} timers", timers.queue.len());
        let left = timers.queue.values().filter(|source| source.strong_count() > 0).count();
        assert_eq!(left, stays.len());
    }
}
