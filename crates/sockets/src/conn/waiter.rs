//! A thread of the application that waits in `connect`.
//!
//! It may be cancelled there, and then never takes the decision that it has waited for. So the
//! reactor looks after the decision whether there is such a thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libc::{c_int, pid_t};

use crate::sys;

/// What the application's TCP socket was like before its connect.
#[derive(Clone, Copy, Debug)]
pub struct SocketBefore {
    flags: c_int,
    /// `TCP_FASTOPEN_CONNECT`: the kernel calls with the first bytes only, of which TCP has none.
    is_fast: bool,
}

impl SocketBefore {
    /// That of the socket at `fd`.
    ///
    /// # Errors
    /// It is closed.
    pub fn of(fd: RawFd) -> io::Result<Self> {
        let is_fast = sys::option(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT) == Some(1);
        Ok(Self { flags: sys::flags(fd)?, is_fast })
    }

    /// Its flags.
    pub fn flags(self) -> c_int {
        self.flags
    }

    /// Whether its calls wait.
    pub fn blocks(self) -> bool {
        self.flags & libc::O_NONBLOCK == 0
    }

    /// Has it connect at once, and not wait for that.
    ///
    /// # Errors
    /// It is closed.
    pub fn prepare(self, fd: RawFd) -> io::Result<()> {
        sys::set_flags(fd, self.flags | libc::O_NONBLOCK)?;
        if self.is_fast {
            set_fast(fd, false);
        }
        Ok(())
    }

    /// Makes it what it was.
    pub fn restore(self, fd: RawFd) {
        // It had these before.
        let _ = sys::set_flags(fd, self.flags);
        if self.is_fast {
            set_fast(fd, true);
        }
    }
}

/// Sets `TCP_FASTOPEN_CONNECT`; without effect once TCP is called.
fn set_fast(fd: RawFd, is_fast: bool) {
    let value = c_int::from(is_fast).to_ne_bytes();
    sys::set_option(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, &value);
}

/// A thread that waits.
pub struct ConnectWaiter {
    /// Raised at the decision.
    event: OwnedFd,
    thread: pid_t,
    before: SocketBefore,
    /// TCP is not to carry what the thread has left.
    is_strict: bool,
}

impl ConnectWaiter {
    /// This thread, once it reads `event`.
    pub fn new(event: OwnedFd, before: SocketBefore, is_strict: bool) -> Self {
        Self { event, thread: sys::this_thread(), before, is_strict }
    }

    /// Wakes it.
    pub fn raise(&self) {
        sys::raise(self.event.as_raw_fd());
    }

    /// Whether the thread has ended.
    pub fn is_gone(&self) -> bool {
        !sys::is_thread(self.thread)
    }

    /// Leaves its TCP socket, which is at `tcp` too, as a refused `connect` does.
    pub fn leave(&self, tcp: RawFd) {
        self.before.restore(tcp);
        if self.is_strict {
            sys::disconnect(tcp);
        }
    }
}
