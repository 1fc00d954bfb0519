//! Interposed functions of the C library.
//!
//! Each calls the real function unless this library has something to add, and mostly does so first,
//! so that other sockets cost nothing. Reading, polling and duplicating are not interposed: the
//! kernel does them. Sending is in `sends`, receiving with an address in `receives`, closing in
//! `closes`; options are in `options`.

use std::ffi::{c_int, c_ulong};
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Arc;

use libc::{epoll_event, sockaddr, sockaddr_storage, socklen_t};

use crate::accept::{AcceptResult, accepted};
use crate::address;
use crate::conn::SdpConn;
use crate::connect::{self as connecting, ConnectResult};
use crate::listener::ListenerTable;
use crate::names::SocketEnds;
use crate::real::next;
use crate::registry::{HeldOutput, Registry};
use crate::report::Carrier;
use crate::{filters, guard, late_writes, pair, sys};

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

/// Whether a call comes from this library itself.
pub(crate) fn is_foreign() -> bool {
    guard::is_inside()
}

pub(crate) fn is_tcp(fd: RawFd) -> bool {
    sys::option(fd, libc::SOL_SOCKET, libc::SO_PROTOCOL) == Some(libc::IPPROTO_TCP)
}

/// The connection behind a descriptor of the application.
pub(crate) fn conn_of(fd: RawFd) -> Option<Arc<SdpConn>> {
    Registry::current()?.conns.find(fd)
}

/// The listeners of this process, if it serves any.
pub(crate) fn own_listeners() -> Option<&'static ListenerTable> {
    let listeners = &Registry::current()?.listeners;
    (!listeners.is_empty()).then_some(listeners)
}

/// `connect`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let real = next!(connect as WithAddress);
    if !is_foreign() {
        // SAFETY: the application vouches for its address.
        let remote = unsafe { address::from_raw(address, len) };
        match remote.map_or(ConnectResult::Bypass, |remote| take_connect(fd, remote)) {
            ConnectResult::Done => return 0,
            ConnectResult::Error(error) => return fail(error),
            ConnectResult::Bypass => {}
        }
    }
    // SAFETY: the application's own arguments.
    unsafe { real(fd, address, len) }
}

fn take_connect(fd: RawFd, remote: SocketAddr) -> ConnectResult {
    let _inside = guard::enter();
    if !is_tcp(fd) {
        if sys::ends(fd).is_none() {
            return ConnectResult::Bypass;
        }
        return match conn_of(fd).is_some_and(|conn| conn.is_connecting()) {
            false => ConnectResult::Error(libc::EISCONN),
            true if sys::flags(fd).is_ok_and(|flags| flags & libc::O_NONBLOCK == 0) => {
                await_outcome(fd)
            }
            true => ConnectResult::Error(libc::EALREADY),
        };
    }
    // The kernel answers for a socket that is connected or connecting, and for what is no socket.
    let idle = sys::remote(fd).is_err() && !sys::is_connecting(fd);
    let env = Registry::get().env();
    if !idle || env.settings.off || remote.port() == 0 || remote.ip().is_multicast() {
        return ConnectResult::Bypass;
    }
    if !env.settings.permits_client(remote) {
        env.reports.connected(remote, Carrier::Tcp("a rule says so"));
        return ConnectResult::Bypass;
    }
    if weft_memory::is_short() {
        return ConnectResult::Error(libc::ENOMEM);
    }
    let by_pair =
        env.settings.pairs_client(remote).then(|| pair::connect::connect(env, fd, remote));
    by_pair.flatten().unwrap_or_else(|| connecting::connect(fd, remote))
}

/// Waits for a connect that a signal has interrupted, or that has taken longer than the application
/// waits.
fn await_outcome(fd: RawFd) -> ConnectResult {
    let limit = sys::send_limit(fd);
    match guard::sleeping(|| sys::poll(fd, libc::POLLOUT, limit)) {
        Ok(0) => return ConnectResult::Error(libc::EALREADY),
        Ok(_) => {}
        Err(error) => return ConnectResult::Error(error.raw_os_error().unwrap_or(libc::EINTR)),
    }
    match sys::take_error(fd) {
        Some(error) => ConnectResult::Error(error),
        None => ConnectResult::Done,
    }
}

