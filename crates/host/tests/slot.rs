//! Who drives a connection and who tells what came of it, in all interleavings of a few threads:
//! `src/slot.rs` and `src/lease.rs` themselves, with the locks and atomics of a model checker.

#[path = "../src/lease.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod lease;
#[path = "../src/slot.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod slot;

/// What `src/sync.rs` is in the library.
mod sync {
    pub use loom::sync::MutexGuard;
    pub use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

    pub type ThreadId = loom::thread::ThreadId;

    pub fn this_thread() -> ThreadId {
        loom::thread::current().id()
    }

    pub struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap()
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    pub struct Condvar(loom::sync::Condvar);

    impl Condvar {
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        pub fn wait_while<'a, T>(
            &self,
            mut guard: MutexGuard<'a, T>,
            mut condition: impl FnMut(&mut T) -> bool,
        ) -> MutexGuard<'a, T> {
            while condition(&mut guard) {
                guard = self.0.wait(guard).unwrap();
            }
            guard
        }

        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}

use std::sync::atomic::{AtomicUsize, Ordering};

use loom::sync::Arc;
use loom::thread;

/// Runs `model` in all interleavings in which threads are preempted no more often than that, which
/// is where all known races of this kind show.
fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

const PREEMPTIONS: usize = 3;

/// What happens to a connection, as far as its owner is told: what was begun, in its order.
type Notice = usize;

/// A connection that has something to tell at each step, and who is told.
struct Model {
    slot: slot::Slot<Notice, Notice>,
    /// Notices that were told. The checker knows nothing of this, and need not.
    told: AtomicUsize,
    /// Whether one is being told; other threads may run before and after each change.
    telling: loom::sync::atomic::AtomicUsize,
    /// Work that was done, each bit once.
    done: AtomicUsize,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slot: slot::Slot::new(0),
            told: AtomicUsize::new(0),
            telling: loom::sync::atomic::AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        })
    }

    /// Notices come in their order, and one at a time.
    fn tell(&self, notice: Notice) {
        assert_eq!(self.telling.swap(1, Ordering::Relaxed), 0, "two are told at once");
        assert_eq!(self.told.swap(notice + 1, Ordering::Relaxed), notice, "told out of turn");
        assert_eq!(self.telling.swap(0, Ordering::Relaxed), 1);
    }

    /// A step with work has a notice, as the end or the beginning of a connection would be.
    fn act(&self, count: &mut usize, work: u8) -> Option<Notice> {
        self.done.fetch_add(work.into(), Ordering::Relaxed);
        (work != 0).then(|| std::mem::replace(count, *count + 1))
    }

    /// A thread of the application rings.
    fn drive(&self, work: u8) {
        self.slot.drive(work, |guard| self.step(guard));
    }

    fn step(&self, guard: sync::MutexGuard<'_, usize>) {
        let act = |count: &mut usize, work| self.act(count, work);
        self.slot.step(guard, act, || (), |notice| self.tell(notice));
    }

    /// The engine finds the socket ready, and waits for the lock.
    fn ready(&self, work: u8) {
        self.slot.leave(work);
        self.step(self.slot.lock());
        self.drive(0);
    }

    fn is_quiet(&self, work: usize) {
        assert_eq!(self.slot.pending(), 0, "work is left and nobody will do it");
        assert_eq!(self.done.load(Ordering::Relaxed), work);
        assert_eq!(self.told.load(Ordering::Relaxed), *self.slot.lock(), "notices are left");
    }
}

#[test]
fn work_is_done_and_told_in_order_whoever_has_the_lock() {
    check(|| {
        let model = Model::new();
        let threads = [1, 2].map(|work| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.drive(work))
        });
        model.ready(4);
        for thread in threads {
            thread.join().unwrap();
        }
        model.is_quiet(7);
    });
}

/// A request for another connection is announced once what has come about on this one is told.
#[test]
fn who_settles_finds_everything_told() {
    check(|| {
        let model = Model::new();
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.ready(1))
        };
        model.slot.leave(2);
        let mut come_about = 0;
        let guard = model.slot.lock();
        let act = |count: &mut usize, work| {
            let notice = model.act(count, work);
            come_about = *count;
            notice
        };
        model.slot.step(guard, act, || (), |notice| model.tell(notice));
        model.slot.settle();
        assert!(model.told.load(Ordering::Relaxed) >= come_about, "settled too early");
        other.join().unwrap();
        model.is_quiet(3);
    });
}

/// Who is told may end the connection, which has notices of its own: they follow.
#[test]
fn what_follows_from_a_notice_is_told_after_it() {
    check(|| {
        let model = Model::new();
        let other = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.drive(1))
        };
        let again = |notice| {
            model.tell(notice);
            if notice == 0 {
                model.drive(4);
                model.slot.settle();
            }
        };
        model.slot.leave(2);
        let act = |count: &mut usize, work| model.act(count, work);
        model.slot.step(model.slot.lock(), act, || (), again);
        model.drive(0);
        other.join().unwrap();
        assert_eq!(model.told.load(Ordering::Relaxed), *model.slot.lock());
        assert_eq!(model.slot.pending(), 0);
    });
}

