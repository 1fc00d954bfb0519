//! Descriptors of our own, out of the application's way.
//!
//! Programs close descriptors blindly and give them to `select`, so ours have high numbers. The
//! child of a fork must not keep a connection of its parent open: every descriptor is on a list
//! from which the child closes them.
//!
//! Some programs close every descriptor that they do not know, ours as well ([`forget_all`]).
//!
//! Invariant: a descriptor is closed once. What the child still has of an object of its parent, or
//! a process of what it has closed, leaves the number alone, which is another descriptor's by then.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// Descriptors listed for the child of a fork; those beyond are merely inherited.
const LISTED_MAX: usize = 8192;
const FREE: i32 = -1;

/// How often the listed descriptors were given up, by [`close_all`] or [`forget_all`].
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Whether the application has closed descriptors of ours.
static LOST: AtomicBool = AtomicBool::new(false);

static LISTED: [AtomicI32; LISTED_MAX] = [const { AtomicI32::new(FREE) }; LISTED_MAX];

/// A descriptor with a high number that a forked child closes.
#[derive(Debug)]
pub struct HighFd {
    /// Shared only by what keeps it from being closed.
    fd: Arc<OwnedFd>,
    slot: Option<usize>,
    generation: u32,
}

impl HighFd {
    /// Moves `fd` to a high number. If there is none free, it stays where it is.
    pub fn new(fd: OwnedFd) -> Self {
        let fd = Arc::new(high(fd));
        let slot = list(fd.as_raw_fd());
        Self { fd, slot, generation: GENERATION.load(Ordering::Acquire) }
    }

    /// Whether the number is not ours any more.
    pub fn is_given_up(&self) -> bool {
        self.slot.is_some() && self.generation != GENERATION.load(Ordering::Acquire)
    }
}

impl AsFd for HighFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        if self.is_given_up() { sys::no_descriptor() } else { self.fd.as_fd() }
    }
}

impl Drop for HighFd {
    fn drop(&mut self) {
        let is_given_up = self.is_given_up();
        if is_given_up || !sys::is_open(self.fd.as_fd()) {
            // It is closed.
            mem::forget(Arc::clone(&self.fd));
        }
        if let Some(slot) = self.slot.filter(|_| !is_given_up) {
            LISTED[slot].store(FREE, Ordering::Release);
        }
    }
}

/// Moves `fd` to a high number, with close-on-exec.
pub fn high(fd: OwnedFd) -> OwnedFd {
    let from = sys::descriptor_limit() / 2;
    sys::duplicate(fd.as_fd(), from).unwrap_or(fd)
}

/// Takes one from a counter (`EFD_SEMAPHORE`) that is not zero; whether it did. It never sleeps.
pub fn take_one(counter: BorrowedFd<'_>) -> bool {
    sys::take_one(counter)
}

fn list(fd: RawFd) -> Option<usize> {
    LISTED.iter().position(|slot| {
        slot.compare_exchange(FREE, fd, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// Closes every listed descriptor, in the child of a fork.
pub fn close_all() {
    LOST.store(false, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for slot in &LISTED {
        let fd = slot.swap(FREE, Ordering::AcqRel);
        if fd != FREE {
            sys::close(fd);
        }
    }
}

/// The application has closed our descriptors: their numbers are its own from now on, and what has
/// one of them has none any more. One that it has left open stays so.
pub fn forget_all() {
    LOST.store(true, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for slot in &LISTED {
        slot.store(FREE, Ordering::Release);
    }
}

/// A call with `fd` has failed by `EBADF`: the application has closed it, unless it was given up
/// before.
pub fn note_lost(fd: BorrowedFd<'_>) {
    if fd.as_raw_fd() != sys::no_descriptor().as_raw_fd() {
        LOST.store(true, Ordering::Release);
    }
}

/// Whether the application has closed descriptors of ours: a number that it was given may be any
/// file's.
pub fn are_lost() -> bool {
    LOST.load(Ordering::Acquire)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    /// What the numbers of others are is not for a test beside others to change.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

    #[test]
    fn a_number_that_was_given_up_is_neither_used_nor_closed() {
        let _alone = ONE.lock().unwrap();
        let ours = HighFd::new(sys::eventfd().unwrap());
        let number = ours.as_fd().as_raw_fd();
        // The application has closed it, and has another file of this number.
        let other = File::open("/dev/null").unwrap();
        sys::replace(ours.as_fd(), other.as_fd()).unwrap();
        assert!(!are_lost(), "nobody else gives them up");
        forget_all();
        assert!(are_lost() && !sys::notify(ours.as_fd()));
        drop(ours);
        let path = std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap();
        assert_eq!(path.to_str(), Some("/dev/null"));
        sys::close(number);
    }

    #[test]
    fn descriptors_are_high_and_leave_the_list() {
        let _alone = ONE.lock().unwrap();
        let fd = HighFd::new(sys::eventfd().unwrap());
        assert!(fd.as_fd().as_raw_fd() >= 256);
        let slot = fd.slot.unwrap();
        drop(fd);
        assert_ne!(LISTED[slot].load(Ordering::Relaxed), 0);
    }
}
