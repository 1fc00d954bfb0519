//! A descriptor that stands in for one of the kernel's: it is readable when that is, and when
//! something planned is due.
//!
//! It is an epoll descriptor over the kernel's and a timer. The application has its number, waits
//! on it with `poll` and the like, and may set `O_NONBLOCK` on it; only the functions here read.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use weft_os::clock::Moment;

use crate::errno;
use crate::fd::Owned;

/// The descriptor, and what it stands for.
pub struct StandInFd {
    /// The kernel's; never waits in a `read`.
    real: c_int,
    epoll: Owned,
    timer: Owned,
}

impl StandInFd {
    /// In the place of `real`, which is made non-blocking, and closed by whoever opened it.
    pub fn new(real: c_int) -> Option<Self> {
        // SAFETY: takes no pointers.
        let epoll = Owned::of(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: takes no pointers.
        let timer = Owned::of(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        for fd in [real, timer.raw()] {
            let mut interest = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            let add = libc::EPOLL_CTL_ADD;
            // SAFETY: the event is readable for the call.
            if unsafe { libc::epoll_ctl(epoll.raw(), add, fd, &raw mut interest) } < 0 {
                return None;
            }
        }
        let flags = flags_of(real);
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(real, libc::F_SETFL, flags | libc::O_NONBLOCK) };
        Some(Self { real, epoll, timer })
    }

    /// The number that the application gets.
    pub fn raw(&self) -> c_int {
        self.epoll.raw()
    }

    /// The kernel's descriptor.
    pub fn real(&self) -> c_int {
        self.real
    }

    /// Becomes readable at `due`, or not at any time of its own.
    pub fn schedule(&self, due: Option<Moment>) {
        let left = due.map(|due| due.saturating_duration_since(weft_os::clock::now()));
        // Zero would stop the timer.
        let left = left.map_or(Duration::ZERO, |left| left.max(Duration::from_nanos(1)));
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec {
            tv_sec: left.as_secs() as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        };
        let spec = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: the new value is readable; the old one is not asked for.
        unsafe { libc::timerfd_settime(self.timer.raw(), 0, &raw const spec, ptr::null_mut()) };
    }

    /// Waits until either is readable, unless the application made its descriptor non-blocking.
    ///
    /// # Errors
    /// `EAGAIN`, or `EINTR` when a signal came.
    pub fn wait(&self) -> Result<(), c_int> {
        if flags_of(self.raw()) & libc::O_NONBLOCK != 0 {
            return Err(libc::EAGAIN);
        }
        let events = libc::POLLIN;
        let mut all =
            [self.real, self.timer.raw()].map(|fd| libc::pollfd { fd, events, revents: 0 });
        // SAFETY: the array is writable for the call.
        let ready = unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, -1) };
        if ready < 0 { Err(errno::get()) } else { Ok(()) }
    }
}

fn flags_of(fd: c_int) -> c_int {
    // SAFETY: takes no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weft_host::EventCounter;

    use super::*;
    use crate::fd::EventFd;

    fn readable(fd: c_int) -> bool {
        let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: the structure is writable for the call.
        unsafe { libc::poll(&raw mut one, 1, 0) == 1 }
    }

    #[test]
    fn it_is_readable_by_the_kernel_s_and_by_its_timer() {
        let real = Arc::new(EventFd::new().unwrap());
        let fd = StandInFd::new(real.raw()).unwrap();
        assert!(!readable(fd.raw()));
        real.add(1);
        assert!(readable(fd.raw()) && fd.wait().is_ok());
        real.take().unwrap();
        assert_eq!(real.take(), Err(libc::EAGAIN));
        fd.schedule(Some(weft_os::clock::now()));
        assert_eq!(fd.wait(), Ok(()));
        assert!(readable(fd.raw()));
        fd.schedule(None);
        assert!(!readable(fd.raw()));
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(fd.raw(), libc::F_SETFL, libc::O_NONBLOCK) };
        assert_eq!(fd.wait(), Err(libc::EAGAIN));
    }
}
