//! Keeps the library's own calls out of its hooks, per thread.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// The hooks of this thread call the real functions until it is dropped.
pub struct HookGuard(());

/// Begins calls of the library itself; they may nest.
pub fn enter() -> HookGuard {
    DEPTH.set(DEPTH.get() + 1);
    HookGuard(())
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
        DEPTH.set(DEPTH.get() - 1);
    }
}
