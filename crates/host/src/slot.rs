//! Who drives a connection, and who tells what came of it.
//!
//! One thread at a time has the lock. Who does not get it leaves flags, which the holder sees once
//! it has let go. What is to be told outside, where nothing may be locked, goes into an [`Outbox`]
//! while the lock is still held.
//!
//! Invariant: no flag is left while nobody has the lock or is about to take it; notices are told in
//! the order in which they came about, one at a time, each once.
//!
//! `tests/slot.rs` compiles this file with the locks of a model checker, which goes through all
//! interleavings of a few threads.

use std::collections::VecDeque;

use crate::sync::{AtomicU8, Condvar, Mutex, MutexGuard, Ordering, ThreadId, this_thread};

/// A connection's place: the lock on it, flags of work for its holder, and its notices.
pub struct Slot<T, N> {
    held: Mutex<T>,
    pending: AtomicU8,
    outbox: Outbox<N>,
}

impl<T, N> Slot<T, N> {
    /// A place that holds `held`.
    pub fn new(held: T) -> Self {
        Self { held: Mutex::new(held), pending: AtomicU8::new(0), outbox: Outbox::new() }
    }

    /// The lock. Flags that others leave meanwhile wait for the next [`Slot::drive`].
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.held.lock()
    }

    /// The lock, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.held.try_lock()
    }

    /// Leaves `work` for the next who has the lock. The caller sees to it that there is one.
    pub fn leave(&self, work: u8) {
        self.pending.fetch_or(work, Ordering::SeqCst);
    }

    /// What is left for the next holder, as far as this thread can tell.
    pub fn pending(&self) -> u8 {
        self.pending.load(Ordering::Acquire)
    }

    /// Has `step` do `work` and what others have left, unless somebody has the lock, who will.
    /// `step` takes the flags by [`Slot::step`].
    pub fn drive(&self, work: u8, mut step: impl FnMut(MutexGuard<'_, T>)) {
        // A read that also writes sees every flag of those who found this thread's lock taken: one
        // that came later finds it free.
        let left = |work| self.pending.fetch_or(work, Ordering::SeqCst) | work;
        let mut pending = left(work);
        while pending != 0 {
            let Some(guard) = self.try_lock() else { return };
            step(guard);
            pending = left(0);
        }
    }

    /// Has `act` do what is pending, then lets go of the lock, calls `unlocked` and tells what came
    /// of it.
    pub fn step<I: IntoIterator<Item = N>>(
        &self,
        mut guard: MutexGuard<'_, T>,
        act: impl FnOnce(&mut T, u8) -> I,
        unlocked: impl FnOnce(),
        tell: impl FnMut(N),
    ) {
        let work = self.pending.swap(0, Ordering::AcqRel);
        let posted = self.outbox.post(act(&mut guard, work));
        drop(guard);
        unlocked();
        if posted {
            self.outbox.deliver(tell);
        }
    }

    /// Waits until what has come about so far is told, unless this very thread is telling it.
    pub fn settle(&self) {
        self.outbox.settle();
    }
}

struct Queue<N> {
    waiting: VecDeque<N>,
    /// Who tells, until the queue is empty.
    teller: Option<ThreadId>,
}

/// Notices on their way out, told by one thread at a time.
pub struct Outbox<N> {
    queue: Mutex<Queue<N>>,
    told: Condvar,
}

impl<N> Default for Outbox<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<N> Outbox<N> {
    /// An empty one.
    pub fn new() -> Self {
        let queue = Queue { waiting: VecDeque::new(), teller: None };
        Self { queue: Mutex::new(queue), told: Condvar::new() }
    }

    /// Adds notices in their order; whether there are any. [`Outbox::deliver`] must follow.
    pub fn post(&self, notices: impl IntoIterator<Item = N>) -> bool {
        let mut notices = notices.into_iter().peekable();
        let any = notices.peek().is_some();
        if any {
            self.queue.lock().waiting.extend(notices);
        }
        any
    }

    /// Tells all that waits, or leaves it to the thread that is telling. Nothing of the outbox is
    /// locked while `tell` runs, which may post and deliver itself.
    pub fn deliver(&self, mut tell: impl FnMut(N)) {
        let mut queue = self.queue.lock();
        if queue.teller.is_some() {
            return;
        }
        queue.teller = Some(this_thread());
        while let Some(notice) = queue.waiting.pop_front() {
            drop(queue);
            tell(notice);
            queue = self.queue.lock();
        }
        queue.teller = None;
        drop(queue);
        self.told.notify_all();
    }

    /// Waits until what is posted is told, unless this very thread is telling it.
    pub fn settle(&self) {
        let this = this_thread();
        // Who has posted and does not tell yet is about to.
        let others = |queue: &mut Queue<N>| match &queue.teller {
            Some(teller) => *teller != this,
            None => !queue.waiting.is_empty(),
        };
        drop(self.told.wait_while(self.queue.lock(), others));
    }
}
