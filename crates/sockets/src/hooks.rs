//! The functions of the C library that are ours.
//!
//! Each calls the real one unless this library has something to add, and mostly does so first: what
//! a program does with a socket that is not ours costs it nothing. Reading, polling and
//! duplicating are not here: the kernel does them. Sending is in `sends`.

use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::ptr;

use libc::{epoll_event, sockaddr, sockaddr_storage, socklen_t};

use crate::address;
use crate::connect::{self as connecting, Detour};
use crate::listener::{self, Given, Host};
use crate::names::Ends;
use crate::real::next;
use crate::registry::Center;
use crate::report::{self, Way};
use crate::settings::Settings;
use crate::{guard, permits_client, permits_server, sys, watches};

type WithAddress = unsafe extern "C" fn(c_int, *const sockaddr, socklen_t) -> c_int;
type ForAddress = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t) -> c_int;

pub(crate) fn errno() -> c_int {
    // SAFETY: the call takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is this thread's own.
    unsafe { place.read() }
}

pub(crate) fn fail(error: c_int) -> c_int {
    // SAFETY: the call takes nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place is this thread's own.
    unsafe { place.write(error) };
    -1
}

/// Whether this call is not ours to look at.
pub(crate) fn is_foreign() -> bool {
    guard::is_inside()
}

pub(crate) fn is_tcp(fd: RawFd) -> bool {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// `connect`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let real = next!(connect as WithAddress);
    if !is_foreign() {
        // SAFETY: the program vouches for its address.
        let remote = unsafe { address::from_raw(address, len) };
        match remote.map_or(Detour::Bypass, |remote| take_connect(fd, remote)) {
            Detour::Done => return 0,
            Detour::Error(error) => return fail(error),
            Detour::Bypass => {}
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real(fd, address, len) }
}

fn take_connect(fd: RawFd, remote: SocketAddr) -> Detour {
    let _inside = guard::enter();
    if !is_tcp(fd) {
        if sys::ends(fd).is_none() {
            return Detour::Bypass;
        }
        let dialing = Center::current().and_then(|center| center.seated(fd));
        return match dialing.is_some_and(|conn| conn.ends().1) {
            false => Detour::Error(libc::EISCONN),
            true if sys::flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0) => {
                await_outcome(fd)
            }
            true => Detour::Error(libc::EALREADY),
        };
    }
    // One that is connected, or connecting, or not even a socket, is the kernel's to answer for.
    let idle = sys::remote(fd).is_err() && !sys::is_connecting(fd);
    if !idle || Settings::get().off || remote.port() == 0 || remote.ip().is_multicast() {
        return Detour::Bypass;
    }
    if !permits_client(remote) {
        report::connected(remote, Way::Tcp("a rule says so"));
        return Detour::Bypass;
    }
    if weft_memory::is_short() {
        return Detour::Error(libc::ENOMEM);
    }
    connecting::connect(fd, remote)
}

/// Waits for a connection that goes on being made since a signal ended the first wait for it.
fn await_outcome(fd: RawFd) -> Detour {
    if let Err(error) = sys::poll(fd, libc::POLLOUT, None) {
        return Detour::Error(error.raw_os_error().unwrap_or(libc::EINTR));
    }
    match sys::take_error(fd) {
        Some(error) => Detour::Error(error),
        None => Detour::Done,
    }
}

/// `listen`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let real = next!(listen as unsafe extern "C" fn(c_int, c_int) -> c_int);
    // SAFETY: the program's own arguments.
    let done = unsafe { real(fd, backlog) };
    if done == 0 && !is_foreign() {
        let _inside = guard::enter();
        if is_tcp(fd)
            && let Ok(at) = sys::local(fd)
            && !Settings::get().off
        {
            let ways = if permits_server(at) { Host::open(fd) } else { Err("a rule says so") };
            if let Err(why) = ways {
                report::listens(at, Way::Tcp(why));
                if permits_server(at) && Settings::get().strict {
                    report::unserved(at, why);
                }
            }
        }
    }
    done
}

/// `accept`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let real = next!(accept as ForAddress);
    if is_foreign() {
        // SAFETY: the program's own arguments.
        return unsafe { real(fd, address, len) };
    }
    // SAFETY: there is room for the address.
    let call = |storage, room| unsafe { real(fd, storage, room) };
    // SAFETY: the program's own arguments.
    unsafe { take_accept(fd, address, len, 0, call) }
}

/// `accept4`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept4(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
) -> c_int {
    type Type = unsafe extern "C" fn(c_int, *mut sockaddr, *mut socklen_t, c_int) -> c_int;
    let real = next!(accept4 as Type);
    if is_foreign() {
        // SAFETY: the program's own arguments.
        return unsafe { real(fd, address, len, flags) };
    }
    // SAFETY: there is room for the address.
    let call = |storage, room| unsafe { real(fd, storage, room, flags) };
    // SAFETY: the program's own arguments.
    unsafe { take_accept(fd, address, len, flags, call) }
}

