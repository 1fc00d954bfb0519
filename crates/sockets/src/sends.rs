//! Interposed functions that send, and the inline path for small sends.
//!
//! Bytes that an application sends go into its end of the pair, and the reactor's thread takes them
//! from there. If the pair is empty, nothing is in flight and the stream has room, a small send
//! goes to the stream on the application's own thread, which wakes no other. The kernel does
//! everything else.
//!
//! Invariant: an inline send takes all bytes of a call, behind all that were written before by any
//! thread.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::hooks::{ends_of, errno, fail, is_foreign, is_tcp};
use crate::real::next;
use crate::registry::Registry;
use crate::{address, filters, guard, late_writes, strict};

/// Bytes of an inline send, at most: two threads copy more sooner than one.
const INLINE_BYTES_MAX: usize = 16 << 10;
/// Parts of an inline send, at most.
const INLINE_PARTS_MAX: usize = 8;
/// Flags that an inline send may ignore.
const FLAGS: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;

type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Writev = unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;
type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type Sendto =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
type Sendmsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> isize;

/// Sends the `count` parts of a call inline; returns the number of bytes, or none if the kernel has
/// to do it.
///
/// # Safety
/// The parts are there, and each is readable.
unsafe fn send_inline(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> Option<isize> {
    if is_foreign() || flags & !FLAGS != 0 || parts.is_null() || count > INLINE_PARTS_MAX {
        return None;
    }
    let conns = Registry::current().map(|registry| &registry.conns)?;
    if !conns.has_app_sockets() || filters::are_set() {
        return None;
    }
    // SAFETY: the caller vouches for it.
    let all = (0..count).map(|at| unsafe { parts.wrapping_add(at).read() });
    let bytes = all.clone().try_fold(0, |sum: usize, part| sum.checked_add(part.iov_len))?;
    if bytes == 0 || bytes > INLINE_BYTES_MAX {
        return None;
    }
    let _inside = guard::enter();
    let conn = conns.try_find(fd)?;
    let gather = || {
        let mut whole = vec![0_u8; bytes];
        let mut rest = whole.as_mut_slice();
        for part in all {
            // Another thread of the application may have changed the part meanwhile.
            let (into, behind) = rest.split_at_mut_checked(part.iov_len)?;
            // SAFETY: the caller vouches for the part, and `into` is as long.
            unsafe { ptr::copy(part.iov_base.cast(), into.as_mut_ptr(), into.len()) };
            rest = behind;
        }
        Some(whole)
    };
    conn.send_inline(bytes, gather).then_some(bytes as isize)
}

/// The same for one part.
///
/// # Safety
/// They are readable.
unsafe fn send_inline_from(
    fd: c_int,
    from: *const c_void,
    bytes: usize,
    flags: c_int,
) -> Option<isize> {
    let part = iovec { iov_base: from.cast_mut(), iov_len: bytes };
    // SAFETY: the caller vouches for it.
    unsafe { send_inline(fd, &raw const part, 1, flags) }
}

/// The bytes of the `count` parts of a call.
///
/// # Safety
/// The parts are there.
unsafe fn bytes_of(parts: *const iovec, count: usize) -> usize {
    // SAFETY: the caller vouches for it.
    (0..count).map(|at| unsafe { parts.wrapping_add(at).read() }.iov_len).sum()
}

/// Whether a send with `MSG_FASTOPEN` would connect by TCP where that is forbidden. Applications
/// fall back on `connect`, as on kernels without it.
///
/// # Safety
/// The address is null or of this length.
unsafe fn is_forbidden_call(fd: c_int, address: *const sockaddr, len: socklen_t) -> bool {
    if is_foreign() || address.is_null() {
        return false;
    }
    let _inside = guard::enter();
    // SAFETY: the caller vouches for it.
    let remote = unsafe { address::from_raw(address, len) };
    let forbids = |to| strict::forbids_connect(&Registry::get().env().settings, fd, to);
    remote.is_some_and(|remote| is_tcp(fd) && forbids(remote))
}

/// `write`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, bytes: usize) -> isize {
    // SAFETY: the application's own arguments.
    if let Some(done) = unsafe { send_inline_from(fd, from, bytes, 0) } {
        return done;
    }
    // SAFETY: as above.
    let plain = || unsafe { next!(write as Write)(fd, from, bytes) };
    // SAFETY: as above.
    let quiet = || unsafe { next!(send as Send)(fd, from, bytes, libc::MSG_NOSIGNAL) };
    late_writes::send(fd, || bytes, quiet, plain)
}

