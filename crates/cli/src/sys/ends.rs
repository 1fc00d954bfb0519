//! Signals that end this process, heeded late: what it has changed of the terminal is set right
//! first.
//!
//! Order of calls: [`end_late`], whose pipe becomes readable with the first signal; then
//! [`ended_by`], and `die_of`.

use std::io::{self, PipeReader};
use std::os::fd::IntoRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

use super::child::is_ignored;

/// The last of the signals that came; 0 for none.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Where a signal is written.
static WRITER: AtomicI32 = AtomicI32::new(-1);

extern "C" fn note(signal: libc::c_int) {
    ENDED_BY.store(signal, Ordering::Relaxed);
    let byte = 1_u8;
    // SAFETY: returns this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: it is there as long as the thread is.
    let before = unsafe { *errno };
    // SAFETY: one byte of a live local; a number that is no descriptor is refused.
    unsafe { libc::write(WRITER.load(Ordering::Relaxed), (&raw const byte).cast(), 1) };
    // SAFETY: as above. What the signal has interrupted finds it as it was.
    unsafe { *errno = before };
}

/// Has the signals by which somebody ends a program only noted from now on, but for those that are
/// ignored; what becomes readable by the first.
///
/// # Errors
/// There is no pipe to be had.
pub fn end_late() -> io::Result<PipeReader> {
    let (reader, writer) = io::pipe()?;
    WRITER.store(writer.into_raw_fd(), Ordering::Relaxed);
    let handler = note as extern "C" fn(libc::c_int);
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM] {
        if !is_ignored(signal) {
            // SAFETY: the handler stores a number and writes a byte.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
    }
    Ok(reader)
}

/// The signal by which somebody wants this process to end.
pub fn ended_by() -> Option<i32> {
    Some(ENDED_BY.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
}