/// Accepts by `real`, and gives the program its own end if the connection goes by SDP. A peer that
/// may not go by TCP is gone before its connection is accepted, as far as the program can tell.
///
/// # Safety
/// `address` and `len` are what the program gave.
unsafe fn take_accept(
    fd: RawFd,
    address: *mut sockaddr,
    len: *mut socklen_t,
    flags: c_int,
    real: impl Fn(*mut sockaddr, *mut socklen_t) -> c_int,
) -> c_int {
    let (stream, storage, whole) = loop {
        // SAFETY: all zeroes is valid: an address of no family.
        let mut storage: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
        let mut whole = size_of::<sockaddr_storage>() as socklen_t;
        let stream = real((&raw mut storage).cast(), &raw mut whole);
        if stream < 0 {
            return stream;
        }
        if let Some(stream) = give(fd, stream, &storage, flags) {
            break (stream, storage, whole);
        }
    };
    if stream < 0 {
        return stream;
    }
    if !address.is_null() && !len.is_null() {
        // SAFETY: the program says how much room there is.
        let room = unsafe { len.read() }.min(whole) as usize;
        let from = (&raw const storage).cast::<u8>();
        // SAFETY: there is so much room, and no more was received than the storage has.
        unsafe { ptr::copy_nonoverlapping(from, address.cast::<u8>(), room) };
        // SAFETY: the program's own.
        unsafe { len.write(whole) };
    }
    stream
}

/// Puts what the program is to have at the number of `stream`, which it has accepted at the
/// listener `fd`: gives that number, or a failure of `accept`, or nothing for a peer that is turned
/// away.
fn give(fd: RawFd, stream: RawFd, peer: &sockaddr_storage, flags: c_int) -> Option<c_int> {
    let Some(peer) = address::from_storage(peer) else { return Some(stream) };
    let _inside = guard::enter();
    if !is_tcp(stream) || Settings::get().off {
        return Some(stream);
    }
    let before = sys::flags(stream);
    match listener::accepted(fd, stream, peer) {
        Given::Sdp(theirs) => {
            let nonblocking = flags & libc::SOCK_NONBLOCK;
            sys::inherit(stream, &theirs, nonblocking);
            if sys::install(&theirs, stream, flags & libc::SOCK_CLOEXEC != 0).is_err() {
                sys::close(stream);
                return Some(fail(libc::ECONNABORTED));
            }
        }
        Given::Tcp => {
            if let Ok(flags) = before {
                // It may have been on its way to be ours.
                let _ = sys::set_flags(stream, flags);
            }
        }
        Given::Nothing => {
            sys::reset_at_close(stream);
            sys::close(stream);
            return None;
        }
    }
    Some(stream)
}

/// `bind`: a number of UDP that the program wants is not kept for Shuttle.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let real = next!(bind as WithAddress);
    if !is_foreign()
        && let Some(center) = Center::current().filter(|center| center.has_hosts())
    {
        // SAFETY: the program vouches for its address.
        let at = unsafe { address::from_raw(address, len) };
        let _inside = guard::enter();
        let datagrams = sys::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_DGRAM);
        if let Some(at) = at.filter(|at| datagrams && at.port() != 0) {
            center.dismiss(|_, place| place.port() == at.port());
        }
    }
    // SAFETY: the program's own arguments.
    unsafe { real(fd, address, len) }
}

/// `close`: a listener that is gone is served no more.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let real = next!(close as unsafe extern "C" fn(c_int) -> c_int);
    if is_foreign() {
        // SAFETY: the program's own argument.
        return unsafe { real(fd) };
    }
    if !watches::is_empty() {
        watches::forget(fd);
    }
    let center = Center::current().filter(|center| center.has_hosts());
    let listener = center.and_then(|center| {
        let socket = sys::inode(fd)?;
        center.host_of(socket).map(|_| (center, socket))
    });
    // SAFETY: the program's own argument.
    let done = unsafe { real(fd) };
    if let Some((center, socket)) = listener {
        let error = errno();
        let _inside = guard::enter();
        center.dismiss(|other, _| other == socket && sys::find(socket).is_empty());
        if done != 0 {
            return fail(error);
        }
    }
    done
}

/// `getsockname`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let real = next!(getsockname as ForAddress);
    if let Some(ends) = ends_for(fd, address, len) {
        // SAFETY: the program's own arguments.
        unsafe { address::give(&ends.local, address, len) };
        return 0;
    }
    // SAFETY: the program's own arguments.
    unsafe { real(fd, address, len) }
}

/// `getpeername`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let real = next!(getpeername as ForAddress);
    if let Some(ends) = ends_for(fd, address, len) {
        let conn = Center::current().and_then(|center| center.seated(fd));
        if conn.is_some_and(|conn| conn.ends().1) {
            return fail(libc::ENOTCONN);
        }
        // SAFETY: the program's own arguments.
        unsafe { address::give(&ends.remote, address, len) };
        return 0;
    }
    // SAFETY: the program's own arguments.
    unsafe { real(fd, address, len) }
}

/// The ends of a connection of ours, for a program that has room for one of them.
fn ends_for(fd: RawFd, address: *mut sockaddr, len: *mut socklen_t) -> Option<Ends> {
    let room = !address.is_null() && !len.is_null();
    (room && !is_foreign()).then(|| ends_of(fd)).flatten()
}

