//! The functions of the C library that send, and the short way that little at a time goes.
//!
//! What a program sends goes into its end of the pair, from where the engine's thread takes it. If
//! nothing is there or on its way, and the far end has room, a few octets are given to that on the
//! program's own thread instead: no other is woken. Everything else is the kernel's to do.
//!
//! Invariant: what goes the short way is all of a call's octets, and behind all that were written
//! before by whomever.

use std::ffi::{c_int, c_void};
use std::ptr;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::hooks::{ends_of, errno, fail, is_foreign, is_tcp};
use crate::real::next;
use crate::registry::Center;
use crate::{address, guard, strict};

/// Octets that go the short way at most. More is copied by two threads sooner than by one.
const SHORT: usize = 16 << 10;
/// Parts of a call that does.
const PARTS: usize = 8;
/// Flags that change nothing about it.
const FLAGS: c_int = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_MORE;

type Write = unsafe extern "C" fn(c_int, *const c_void, usize) -> isize;
type Writev = unsafe extern "C" fn(c_int, *const iovec, c_int) -> isize;
type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type Sendto =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
type Sendmsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> isize;

/// Sends the `count` parts of a call the short way; gives how many octets that were, if it could be
/// done.
///
/// # Safety
/// The parts are there, and each is readable.
unsafe fn go_short(fd: c_int, parts: *const iovec, count: usize, flags: c_int) -> Option<isize> {
    if is_foreign() || flags & !FLAGS != 0 || parts.is_null() || count > PARTS {
        return None;
    }
    let center = Center::current().filter(|center| center.has_seats())?;
    // SAFETY: the caller vouches for it.
    let all = (0..count).map(|at| unsafe { parts.wrapping_add(at).read() });
    let octets = all.clone().try_fold(0, |sum: usize, part| sum.checked_add(part.iov_len))?;
    if octets == 0 || octets > SHORT {
        return None;
    }
    let _inside = guard::enter();
    let conn = center.seated_now(fd)?;
    let gather = || {
        let mut whole = vec![0_u8; octets];
        let mut rest = whole.as_mut_slice();
        for part in all {
            // The program may have changed it meanwhile, as the kernel may find too.
            let (into, behind) = rest.split_at_mut_checked(part.iov_len)?;
            // SAFETY: the caller vouches for the part, and `into` is as long.
            unsafe { ptr::copy(part.iov_base.cast(), into.as_mut_ptr(), into.len()) };
            rest = behind;
        }
        Some(whole)
    };
    conn.say(octets, gather).then_some(octets as isize)
}

/// The same for octets in one place.
///
/// # Safety
/// They are readable.
unsafe fn go_short_from(
    fd: c_int,
    from: *const c_void,
    octets: usize,
    flags: c_int,
) -> Option<isize> {
    let part = iovec { iov_base: from.cast_mut(), iov_len: octets };
    // SAFETY: the caller vouches for it.
    unsafe { go_short(fd, &raw const part, 1, flags) }
}

/// Whether a socket would be connected with what it sends, by TCP, to whom that may not be done. It
/// can fall back on `connect`, as where the kernel does not have this.
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
    remote.is_some_and(|remote| is_tcp(fd) && strict::forbids_call(fd, remote))
}

/// `write`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn write(fd: c_int, from: *const c_void, octets: usize) -> isize {
    // SAFETY: the program's own arguments.
    if let Some(done) = unsafe { go_short_from(fd, from, octets, 0) } {
        return done;
    }
    // SAFETY: as above.
    unsafe { next!(write as Write)(fd, from, octets) }
}

/// `writev`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> isize {
    let all = usize::try_from(count).unwrap_or(usize::MAX);
    // SAFETY: the program's own arguments.
    if let Some(done) = unsafe { go_short(fd, parts, all, 0) } {
        return done;
    }
    // SAFETY: as above.
    unsafe { next!(writev as Writev)(fd, parts, count) }
}

/// `send`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn send(
    fd: c_int,
    from: *const c_void,
    octets: usize,
    flags: c_int,
) -> isize {
    // SAFETY: the program's own arguments.
    if let Some(done) = unsafe { go_short_from(fd, from, octets, flags) } {
        return done;
    }
    // SAFETY: as above.
    unsafe { next!(send as Send)(fd, from, octets, flags) }
}

/// `sendto`: TCP does not care for an address once it is connected.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    from: *const c_void,
    octets: usize,
    flags: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> isize {
    // SAFETY: the program's own arguments.
    if let Some(done) = unsafe { go_short_from(fd, from, octets, flags) } {
        return done;
    }
    // SAFETY: as above.
    if flags & libc::MSG_FASTOPEN != 0 && unsafe { is_forbidden_call(fd, address, len) } {
        return fail(libc::EOPNOTSUPP) as isize;
    }
    let real = next!(sendto as Sendto);
    // SAFETY: as above.
    let done = unsafe { real(fd, from, octets, flags, address, len) };
    if done < 0 && errno() == libc::EISCONN && !is_foreign() && ends_of(fd).is_some() {
        // SAFETY: as above, but for the address.
        return unsafe { real(fd, from, octets, flags, ptr::null(), 0) };
    }
    done
}

/// `sendmsg`: the same.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize {
    let fast = flags & libc::MSG_FASTOPEN != 0;
    if !message.is_null() {
        // SAFETY: the program's own argument.
        let plain = unsafe { message.read() };
        let flags = if plain.msg_controllen == 0 { flags } else { !FLAGS };
        // SAFETY: the message says that they are there.
        if let Some(done) = unsafe { go_short(fd, plain.msg_iov, plain.msg_iovlen, flags) } {
            return done;
        }
        let (address, len) = (plain.msg_name.cast(), plain.msg_namelen);
        // SAFETY: as above.
        if fast && unsafe { is_forbidden_call(fd, address, len) } {
            return fail(libc::EOPNOTSUPP) as isize;
        }
    }
    let real = next!(sendmsg as Sendmsg);
    // SAFETY: the program's own arguments.
    let done = unsafe { real(fd, message, flags) };
    if done < 0 && errno() == libc::EISCONN && !is_foreign() && ends_of(fd).is_some() {
        // SAFETY: the kernel has read it there.
        let mut plain = unsafe { message.read() };
        (plain.msg_name, plain.msg_namelen) = (ptr::null_mut(), 0);
        // SAFETY: the program's own message, but for the address.
        return unsafe { real(fd, &raw const plain, flags) };
    }
    done
}