/// `writev`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> isize {
    let all = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the application's own arguments.
    if let Some(done) = unsafe { send_inline(fd, parts, all, 0) } {
        return done;
    }
    // SAFETY: as above.
    let plain = || unsafe { next!(writev as Writev)(fd, parts, count) };
    if all > libc::UIO_MAXIOV as usize {
        return plain();
    }
    // SAFETY: all zeroes is valid: a message of nothing.
    let mut message: msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.cast_mut(), all);
    // SAFETY: the application's own parts.
    let quiet = || unsafe { next!(sendmsg as Sendmsg)(fd, &raw const message, libc::MSG_NOSIGNAL) };
    // SAFETY: as above.
    late_writes::send(fd, || unsafe { bytes_of(parts, all) }, quiet, plain)
}

/// `send`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn send(fd: c_int, from: *const c_void, bytes: usize, flags: c_int) -> isize {
    // SAFETY: the application's own arguments.
    if let Some(done) = unsafe { send_inline_from(fd, from, bytes, flags) } {
        return done;
    }
    let real = next!(send as Send);
    // SAFETY: as above.
    let plain = || unsafe { real(fd, from, bytes, flags) };
    // SAFETY: as above.
    let quiet = || unsafe { real(fd, from, bytes, flags | libc::MSG_NOSIGNAL) };
    late_writes::send(fd, || bytes, quiet, plain)
}

/// `sendto`: a connected TCP socket ignores the address.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    bytes: usize,
    flags: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> isize {
    // SAFETY: the application's own arguments.
    if let Some(done) = unsafe { send_inline_from(fd, from, bytes, flags) } {
        return done;
    }
    // SAFETY: as above.
    if flags & libc::MSG_FASTOPEN != 0 && unsafe { is_forbidden_call(fd, address, len) } {
        return fail(libc::EOPNOTSUPP) as isize;
    }
    let real = next!(sendto as Sendto);
    let send = |flags| {
        // SAFETY: as above.
        let done = unsafe { real(fd, from, bytes, flags, address, len) };
        if done < 0 && errno() == libc::EISCONN && !is_foreign() && ends_of(fd).is_some() {
            // SAFETY: as above, but for the address.
            return unsafe { real(fd, from, bytes, flags, ptr::null(), 0) };
        }
        done
    };
    late_writes::send(fd, || bytes, || send(flags | libc::MSG_NOSIGNAL), || send(flags))
}

/// `sendmsg`: the same.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    let fast = flags & libc::MSG_FASTOPEN != 0;
    if !message.is_null() {
        // SAFETY: the application's own argument.
        let plain = unsafe { message.read() };
        let flags = if plain.msg_controllen == 0 { flags } else { !FLAGS };
        // SAFETY: the message says that they are there.
        if let Some(done) = unsafe { send_inline(fd, plain.msg_iov, plain.msg_iovlen, flags) } {
            return done;
        }
        let (address, len) = (plain.msg_name.cast(), plain.msg_namelen);
        // SAFETY: as above.
        if fast && unsafe { is_forbidden_call(fd, address, len) } {
            return fail(libc::EOPNOTSUPP) as isize;
        }
    }
    let real = next!(sendmsg as Sendmsg);
    let send = |flags| {
        // SAFETY: the application's own arguments.
        let done = unsafe { real(fd, message, flags) };
        if done < 0 && errno() == libc::EISCONN && !is_foreign() && ends_of(fd).is_some() {
            // SAFETY: the kernel has read it there.
            let mut plain = unsafe { message.read() };
            (plain.msg_name, plain.msg_namelen) = (ptr::null_mut(), 0);
            // SAFETY: the application's own message, but for the address.
            return unsafe { real(fd, &raw const plain, flags) };
        }
        done
    };
    let bytes = || {
        // SAFETY: the kernel has read it there.
        let plain = unsafe { message.read() };
        // SAFETY: as above, the parts that it names.
        unsafe { bytes_of(plain.msg_iov, plain.msg_iovlen) }
    };
    late_writes::send(fd, bytes, || send(flags | libc::MSG_NOSIGNAL), || send(flags))
}
