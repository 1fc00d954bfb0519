//! Who drives a connection and who tells what came of it, in all interleavings of a few threads:
//! `src/slot.rs` itself, with the locks and atomics of a model checker.

#[path = "../src/slot.rs"]
#[allow(dead_code, reason = "the library uses all of it")]
mod slot;

/// What `src/sync.rs` is in the library.
mod sync {
    pub use loom::sync::MutexGuard;
    pub use loom::sync::atomic::{AtomicU8, Ordering};

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
        self.slot.step(guard, |count, work| self.act(count, work), |notice| self.tell(notice));
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
        model.slot.step(guard, act, |notice| model.tell(notice));
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
        model.slot.step(model.slot.lock(), |count, work| model.act(count, work), again);
        model.drive(0);
        other.join().unwrap();
        assert_eq!(model.told.load(Ordering::Relaxed), *model.slot.lock());
        assert_eq!(model.slot.pending(), 0);
    });
}
