//! File descriptors of this library, and the counting eventfds that applications wait on.

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::mem::size_of;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_host::EventCounter;
use weft_os::calls::sleeping;
use weft_os::thread::Uncancelled;
use weft_os::{fds, semaphore};
use weft_verbs::Wake;

use crate::errno;

/// A descriptor that is closed when dropped.
#[derive(Debug)]
pub struct Owned(c_int);

impl Owned {
    /// What the system gave, if that is a descriptor.
    pub fn of(fd: c_int) -> Option<Self> {
        (fd >= 0).then_some(Self(fd))
    }

    /// The number.
    pub fn raw(&self) -> c_int {
        self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this object owns the descriptor, which nothing uses after it.
        unsafe { libc::close(self.0) };
    }
}

/// An eventfd that counts queued events: readable while there are any, each read takes one.
///
/// The application has its number and may set `O_NONBLOCK` on it or wait with `poll`; it stays open
/// until the last waker is gone, so a late wake-up never hits somebody else's descriptor.
///
/// Invariant: what is counted, what readers have taken and not popped an event for, and what wakers
/// are about to count is as much as the events that are queued and what is retracted too early.
#[derive(Debug)]
pub struct EventFd {
    fd: Owned,
    /// Retracted before they were counted, or after a reader took them: whoever counts the next one
    /// leaves it, or whoever has taken one finds no event.
    retracted: AtomicU32,
}

impl EventFd {
    /// A new one with nothing queued; fails with the errno of the system.
    pub fn new() -> Result<Self, c_int> {
        // SAFETY: plain arguments.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
        if fd < 0 {
            return Err(weft_net::refused(io::Error::last_os_error()).errno());
        }
        Ok(Self { fd: Owned(fd), retracted: AtomicU32::new(0) })
    }

    /// The number.
    pub fn raw(&self) -> c_int {
        self.fd.raw()
    }

    /// Takes back up to `count` events that were dropped unread, without ever waiting.
    pub fn retract(&self, count: usize) {
        for _ in 0..count {
            if !fds::take_one(self.as_fd()) {
                self.retracted.fetch_add(1, Ordering::AcqRel);
            }
        }
        self.settle_counted();
    }

    /// Whether one was retracted before it was counted, or found gone by who has taken it.
    pub fn settle(&self) -> bool {
        let one_less = |retracted: u32| retracted.checked_sub(1);
        self.retracted.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }

    /// Takes what was counted just as it was retracted.
    fn settle_counted(&self) {
        while self.retracted.load(Ordering::Acquire) > 0 && fds::take_one(self.as_fd()) {
            if !self.settle() {
                return self.count(1);
            }
        }
    }

    fn count(&self, events: u64) {
        let (from, _uncancelled) = ((&raw const events).cast::<c_void>(), Uncancelled::begin());
        // SAFETY: eight readable bytes. The counter cannot overflow: it counts queued events.
        unsafe { libc::write(self.raw(), from, size_of::<u64>()) };
    }
}

thread_local! {
    /// The counter whose events this thread collects, and how many it has.
    static COLLECTED: Cell<(c_int, u32)> = const { Cell::new((-1, 0)) };
}

impl EventCounter for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: this object keeps the descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.raw()) }
    }

    /// Waits unless the application made the descriptor non-blocking; fails with `EAGAIN` then, and
    /// with `EINTR` when a signal came.
    fn take(&self) -> Result<(), c_int> {
        let mut count = 0_u64;
        let buffer = (&raw mut count).cast::<c_void>();
        // SAFETY: the buffer has the eight bytes that an eventfd writes.
        let take = || unsafe { libc::read(self.raw(), buffer, size_of::<u64>()) };
        let read = sleeping(take);
        if read < 0 { Err(errno::get()) } else { Ok(()) }
    }

    fn collect(&self, act: &mut dyn FnMut()) -> u32 {
        let outer = COLLECTED.replace((self.raw(), 0));
        act();
        COLLECTED.replace(outer).1
    }

    fn add(&self, events: u32) {
        if events == 0 || !semaphore::is_ours(self.raw()) {
            return;
        }
        self.count(events.into());
        self.settle_counted();
    }
}

/// Whether two numbers of this process lead to one eventfd.
pub fn same_counter(one: c_int, other: c_int) -> bool {
    const KCMP_FILE: c_int = 0;
    // SAFETY: takes no pointers.
    let me = unsafe { libc::getpid() };
    // SAFETY: takes no pointers.
    match unsafe { libc::syscall(libc::SYS_kcmp, me, me, KCMP_FILE, one, other) } {
        0 => true,
        // Containers refuse the call.
        -1 => counter_id(one).is_some_and(|id| counter_id(other) == Some(id)),
        _ => false,
    }
}

/// The kernel's id of an eventfd, from `/proc`.
fn counter_id(fd: c_int) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    about.lines().find_map(|line| Some(line.strip_prefix("eventfd-id:")?.trim().to_owned()))
}

/// Adds one event to an [`EventFd`] for each that is queued.
pub struct Waker(pub Arc<EventFd>);

impl Wake for Waker {
    fn wake(&self) {
        if self.0.settle() {
            return;
        }
        match COLLECTED.get() {
            (fd, count) if fd == self.0.raw() => COLLECTED.set((fd, count + 1)),
            _ => self.0.add(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> (Arc<EventFd>, Waker) {
        let fd = Arc::new(EventFd::new().unwrap());
        (Arc::clone(&fd), Waker(fd))
    }

    #[test]
    fn each_wake_is_taken_once() {
        let (fd, waker) = event();
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(fd.take(), Err(libc::EAGAIN));
        waker.wake();
        waker.wake();
        assert_eq!([fd.take(), fd.take(), fd.take()], [Ok(()), Ok(()), Err(libc::EAGAIN)]);
    }

    #[test]
    fn a_counter_is_known_by_its_id_too() {
        let (one, other) = (EventFd::new().unwrap(), EventFd::new().unwrap());
        // SAFETY: takes no pointers.
        let copy = Owned(unsafe { libc::dup(one.raw()) });
        assert!(same_counter(one.raw(), copy.raw()) && !same_counter(other.raw(), copy.raw()));
        let [one, other, copy] = [one.raw(), other.raw(), copy.raw()].map(counter_id);
        assert!(one.is_some() && one == copy && one != other);
        assert_eq!(counter_id(-1), None);
    }

    #[test]
    fn retracting_never_waits() {
        let (fd, waker) = event();
        for _ in 0..3 {
            waker.wake();
        }
        fd.retract(2);
        assert_eq!(fd.take(), Ok(()));
        fd.retract(5);
    }

    #[test]
    fn what_is_retracted_before_it_is_counted_is_not_counted() {
        let (fd, waker) = event();
        // SAFETY: the descriptor is open.
        unsafe { libc::fcntl(fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) };
        fd.retract(1);
        waker.wake();
        assert_eq!(fd.take(), Err(libc::EAGAIN));
        // Unless a reader had taken it, who finds no event.
        waker.wake();
        assert_eq!(fd.take(), Ok(()));
        fd.retract(1);
        fd.settle();
        waker.wake();
        assert_eq!(fd.take(), Ok(()));
    }
}
