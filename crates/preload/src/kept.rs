//! What a thread uses while it sleeps in a call. A thread that is cancelled there runs no
//! destructors of its frames, but those of what it has for itself: so that is where it is kept.
//!
//! Invariant: what is kept by a call of [`keeping`] is given back at its end, or at the end of the
//! thread.

use std::any::Any;
use std::cell::RefCell;
use std::sync::Arc;

type KeptList = Vec<Arc<dyn Any + Send + Sync>>;

thread_local! {
    static KEPT: RefCell<KeptList> = const { RefCell::new(Vec::new()) };
}

/// Does `work`, in which the thread may be cancelled, with what `shared` is: it stays although the
/// application destroys what `shared` is a part of meanwhile.
pub fn keeping<T: Any + Send + Sync, R>(shared: &Arc<T>, work: impl FnOnce(&T) -> R) -> R {
    // A signal handler may have interrupted another call just here, or the thread is about to end.
    let push = |kept: &RefCell<KeptList>| {
        kept.try_borrow_mut().map(|mut kept| kept.push(Arc::clone(shared) as _)).is_ok()
    };
    if KEPT.try_with(push) != Ok(true) {
        return work(&Arc::clone(shared));
    }
    // SAFETY: the list has it until below, which no other call on this thread is behind.
    let result = work(unsafe { &*Arc::as_ptr(shared) });
    // Dropped after the list is free: it may be the last one.
    let last = KEPT.try_with(|kept| kept.try_borrow_mut().ok().and_then(|mut kept| kept.pop()));
    drop(last);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_given_back_at_the_end_of_the_call_or_of_the_thread() {
        let shared = Arc::new(7);
        assert_eq!(keeping(&shared, |seven| (*seven, Arc::strong_count(&shared))), (7, 2));
        assert_eq!(Arc::strong_count(&shared), 1);
        let other = Arc::clone(&shared);
        let ended = std::thread::spawn(move || {
            keeping(&other, |_| {
                keeping(&other, |_| assert_eq!(Arc::strong_count(&other), 4));
                // What a cancelled thread does not run.
                std::panic::resume_unwind(Box::new(()));
            })
        });
        assert!(ended.join().is_err());
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}
