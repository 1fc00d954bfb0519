//! Wake-ups of application threads, which leave after the lock of the connection that they come
//! from: a thread that runs at once would wait for that lock.
//!
//! Invariant: a wake-up that is postponed is carried out by the thread that has postponed it,
//! before anything else is told.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use weft_os::thread::Uncancelled;
use weft_verbs::Wake;

thread_local! {
    /// Steps that this thread is in.
    static STEPS: Cell<u32> = const { Cell::new(0) };
    /// Not dropped with the thread, for which the C library would have to allocate something: it
    /// ends the process where there is no memory. Between steps nothing is in it.
    static POSTPONED: RefCell<ManuallyDrop<Vec<Arc<dyn Wake>>>> =
        const { RefCell::new(ManuallyDrop::new(Vec::new())) };
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
        let postpone = |postponed: &RefCell<ManuallyDrop<Vec<_>>>| {
            let Ok(mut list) = postponed.try_borrow_mut() else { return false };
            let has_room = list.try_reserve(1).is_ok();
            if has_room {
                list.push(Arc::clone(&self.0));
            }
            has_room
        };
        STEPS.get() > 0 && POSTPONED.with(postpone)
    }
}

impl Wake for AfterLock {
    fn wake(&self) {
        if !self.postpone() {
            self.0.wake();
        }
    }
}

/// A step of this thread on a connection. It begins with the lock, and is dropped after it; the
/// thread is not cancelled meanwhile.
pub(crate) struct PostponedWakes(Uncancelled);

impl PostponedWakes {
    /// Postpones the wake-ups of this thread from now on.
    pub fn begin() -> Self {
        STEPS.set(STEPS.get() + 1);
        Self(Uncancelled::begin())
    }
}

impl Drop for PostponedWakes {
    fn drop(&mut self) {
        STEPS.set(STEPS.get() - 1);
        if STEPS.get() > 0 {
            return;
        }
        while let Some(wake) = POSTPONED.with(|list| list.borrow_mut().pop()) {
            wake.wake();
        }
        POSTPONED.with(|list| **list.borrow_mut() = Vec::new());
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
