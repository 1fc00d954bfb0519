//! Keeps this library's own calls, and those of the libraries in it, from its hooks.

use std::cell::Cell;

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// While it lives, the hooks of this thread pass everything on.
pub struct Guard(());

/// Begins a stretch of own calls.
pub fn enter() -> Guard {
    DEPTH.set(DEPTH.get() + 1);
    Guard(())
}

/// Whether such a stretch is under way.
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// This thread is the library's own.
pub fn stay() {
    DEPTH.set(DEPTH.get().max(1 << 16));
}

impl Drop for Guard {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}