/// A connection that a polling thread may have the lease on, and the reactor's list.
struct LeasedModel {
    /// The lease, and nothing to tell.
    slot: slot::Slot<bool, Notice>,
    lease: lease::Lease,
    /// How often the reactor has it in its list, which has a lock.
    attended: loom::sync::atomic::AtomicUsize,
    /// The checker knows nothing of this, and need not.
    done: AtomicUsize,
}

impl LeasedModel {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slot: slot::Slot::new(false),
            lease: lease::Lease::new(),
            attended: loom::sync::atomic::AtomicUsize::new(0),
            done: AtomicUsize::new(0),
        })
    }

    /// One whose doorbells leave their work to the next poll.
    fn streaming() -> Arc<Self> {
        let model = Self::new();
        assert!((0..8).all(|_| model.lease.ring() == lease::Doorbell::Send));
        model.lease.end_run();
        assert_eq!(model.lease.ring(), lease::Doorbell::Send);
        model
    }

    fn step(&self, guard: sync::MutexGuard<'_, bool>) {
        let act = |_: &mut bool, work: u8| {
            self.done.fetch_or(work.into(), Ordering::Relaxed);
            None
        };
        self.slot.step(guard, act, || (), |_| ());
    }

    fn drive(&self, work: u8) {
        self.slot.drive(work, |guard| self.step(guard));
    }

    fn attend(&self) {
        self.attended.fetch_add(1, Ordering::AcqRel);
    }

    /// A thread of the application rings.
    fn ring(&self, work: u8) {
        match self.lease.ring() {
            lease::Doorbell::Send => return self.drive(work),
            lease::Doorbell::Leave => {}
            lease::Doorbell::LeaveAndAttend => self.attend(),
        }
        self.slot.leave(work);
        if !self.lease.is_attended() {
            self.drive(0);
        }
    }

    /// One polls for the second time in a row, and never again.
    fn poll(&self) {
        self.lease.end_run();
        let mut leased = self.slot.lock();
        let takes = !std::mem::replace(&mut *leased, true);
        self.step(leased);
        self.lease.note_work();
        self.drive(0);
        if takes && self.lease.claim() {
            self.attend();
        }
    }

    /// The reactor looks, if it has been told to; no poll came since it last did.
    fn look(&self) {
        if self.attended.load(Ordering::Acquire) == 0 {
            return;
        }
        let leased = self.slot.try_lock();
        let over = self.lease.look(leased.is_some());
        if over {
            self.attended.fetch_sub(1, Ordering::AcqRel);
        }
        match leased {
            Some(mut leased) if over => {
                *leased = false;
                self.step(leased);
            }
            leased => drop(leased),
        }
        self.drive(0);
    }

    /// The reactor has what nobody polls any more, and all the work is done.
    fn ends(&self, work: usize) {
        let attended = self.attended.load(Ordering::Acquire);
        assert_eq!(attended, usize::from(self.lease.is_attended()), "the reactor's list is wrong");
        // From the state in which everything has just happened, two looks end it.
        self.look();
        self.look();
        assert!(!self.lease.is_attended() && !*self.slot.lock(), "the lease does not end");
        assert_eq!(self.slot.pending(), 0, "work is left and nobody will do it");
        assert_eq!(self.done.load(Ordering::Relaxed), work);
    }
}

#[test]
fn what_doorbells_leave_is_done_although_no_poll_comes() {
    check(|| {
        let model = LeasedModel::streaming();
        let threads = [1, 2].map(|work| {
            let model = Arc::clone(&model);
            thread::spawn(move || model.ring(work))
        });
        (0..2).for_each(|_| model.look());
        for thread in threads {
            thread.join().unwrap();
        }
        model.ends(3);
    });
}

#[test]
fn a_lease_ends_although_it_is_taken_while_the_reactor_looks() {
    check(|| {
        let model = LeasedModel::streaming();
        let polls = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.poll())
        };
        let rings = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.ring(1))
        };
        (0..3).for_each(|_| model.look());
        polls.join().unwrap();
        rings.join().unwrap();
        model.ends(1);
    });
}

/// A doorbell that finds the lock taken counts on who has it, even if that only looks.
#[test]
fn a_look_leaves_no_doorbell_behind() {
    check(|| {
        let model = LeasedModel::new();
        model.poll();
        let rings = {
            let model = Arc::clone(&model);
            thread::spawn(move || model.ring(1))
        };
        model.look();
        rings.join().unwrap();
        assert_eq!(model.slot.pending(), 0, "work is left until the next look");
        model.ends(1);
    });
}

#[test]
fn the_reactor_is_told_once_until_it_looks_no_more() {
    check(|| {
        let lease = lease::Lease::new();
        assert!(lease.claim() && !lease.claim());
        assert!(!lease.look(true), "the lease was taken since the last look");
        assert!(!lease.look(false), "somebody polls");
        lease.note_work();
        assert!(!lease.look(true), "work was done since the last look");
        assert!(lease.look(true) && !lease.is_attended());
        assert!(lease.claim());
    });
}

#[test]
fn others_help_when_its_own_queues_are_not_polled_in_a_loop() {
    check(|| {
        let lease = lease::Lease::new();
        let now_ns = 10 * lease::POLL_LOOP_NS;
        assert!(!lease.is_polled(now_ns));
        lease.note_own_poll(now_ns);
        assert!(lease.is_polled(now_ns + lease::POLL_LOOP_NS));
        assert!(!lease.is_polled(now_ns + lease::POLL_LOOP_NS + 1));
    });
}
