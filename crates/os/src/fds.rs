//! Descriptors of our own, out of the application's way.
//!
//! Programs close descriptors blindly and give them to `select`, so ours have high numbers. The
//! child of a fork must not keep a connection of its parent open: every descriptor is on a list
//! from which the child closes them.
//!
//! Invariant: a descriptor is closed once. What the child still has of an object of its parent
//! leaves the number alone, which is another descriptor's by then.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::sys;

/// Descriptors listed for the child of a fork; those beyond are merely inherited.
const LISTED_MAX: usize = 8192;
const FREE: i32 = -1;

/// Which process of a line of forks this is, as far as [`close_all`] knows.
static GENERATION: AtomicU32 = AtomicU32::new(0);

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
}

impl AsFd for HighFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for HighFd {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        if self.generation == GENERATION.load(Ordering::Acquire) {
            LISTED[slot].store(FREE, Ordering::Release);
        } else {
            // [`close_all`] has closed it.
            mem::forget(Arc::clone(&self.fd));
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
    GENERATION.fetch_add(1, Ordering::AcqRel);
    for slot in &LISTED {
        let fd = slot.swap(FREE, Ordering::AcqRel);
        if fd != FREE {
            sys::close(fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_high_and_leave_the_list() {
        let fd = HighFd::new(sys::eventfd().unwrap());
        assert!(fd.as_fd().as_raw_fd() >= 256);
        let slot = fd.slot.unwrap();
        drop(fd);
        assert_ne!(LISTED[slot].load(Ordering::Relaxed), 0);
    }
}
