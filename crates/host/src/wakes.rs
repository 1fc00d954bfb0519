//! Wake-ups of application threads, which leave after the lock of the connection that they come
//! from: a thread that runs at once would wait for that lock.
//!
//! Invariant: a wake-up that is postponed is carried out by the thread that has postponed it,
//! before anything else is told.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use weft_os::thread::Uncancelled;
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::Wake;

/// What a thread has postponed.
struct Postponed {
    /// Steps that this thread is in.
    steps: Cell<u32>,
    /// Not dropped with the thread, for which the C library would have to allocate something: it
    /// ends the process where there is no memory. Between steps nothing is in it.
    wakes: RefCell<ManuallyDrop<Vec<Arc<dyn Wake>>>>,
}

thread_local! {
    static POSTPONED: Postponed = const {
        Postponed { steps: Cell::new(0), wakes: RefCell::new(ManuallyDrop::new(Vec::new())) }
    };
}

/// Has `wake` called after the lock of a connection, if the thread that causes it holds one.
pub fn after_lock(wake: Box<dyn Wake>) -> Box<dyn Wake> {
    Box::new(AfterLock(Arc::from(wake)))
}

struct AfterLock(Arc<dyn Wake>);

impl AfterLock {
    /// Leaves it to the end of the step that this thread is in; whether it is in one, and there is
    /// memory for it.
    fn postpone(&self) -> bool {
        POSTPONED.with(|postponed| {
            let Ok(mut list) = postponed.wakes.try_borrow_mut() else { return false };
            let is_postponed = postponed.steps.get() > 0 && list.try_reserve(1).is_ok();
            if is_postponed {
                list.push(Arc::clone(&self.0));
            }
            is_postponed
        })
    }
}

impl Wake for AfterLock {
    fn wake(&self) {
        if !self.postpone() {
            self.0.wake();
        }
    }
}

/// A lock behind which wake-ups are caused: they are carried out once it is released.
pub struct PostponingGuard<'a, T> {
    // Dropped first.
    guard: MutexGuard<'a, T>,
    _wakes: PostponedWakes,
}

impl<'a, T> PostponingGuard<'a, T> {
    /// Locks `mutex`. The thread is not cancelled until it is released.
    pub fn lock(mutex: &'a Mutex<T>) -> Self {
        Self::lock_in(PostponedWakes::begin(), mutex)
    }

    /// The same behind which no call is made in which a thread can be cancelled, but in steps of
    /// their own.
    pub fn lock_briefly(mutex: &'a Mutex<T>) -> Self {
        Self::lock_in(PostponedWakes::begin_briefly(), mutex)
    }

    fn lock_in(wakes: PostponedWakes, mutex: &'a Mutex<T>) -> Self {
        Self { guard: mutex.lock(), _wakes: wakes }
    }
}

impl<T> Deref for PostponingGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for PostponingGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// A step of this thread on a connection. It begins with the lock, and is dropped after it; the
/// thread is not cancelled meanwhile. For a lock that is released at its end,
/// [`PostponingGuard`] keeps both together.
pub(crate) struct PostponedWakes {
    uncancelled: Option<Uncancelled>,
}

impl PostponedWakes {
    /// Postpones the wake-ups of this thread from now on.
    pub fn begin() -> Self {
        let mut step = Self::begin_briefly();
        step.forbid_cancel();
        step
    }

    /// The same for a step that makes no call in which a thread can be cancelled, which takes less
    /// time; or does not before [`PostponedWakes::forbid_cancel`].
    pub fn begin_briefly() -> Self {
        POSTPONED.with(|postponed| postponed.steps.set(postponed.steps.get() + 1));
        Self { uncancelled: None }
    }

    /// The thread is not cancelled from now on.
    pub fn forbid_cancel(&mut self) {
        self.uncancelled.get_or_insert_with(Uncancelled::begin);
    }
}

impl Drop for PostponedWakes {
    fn drop(&mut self) {
        let any = POSTPONED.with(|postponed| {
            postponed.steps.set(postponed.steps.get() - 1);
            postponed.steps.get() == 0 && !postponed.wakes.borrow().is_empty()
        });
        if any {
            let _uncancelled = Uncancelled::begin();
            while let Some(wake) = POSTPONED.with(|postponed| postponed.wakes.borrow_mut().pop()) {
                wake.wake();
            }
            POSTPONED.with(|postponed| **postponed.wakes.borrow_mut() = Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Count(Arc<AtomicUsize>);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wake_ups_wait_for_the_end_of_the_step_that_causes_them() {
        let count = Arc::new(AtomicUsize::new(0));
        let wake = after_lock(Box::new(Count(Arc::clone(&count))));
        let woken = || count.load(Ordering::Relaxed);
        wake.wake();
        assert_eq!(woken(), 1, "no step, nothing to wait for");
        let outer = PostponedWakes::begin();
        let inner = PostponedWakes::begin();
        wake.wake();
        drop(inner);
        wake.wake();
        assert_eq!(woken(), 1);
        drop(outer);
        assert_eq!(woken(), 3);
    }

    #[test]
    fn wake_ups_find_the_lock_released_that_they_were_caused_behind() {
        struct TryLock(Arc<Mutex<u32>>, Arc<AtomicUsize>);

        impl Wake for TryLock {
            fn wake(&self) {
                self.1.fetch_add(self.0.try_lock().map_or(0, |_| 1), Ordering::Relaxed);
            }
        }

        let (mutex, free) = (Arc::new(Mutex::default()), Arc::new(AtomicUsize::new(0)));
        let wake = after_lock(Box::new(TryLock(Arc::clone(&mutex), Arc::clone(&free))));
        let mut guard = PostponingGuard::lock(&mutex);
        wake.wake();
        *guard += 1;
        drop(guard);
        assert_eq!((free.load(Ordering::Relaxed), *mutex.lock()), (1, 1));
    }

    #[test]
    fn a_step_of_another_thread_postpones_nothing() {
        let count = Arc::new(AtomicUsize::new(0));
        let wake = after_lock(Box::new(Count(Arc::clone(&count))));
        let _step = PostponedWakes::begin();
        std::thread::scope(|scope| {
            scope.spawn(|| wake.wake());
        });
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }
}