/// `listen`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn listen(fd: c_int, backlog: c_int) -> c_int {
    let real = next!(listen as unsafe extern "C" fn(c_int, c_int) -> c_int);
    // SAFETY: the application's own arguments.
    let done = unsafe { real(fd, backlog) };
    if done == 0 && !is_foreign() {
        let _inside = guard::enter();
        if is_tcp(fd)
            && let Ok(at) = sys::local(fd)
        {
            serve(fd, at);
        }
    }
    done
}

/// Serves the listener `fd` at the address `at` by SDP too, if settings and rules permit.
fn serve(fd: RawFd, at: SocketAddr) {
    let Registry { conns, listeners, .. } = Registry::get();
    let (settings, reports) = (&conns.env.settings, &conns.env.reports);
    if settings.off {
        return;
    }
    let permitted = settings.permits_server(at);
    let served = if permitted { listeners.open(conns, fd) } else { Err("a rule says so") };
    if let Err(why) = served {
        reports.listens(at, Carrier::Tcp(why));
        if permitted && settings.strict {
            reports.unserved(at, why);
        }
    }
}

/// `accept`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let real = next!(accept as ForAddress);
    if is_foreign() {
        // SAFETY: the application's own arguments.
        return unsafe { real(fd, address, len) };
    }
    // SAFETY: there is room for the address.
    let call = |storage, room| unsafe { real(fd, storage, room) };
    // SAFETY: the application's own arguments.
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
        // SAFETY: the application's own arguments.
        return unsafe { real(fd, address, len, flags) };
    }
    // SAFETY: there is room for the address.
    let call = |storage, room| unsafe { real(fd, storage, room, flags) };
    // SAFETY: the application's own arguments.
    unsafe { take_accept(fd, address, len, flags, call) }
}

/// Accepts by `real`, and replaces the socket if SDP carries the connection. A peer that may not
/// use TCP is reset, and the next connection is accepted in its place.
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
    // SAFETY: the application's own arguments.
    if !address.is_null() && !unsafe { is_room(len) } {
        return real(address, len);
    }
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
    if !address.is_null() {
        // SAFETY: the application says how much room there is.
        let room = unsafe { len.read() }.min(whole) as usize;
        let from = (&raw const storage).cast::<u8>();
        // SAFETY: there is so much room, and no more was received than the storage has.
        unsafe { ptr::copy_nonoverlapping(from, address.cast::<u8>(), room) };
        // SAFETY: the application's own.
        unsafe { len.write(whole) };
    }
    stream
}

/// Whether a length of the room for an address is one for the kernel, which refuses the call if
/// there is none or it is negative.
///
/// # Safety
/// `len` is null or readable.
unsafe fn is_room(len: *const socklen_t) -> bool {
    // SAFETY: the caller vouches for it.
    unsafe { len.as_ref() }.is_some_and(|len| c_int::try_from(*len).is_ok())
}

/// Replaces `stream`, which was accepted at the listener `fd`, by what the application gets.
/// Returns that descriptor, a failure of `accept`, or nothing for a peer that is turned away.
fn give(fd: RawFd, stream: RawFd, peer: &sockaddr_storage, flags: c_int) -> Option<c_int> {
    let Some(peer) = address::from_storage(peer) else { return Some(stream) };
    let _inside = guard::enter();
    if !is_tcp(stream) || Registry::get().env().settings.off {
        return Some(stream);
    }
    // As the listener's is. A relay sets it for itself.
    let (before, resets) = (sys::flags(stream), sys::resets_at_close(stream));
    match accepted(fd, stream, peer) {
        AcceptResult::Replaced(theirs) => {
            let nonblocking = flags & libc::SOCK_NONBLOCK;
            sys::inherit(stream, &theirs, nonblocking);
            Registry::get().env().options.inherit(stream, theirs.as_raw_fd());
            if sys::install(&theirs, stream, flags & libc::SOCK_CLOEXEC != 0).is_err() {
                sys::close(stream);
                return Some(fail(libc::ECONNABORTED));
            }
            late_writes::begin(stream);
            if resets {
                sys::reset_at_close(stream);
                if let Some(conn) = conn_of(stream) {
                    conn.lock().is_abortive = true;
                }
            }
        }
        AcceptResult::Tcp => {
            if let Ok(flags) = before {
                // A claim that failed may have changed them.
                let _ = sys::set_flags(stream, flags);
            }
        }
        AcceptResult::Nothing => {
            sys::reset_at_close(stream);
            sys::close(stream);
            return None;
        }
        AcceptResult::Failed(error) => {
            sys::reset_at_close(stream);
            sys::close(stream);
            return Some(fail(error));
        }
    }
    Some(stream)
}