/// The ends of a connection of ours; nothing of the program's errno is lost.
pub(crate) fn ends_of(fd: RawFd) -> Option<Ends> {
    let error = errno();
    let ends = sys::ends(fd);
    fail(error);
    ends
}

/// `getsockopt`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    type Type = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
    let real = next!(getsockopt as Type);
    // SAFETY: the program's own arguments.
    let done = unsafe { real(fd, level, name, value, len) };
    if is_foreign() {
        return done;
    }
    let kind = level == libc::SOL_SOCKET && matches!(name, libc::SO_DOMAIN | libc::SO_PROTOCOL);
    if done == 0 && !kind || done != 0 && !is_of_ip(level) {
        return done;
    }
    let error = errno();
    let Some(ends) = ends_of(fd) else { return if done == 0 { 0 } else { fail(error) } };
    if kind {
        let family = if ends.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let truth = if name == libc::SO_DOMAIN { family } else { libc::IPPROTO_TCP };
        // SAFETY: the kernel has written an int there.
        unsafe { value.cast::<c_int>().write_unaligned(truth) };
        return 0;
    }
    // SAFETY: the program's own arguments, for another socket.
    on_tcp(fd, ends, |tcp| unsafe { real(tcp, level, name, value, len) })
}

/// `setsockopt`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    type Type = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;
    let real = next!(setsockopt as Type);
    // SAFETY: the program's own arguments.
    let done = unsafe { real(fd, level, name, value, len) };
    if is_foreign() {
        return done;
    }
    if done == 0 && level == libc::SOL_SOCKET && name == libc::SO_LINGER {
        // SAFETY: the kernel has read such a structure there.
        let linger = unsafe { value.cast::<libc::linger>().read_unaligned() };
        let conn = Center::current().and_then(|center| center.seated(fd));
        if let Some(conn) = conn {
            conn.lock().abortive = linger.l_onoff != 0 && linger.l_linger == 0;
        }
    }
    if done == 0 || !is_of_ip(level) {
        return done;
    }
    let error = errno();
    let Some(ends) = ends_of(fd) else { return fail(error) };
    // SAFETY: the program's own arguments, for another socket.
    on_tcp(fd, ends, |tcp| unsafe { real(tcp, level, name, value, len) })
}

/// Whether options of a level are those of TCP or IP, which a socket of `AF_UNIX` has none of.
fn is_of_ip(level: c_int) -> bool {
    matches!(level, libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6)
}

/// Does something to the TCP connection beside one of ours. Where another process has that, a new
/// socket says what would be.
fn on_tcp(fd: RawFd, ends: Ends, act: impl Fn(RawFd) -> c_int) -> c_int {
    let conn = Center::current().and_then(|center| center.seated(fd));
    if let Some(done) = conn.and_then(|conn| conn.with_companion(&act)) {
        return done;
    }
    let _inside = guard::enter();
    match sys::tcp_socket(ends.local.is_ipv4()) {
        Ok(other) => act(std::os::fd::AsRawFd::as_raw_fd(&other)),
        Err(_) => fail(libc::ENOBUFS),
    }
}

/// `epoll_ctl`: sockets that may be connected later are remembered.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn epoll_ctl(
    instance: c_int,
    operation: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    type Type = unsafe extern "C" fn(c_int, c_int, c_int, *mut epoll_event) -> c_int;
    let real = next!(epoll_ctl as Type);
    // SAFETY: the program's own arguments.
    let call = || unsafe { real(instance, operation, fd, event) };
    if is_foreign() {
        return call();
    }
    if operation == libc::EPOLL_CTL_DEL || event.is_null() || !may_change(fd) {
        let done = call();
        if done == 0 && operation == libc::EPOLL_CTL_DEL {
            watches::drop_one(instance, fd);
        }
        return done;
    }
    // Before: something else may be put there between the two.
    // SAFETY: the program vouches for it, as the kernel is about to read it.
    let before = watches::note(instance, fd, unsafe { event.read_unaligned() });
    let done = call();
    if done == 0 {
        return 0;
    }
    let error = errno();
    watches::drop_one(instance, fd);
    if let Some(before) = before {
        watches::note(instance, fd, before);
    }
    fail(error)
}

/// Whether something else may be put at this number.
fn may_change(fd: RawFd) -> bool {
    let _inside = guard::enter();
    if is_tcp(fd) {
        let listens = sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1);
        return !listens && sys::remote(fd).is_err();
    }
    let conn = Center::current().and_then(|center| center.seated(fd));
    conn.is_some_and(|conn| conn.ends().1)
}

/// `_exit`: what the program has written still arrives.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    Center::linger();
    // SAFETY: plain arguments; it does not come back.
    unsafe { libc::syscall(libc::SYS_exit_group, status) };
    std::process::abort()
}

/// `_Exit`: the same.
///
/// # Safety
/// As for the C function.
#[allow(non_snake_case, reason = "its name in C")]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the program's own argument.
    unsafe { _exit(status) }
}
