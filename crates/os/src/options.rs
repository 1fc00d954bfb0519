//! Options of sockets.
#![allow(unsafe_code)]

use std::os::fd::{AsRawFd, BorrowedFd};

/// The value of an option that is a number; `None` if it is negative or the kernel knows no such
/// option.
pub fn option(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> Option<u32> {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: `place` has room for `len` bytes.
    let result = unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &mut len) };
    if result == 0 { u32::try_from(value).ok() } else { None }
}

/// Sets an option that is a number; whether the kernel did.
pub fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> bool {
    set_value(socket, level, name, &value)
}

/// Sets an option that is a structure of C, or several numbers; whether the kernel did.
pub fn set_value<T: Copy>(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> bool {
    let (place, len) = ((&raw const *value).cast(), size_of::<T>() as libc::socklen_t);
    // SAFETY: `place` points to a live value of `len` bytes.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, place, len) == 0 }
}
