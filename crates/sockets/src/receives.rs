//! Interposed functions that receive.
//!
//! TCP has no address of the sender to give, and leaves its length at 0. The pair behind a
//! connection has one, which is none of the application's and longer than what it has room for.
//!
//! `MSG_TRUNC` has TCP drop what is received instead of giving it to the application; a pair
//! ignores it. The kernel does everything else.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;

use libc::{iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};

use crate::hooks::{ends_of, is_foreign};
use crate::real::next;
use crate::registry::Registry;

/// Bytes that what is dropped is read into, again and again, and how often in one call.
const DROPPED_BYTES: usize = 8 << 10;
const DROPPED_PARTS: usize = 512;

type Recv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
type RecvChk = unsafe extern "C" fn(c_int, *mut c_void, usize, usize, c_int) -> isize;
type Recvfrom =
    unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
type RecvfromChk = unsafe extern "C" fn(
    c_int,
    *mut c_void,
    usize,
    usize,
    c_int,
    *mut sockaddr,
    *mut socklen_t,
) -> isize;
type Recvmsg = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> isize;
type Recvmmsg = unsafe extern "C" fn(c_int, *mut mmsghdr, c_uint, c_int, *mut timespec) -> c_int;

/// Whether the descriptor is one of this library's connections, whose names are its own.
fn is_ours(fd: c_int) -> bool {
    !is_foreign() && Registry::current().is_some() && ends_of(fd).is_some()
}

/// Whether the call is to drop what it receives, and the kernel would not.
fn is_to_drop(fd: c_int, flags: c_int) -> bool {
    flags & libc::MSG_TRUNC != 0 && is_ours(fd)
}

/// Receives up to `bytes` and drops them.
fn drop_received(fd: c_int, bytes: usize, flags: c_int) -> isize {
    let mut dropped = MaybeUninit::<[u8; DROPPED_BYTES]>::uninit();
    let whole = iovec { iov_base: dropped.as_mut_ptr().cast(), iov_len: DROPPED_BYTES };
    let mut parts = [whole; DROPPED_PARTS];
    let bytes = bytes.min(DROPPED_BYTES * DROPPED_PARTS);
    let count = bytes / DROPPED_BYTES;
    if let Some(rest) = parts.get_mut(count) {
        rest.iov_len = bytes % DROPPED_BYTES;
    }
    // SAFETY: all zeroes is valid: no address and no control data.
    let mut message: msghdr = unsafe { mem::zeroed() };
    message.msg_iov = parts.as_mut_ptr();
    message.msg_iovlen = (count + 1).min(DROPPED_PARTS) as _;
    let real = next!(recvmsg as Recvmsg);
    // SAFETY: each part is the live local, which nobody reads.
    unsafe { real(fd, &raw mut message, flags & !libc::MSG_TRUNC) }
}

/// `recv`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recv(fd: c_int, into: *mut c_void, bytes: usize, flags: c_int) -> isize {
    if is_to_drop(fd, flags) {
        return drop_received(fd, bytes, flags);
    }
    let real = next!(recv as Recv);
    // SAFETY: the application's own arguments.
    unsafe { real(fd, into, bytes, flags) }
}

/// `__recv_chk`, which is `recv` in programs that check the room of their buffers.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recv_chk(
    fd: c_int,
    into: *mut c_void,
    bytes: usize,
    room: usize,
    flags: c_int,
) -> isize {
    if bytes <= room && is_to_drop(fd, flags) {
        return drop_received(fd, bytes, flags);
    }
    let real = next!(__recv_chk as RecvChk);
    // SAFETY: the application's own arguments.
    unsafe { real(fd, into, bytes, room, flags) }
}

/// Where the kernel is to put an address: nowhere for our own connections, of which there is none.
///
/// # Safety
/// `len` is null or writable.
unsafe fn place(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> *mut sockaddr {
    if address.is_null() || len.is_null() || !is_ours(fd) {
        return address;
    }
    // SAFETY: the caller vouches for it.
    unsafe { len.write(0) };
    ptr::null_mut()
}

/// `recvfrom`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    into: *mut c_void,
    bytes: usize,
    flags: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    let real = next!(recvfrom as Recvfrom);
    // SAFETY: the application's own arguments.
    let address = unsafe { place(fd, address, len) };
    if is_to_drop(fd, flags) {
        return drop_received(fd, bytes, flags);
    }
    let len = if address.is_null() { ptr::null_mut() } else { len };
    // SAFETY: as above.
    unsafe { real(fd, into, bytes, flags, address, len) }
}

/// `__recvfrom_chk`, which is `recvfrom` in programs that check the room of their buffers.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __recvfrom_chk(
    fd: c_int,
    into: *mut c_void,
    bytes: usize,
    room: usize,
    flags: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> isize {
    let real = next!(__recvfrom_chk as RecvfromChk);
    // SAFETY: the application's own arguments.
    let address = unsafe { place(fd, address, len) };
    if bytes <= room && is_to_drop(fd, flags) {
        return drop_received(fd, bytes, flags);
    }
    let len = if address.is_null() { ptr::null_mut() } else { len };
    // SAFETY: as above.
    unsafe { real(fd, into, bytes, room, flags, address, len) }
}

/// Does `receive` without room for an address in `message`.
///
/// # Safety
/// `message` is readable and writable.
unsafe fn without_name<T>(message: *mut msghdr, receive: impl FnOnce() -> T) -> T {
    // SAFETY: the caller vouches for it.
    let header = unsafe { &mut *message };
    let name = std::mem::replace(&mut header.msg_name, ptr::null_mut());
    header.msg_namelen = 0;
    let result = receive();
    // SAFETY: as above; the kernel may have written to it meanwhile.
    unsafe { (*message).msg_name = name };
    result
}

/// Whether a message has room for an address.
///
/// # Safety
/// `message` is null or readable.
unsafe fn has_name(message: *const msghdr) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { message.as_ref() }.is_some_and(|message| !message.msg_name.is_null())
}

/// `recvmsg`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    let real = next!(recvmsg as Recvmsg);
    // SAFETY: the application's own arguments.
    let receive = || unsafe { real(fd, message, flags) };
    // SAFETY: as above.
    if unsafe { has_name(message) } && is_ours(fd) {
        // SAFETY: as above.
        return unsafe { without_name(message, receive) };
    }
    receive()
}

/// `recvmmsg`. A connection fills one message after the other, and none has an address.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    limit: *mut timespec,
) -> c_int {
    let real = next!(recvmmsg as Recvmmsg);
    // SAFETY: the application's own arguments.
    let received = unsafe { real(fd, messages, count, flags, limit) };
    if received > 0 && !messages.is_null() && is_ours(fd) {
        for at in 0..received as usize {
            // SAFETY: the kernel has filled so many.
            unsafe { (*messages.wrapping_add(at)).msg_hdr.msg_namelen = 0 };
        }
    }
    received
}