/// `bind`: Shuttle gives up a UDP port that the application binds.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
    let real = next!(bind as WithAddress);
    if !is_foreign()
        && let Some(listeners) = own_listeners()
    {
        // SAFETY: the application vouches for its address.
        let at = unsafe { address::from_raw(address, len) };
        let _inside = guard::enter();
        let datagrams = sys::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_DGRAM);
        if let Some(at) = at.filter(|at| datagrams && at.port() != 0) {
            listeners.dismiss(|_, place| place.port() == at.port());
        }
    }
    // SAFETY: the application's own arguments.
    unsafe { real(fd, address, len) }
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
    // SAFETY: the application's own argument.
    if let Some(ends) = unsafe { ends_for(fd, address, len) } {
        // SAFETY: the application's own arguments.
        unsafe { address::give(&ends.local, address, len) };
        return 0;
    }
    // SAFETY: the application's own arguments.
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
    // SAFETY: the application's own argument.
    if let Some(ends) = unsafe { ends_for(fd, address, len) } {
        if conn_of(fd).is_some_and(|conn| conn.is_connecting()) {
            return fail(libc::ENOTCONN);
        }
        // SAFETY: the application's own arguments.
        unsafe { address::give(&ends.remote, address, len) };
        return 0;
    }
    // SAFETY: the application's own arguments.
    unsafe { real(fd, address, len) }
}

/// The ends of a connection of this library, if the application has room for an address.
///
/// # Safety
/// `len` is null or readable.
unsafe fn ends_for(fd: RawFd, address: *mut sockaddr, len: *mut socklen_t) -> Option<SocketEnds> {
    // SAFETY: the caller vouches for it.
    let room = !address.is_null() && unsafe { is_room(len) };
    (room && !is_foreign()).then(|| ends_of(fd)).flatten()
}

/// The ends of a connection of this library; keeps errno.
pub(crate) fn ends_of(fd: RawFd) -> Option<SocketEnds> {
    let error = errno();
    let ends = sys::ends(fd);
    fail(error);
    ends
}

/// `epoll_ctl`: registrations of sockets that may be replaced are remembered.
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
    // SAFETY: the application's own arguments.
    let call = || unsafe { real(instance, operation, fd, event) };
    if is_foreign() {
        return call();
    }
    if operation == libc::EPOLL_CTL_DEL || event.is_null() || !may_change(fd) {
        let done = call();
        if done == 0
            && operation == libc::EPOLL_CTL_DEL
            && let Some(registry) = Registry::current()
        {
            registry.env().watches.remove(instance, fd);
        }
        return done;
    }
    let watches = {
        let _inside = guard::enter();
        &Registry::get().env().watches
    };
    // Before the call: the socket may be replaced between the two.
    // SAFETY: the application vouches for it, as the kernel is about to read it.
    let before = watches.add(instance, fd, unsafe { event.read_unaligned() });
    let done = call();
    if done == 0 {
        return 0;
    }
    let error = errno();
    watches.remove(instance, fd);
    if let Some(before) = before {
        watches.add(instance, fd, before);
    }
    fail(error)
}

/// Whether another socket may take this descriptor's place.
fn may_change(fd: RawFd) -> bool {
    let _inside = guard::enter();
    if is_tcp(fd) {
        let listens = sys::option(fd, libc::SOL_SOCKET, libc::SO_ACCEPTCONN) == Some(1);
        return !listens && sys::remote(fd).is_err();
    }
    conn_of(fd).is_some_and(|conn| conn.is_connecting())
}

/// `prctl`: notes a filter of system calls. libseccomp may set it by another call, but renounces
/// privileges first.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn prctl(
    option: c_int,
    second: c_ulong,
    third: c_ulong,
    fourth: c_ulong,
    fifth: c_ulong,
) -> c_int {
    if matches!(option, libc::PR_SET_SECCOMP | libc::PR_SET_NO_NEW_PRIVS) && !Registry::is_lent() {
        filters::handle_set();
    }
    // The definition in the C library does no more.
    // SAFETY: the application's own arguments; the kernel ignores those that an option lacks.
    unsafe { libc::syscall(libc::SYS_prctl, option, second, third, fourth, fifth) as c_int }
}

/// `_exit`: what the application has written still arrives.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    Registry::linger(HeldOutput::Dropped);
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
    // SAFETY: the application's own argument.
    unsafe { _exit(status) }
}
