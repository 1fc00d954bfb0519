//! Signals that end this process, heeded late: what it has changed of the terminal is set right
//! first.
//!
//! Order of calls: [`end_late`], then [`ended_by`] between two waits, which the signal interrupts;
//! then `die_of`.

use std::sync::atomic::{AtomicI32, Ordering};

/// The last of the signals that came; 0 for none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);

extern "C" fn note(signal: libc::c_int) {
    ENDED_BY.store(signal, Ordering::Relaxed);
}

/// Has the signals by which somebody ends a program only noted from now on.
pub fn end_late() {
    let handler = note as extern "C" fn(libc::c_int);
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores a number.
        unsafe { libc::signal(signal, handler as libc::sighandler_t) };
    }
}

/// The signal by which somebody wants this process to end.
pub fn ended_by() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
