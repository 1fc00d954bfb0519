//! A lock among processes that have inherited it.
//!
//! The kernel releases it when the process that holds it ends, however it ends. It does not exclude
//! threads of one process from each other.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libc::c_int;
use weft_os::fds::high;

/// A lock that the children of a fork share.
pub struct ProcessLock(OwnedFd);

/// The lock is held until this is dropped.
pub struct ProcessLockGuard<'a>(&'a ProcessLock);

impl ProcessLock {
    /// A new lock.
    ///
    /// # Errors
    /// Without descriptors or memory.
    pub fn open() -> io::Result<Self> {
        // SAFETY: the name is NUL-terminated.
        let fd = unsafe { libc::memfd_create(c"weft-lock".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nothing else owns it.
        Ok(Self(high(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Waits for the lock. Where the system has no such locks, nothing is held.
    pub fn hold(&self) -> ProcessLockGuard<'_> {
        while self.set(libc::F_WRLCK, libc::F_SETLKW).is_err_and(is_interrupted) {}
        ProcessLockGuard(self)
    }

    fn set(&self, kind: c_int, command: c_int) -> io::Result<()> {
        // SAFETY: all zeroes is valid: the whole file.
        let mut lock: libc::flock = unsafe { std::mem::zeroed() };
        lock.l_type = kind as _;
        // SAFETY: the structure is whole.
        let done = unsafe { libc::fcntl(self.0.as_raw_fd(), command, &raw const lock) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

fn is_interrupted(error: io::Error) -> bool {
    error.kind() == io::ErrorKind::Interrupted
}

impl Drop for ProcessLockGuard<'_> {
    fn drop(&mut self) {
        // A lock that is not held stays so.
        let _ = self.0.set(libc::F_UNLCK, libc::F_SETLK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_held_and_released() {
        let lock = ProcessLock::open().unwrap();
        drop(lock.hold());
        drop(lock.hold());
        assert!(lock.set(libc::F_WRLCK, libc::F_SETLK).is_ok());
    }
}
