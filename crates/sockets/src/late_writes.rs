//! Writes to a connection that the peer has closed.
//!
//! TCP takes the first one, because only the answer to it says that nobody reads any more, and
//! fails those after it. The kernel fails each at an `AF_UNIX` socket, by `SIGPIPE`: a server that
//! greets its callers would end with one that has only looked whether it is there. So the first one
//! succeeds here too, unless the peer has reset the connection: that is its error.
//!
//! Invariant: a descriptor without a mark costs one look at its mark. A mark is a guess: what is
//! open there may be something else by now.
//!
//! Order of calls: [`begin`] once a connection is at a descriptor, [`handle_shutdown`] when the
//! application ends its half; [`send`] for each write; [`forget`] when it is closed.

use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::hooks::{ends_of, errno, fail};
use crate::{filters, sys};

/// No connection.
const NONE: u8 = 0;
/// A connection, of which nothing was written after the peer had closed it.
const OPEN: u8 = 1;
/// One whose next write after that fails: there was one, or the application has ended its half.
const SPENT: u8 = 2;

/// Descriptors that have marks: those below.
const MARKED_MAX: usize = 1 << 16;

static MARKS: [AtomicU8; MARKED_MAX] = [const { AtomicU8::new(NONE) }; MARKED_MAX];

fn mark_of(fd: RawFd) -> Option<&'static AtomicU8> {
    MARKS.get(usize::try_from(fd).ok()?)
}

fn set(fd: RawFd, mark: u8) {
    if let Some(at) = mark_of(fd) {
        at.store(mark, Ordering::Relaxed);
    }
}

/// There is a new connection at `fd`.
pub fn begin(fd: RawFd) {
    set(fd, OPEN);
}

/// There is no connection of this library at `fd`.
pub fn forget(fd: RawFd) {
    set(fd, NONE);
}

/// There is none at the descriptors from `first` to `last`.
pub fn forget_all(first: c_uint, last: c_uint) {
    let end = MARKED_MAX.min((last as usize).saturating_add(1));
    let marks = MARKS.get(first as usize..end).unwrap_or_default();
    marks.iter().for_each(|mark| mark.store(NONE, Ordering::Relaxed));
}

/// The application has shut down `fd`, if it `succeeded`.
pub fn handle_shutdown(fd: RawFd, how: c_int, succeeded: bool) {
    if succeeded && how != libc::SHUT_RD && is_marked(fd) {
        set(fd, SPENT);
    }
}

/// Whether a connection of this library may be at `fd`, and writes to it may be other calls.
fn is_marked(fd: RawFd) -> bool {
    let is_set = |mark: &AtomicU8| mark.load(Ordering::Relaxed) != NONE;
    mark_of(fd).is_some_and(is_set) && !filters::are_set()
}

/// Writes `bytes` bytes to `fd` by `plain`, which is what the application has called; if `fd` has a
/// mark, first by `quiet`, which sends them without a signal.
#[inline]
pub fn send(
    fd: RawFd,
    bytes: impl FnOnce() -> usize,
    quiet: impl FnOnce() -> isize,
    plain: impl FnOnce() -> isize,
) -> isize {
    if !is_marked(fd) {
        return plain();
    }
    let done = quiet();
    if done >= 0 {
        return done;
    }
    match errno() {
        libc::EPIPE if is_first(fd) => match sys::take_error(fd) {
            // What is at fault is told once, and without a signal.
            Some(error) => fail(error) as isize,
            None => bytes().cast_signed(),
        },
        // With the signal.
        libc::EPIPE => plain(),
        libc::ENOTSOCK => {
            forget(fd);
            plain()
        }
        _ => done,
    }
}

/// Whether a write to the connection at `fd`, which nobody reads any more, is the first one.
fn is_first(fd: RawFd) -> bool {
    let spend = |mark: &AtomicU8| mark.swap(SPENT, Ordering::Relaxed) == OPEN;
    ends_of(fd).is_some() && mark_of(fd).is_some_and(spend)
}
