//! Keeps the library's own calls out of its hooks, per thread, and cancellation out of them.

use std::cell::Cell;

use weft_os::calls;
use weft_os::thread::Uncancelled;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The hooks of this thread call the real functions until it is dropped. A cancellation of the
/// thread waits for that too, or for [`sleeping`]: what it has locked when it ends stays locked for
/// ever.
pub struct HookGuard {
    _uncancelled: Uncancelled,
}

/// Begins calls of the library itself; they may nest.
pub fn enter() -> HookGuard {
    DEPTH.set(DEPTH.get() + 1);
    HookGuard { _uncancelled: Uncancelled::begin() }
}

/// Does `sleep`, in which this thread may be cancelled and holds no lock. What runs on it
/// meanwhile, and once it was cancelled, is the application's: handlers of signals, and those that
/// clean up.
pub fn sleeping<T>(sleep: impl FnOnce() -> T) -> T {
    let depth = DEPTH.replace(0);
    let result = calls::sleeping(sleep);
    DEPTH.set(DEPTH.get() + depth);
    result
}

/// Whether this thread calls for the library itself.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Every call of this thread is the library's own.
pub fn stay() {
    DEPTH.set(DEPTH.get().max(1 << 16));
}

impl Drop for HookGuard {
    fn drop(&mut self) {
        // A thread that was cancelled where it slept has left already.
        DEPTH.set(DEPTH.get().saturating_sub(1));
    }
}
