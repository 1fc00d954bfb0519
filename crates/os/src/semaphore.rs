//! A semaphore with a descriptor (`eventfd`) that applications poll and read from: readable while
//! its count is not zero.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use crate::calls::sleeping;
use crate::fds;
use crate::thread::Uncancelled;

/// A new one with a count of zero, which is read one by one and blocks.
///
/// # Errors
/// When the process or the system is out of descriptors.
pub fn open() -> io::Result<OwnedFd> {
    // SAFETY: eventfd takes integers only.
    let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_SEMAPHORE) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Adds one. It cannot fail: the count never comes near its maximum. A number that the application
/// has closed, and has a file of its own at, is left alone.
pub fn put(fd: BorrowedFd<'_>) {
    if !is_ours(fd.as_raw_fd()) {
        return;
    }
    let (one, _uncancelled) = (1u64.to_ne_bytes(), Uncancelled::begin());
    // SAFETY: the buffer is 8 bytes, which is what an eventfd takes.
    unsafe { libc::write(fd.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

/// Whether the number of a counter that was handed to the application is that of a counter, as far
/// as there is doubt.
pub fn is_ours(fd: RawFd) -> bool {
    let is_counter = || {
        let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
        link.is_ok_and(|link| link.as_os_str() == "anon_inode:[eventfd]")
    };
    !fds::are_lost() || is_counter()
}

/// Takes one, and sleeps until there is one unless the descriptor is non-blocking. It goes by
/// number, because who sleeps cannot keep others from closing it: when it was closed before, the
/// call fails or, as with every descriptor that is closed under a reader, reads what took its
/// number.
///
/// # Errors
/// `EAGAIN` where it does not sleep, `EINTR` when a signal handler ran.
pub fn take(fd: RawFd) -> io::Result<()> {
    let mut token = [0u8; 8];
    let (place, len) = (token.as_mut_ptr().cast(), token.len());
    // SAFETY: the buffer is 8 bytes.
    let n = sleeping(|| unsafe { libc::read(fd, place, len) });
    if n >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sleeps until its count is not zero, a signal handler ran, or `limit` is over.
///
/// # Errors
/// If the number is no descriptor's.
pub fn wait(fd: RawFd, limit: Option<Duration>) -> io::Result<()> {
    // Rounded up, so that nobody comes back a moment too early over and over.
    let millis = limit
        .map_or(-1, |limit| i32::try_from(limit.as_millis().saturating_add(1)).unwrap_or(i32::MAX));
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    // SAFETY: `poll` is one live entry.
    if sleeping(|| unsafe { libc::poll(&mut poll, 1, millis) }) >= 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
}

/// Whether who takes from it sleeps.
pub fn sleeps(fd: RawFd) -> bool {
    // SAFETY: the call takes integers only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    flags & libc::O_NONBLOCK == 0
}

/// Sleeps until a signal handler has run.
pub fn pause() {
    // SAFETY: the call takes nothing.
    sleeping(|| unsafe { libc::pause() });
}
