//! Filters of system calls (seccomp) that an application sets for itself.
//!
//! An application that writes permits itself to write, and may be ended for any other call. So what
//! this library does instead of a write, or before it, ends with the filter.

use std::sync::atomic::{AtomicBool, Ordering};

static ARE_SET: AtomicBool = AtomicBool::new(false);

/// Whether this process may have a filter of its own.
pub fn are_set() -> bool {
    ARE_SET.load(Ordering::Relaxed)
}

/// The application is about to set one.
pub fn handle_set() {
    ARE_SET.store(true, Ordering::Relaxed);
}
