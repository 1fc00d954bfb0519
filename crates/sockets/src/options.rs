//! Interposed functions of socket options.
//!
//! An application's socket is one of `AF_UNIX`, which has the options of `SOL_SOCKET`. Those of TCP
//! and IP are the shadow TCP connection's. Where there is none they are those of a new TCP socket,
//! on which is repeated what the application has set at this connection (`TcpOptions`).

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use libc::socklen_t;

use crate::hooks::{conn_of, ends_of, errno, fail, is_foreign, own_listeners};
use crate::listener::SdpListener;
use crate::names::SocketEnds;
use crate::real::next;
use crate::registry::Registry;
use crate::tcp_options::{TcpOption, TcpOptions};
use crate::{guard, sys};

type GetOption = unsafe extern "C" fn(c_int, c_int, c_int, *mut c_void, *mut socklen_t) -> c_int;
type SetOption = unsafe extern "C" fn(c_int, c_int, c_int, *const c_void, socklen_t) -> c_int;

/// Bytes of the value of an option that are kept, at most: none of TCP or IP has more.
const OPTION_BYTES_MAX: usize = 1024;
/// The state of a connection in `TCP_INFO`, its first byte.
const ESTABLISHED: u8 = 1;

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
    let real = next!(getsockopt as GetOption);
    // SAFETY: the application's own arguments.
    let done = unsafe { real(fd, level, name, value, len) };
    if is_foreign() {
        return done;
    }
    if done == 0
        && let Some(listener) = deferring(fd, level, name)
    {
        let deferral = listener.deferral();
        // SAFETY: the kernel has written so many bytes there, those of an int or fewer.
        unsafe { write_int(deferral, value, len) };
        return 0;
    }
    let is_kind = level == libc::SOL_SOCKET && matches!(name, libc::SO_DOMAIN | libc::SO_PROTOCOL);
    if done == 0 && !is_kind || done != 0 && !is_of_ip(level) {
        return done;
    }
    let error = errno();
    let Some(ends) = ends_of(fd) else { return if done == 0 { 0 } else { fail(error) } };
    if is_kind {
        let family = if ends.local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let truth = if name == libc::SO_DOMAIN { family } else { libc::IPPROTO_TCP };
        // SAFETY: the kernel has written so many bytes there, those of an int or fewer.
        unsafe { write_int(truth, value, len) };
        return 0;
    }
    // SAFETY: the application's own arguments, for another socket.
    let get = |tcp: RawFd| unsafe { real(tcp, level, name, value, len) };
    if let Some(done) = conn_of(fd).and_then(|conn| conn.with_shadow(get)) {
        return done;
    }
    let _inside = guard::enter();
    let Some(tcp) = stand_in(fd, &ends) else { return fail(libc::ENOBUFS) };
    let done = get(tcp.as_raw_fd());
    // SAFETY: the kernel has written so many bytes.
    if done == 0 && (level, name) == (libc::IPPROTO_TCP, libc::TCP_INFO) && unsafe { *len } > 0 {
        // SAFETY: there is a byte.
        unsafe { value.cast::<u8>().write(ESTABLISHED) };
    }
    done
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
    let real = next!(setsockopt as SetOption);
    // SAFETY: the application's own arguments.
    let done = unsafe { real(fd, level, name, value, len) };
    if is_foreign() {
        return done;
    }
    if done == 0 && level == libc::SOL_SOCKET && name == libc::SO_LINGER {
        // SAFETY: the kernel has read such a structure there.
        let linger = unsafe { value.cast::<libc::linger>().read_unaligned() };
        if let Some(conn) = conn_of(fd) {
            conn.lock().is_abortive = linger.l_onoff != 0 && linger.l_linger == 0;
        }
    }
    if done == 0
        && let Some(listener) = deferring(fd, level, name)
    {
        listener.take_deferral(fd);
    }
    if done == 0 || !is_of_ip(level) {
        return done;
    }
    let error = errno();
    let Some(ends) = ends_of(fd) else { return fail(error) };
    // SAFETY: the application's own arguments, for another socket.
    let set = |tcp: RawFd| unsafe { real(tcp, level, name, value, len) };
    if let Some(done) = conn_of(fd).and_then(|conn| conn.with_shadow(set)) {
        return done;
    }
    let _inside = guard::enter();
    let Some(tcp) = stand_in(fd, &ends) else { return fail(libc::ENOBUFS) };
    let done = set(tcp.as_raw_fd());
    if done == 0
        && !value.is_null()
        && let Some(names) = sys::names_of(fd)
    {
        let mut bytes = vec![0_u8; OPTION_BYTES_MAX.min(len as usize)];
        // SAFETY: the application says that so many bytes are there.
        unsafe { ptr::copy_nonoverlapping(value.cast(), bytes.as_mut_ptr(), bytes.len()) };
        options().set(names.unique(), TcpOption::new(level, name, bytes));
    }
    done
}

/// The listener at `fd`, if it is served and the option is `TCP_DEFER_ACCEPT`, which is kept there.
fn deferring(fd: RawFd, level: c_int, name: c_int) -> Option<Arc<SdpListener>> {
    if (level, name) != (libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) {
        return None;
    }
    own_listeners()?.find(sys::inode(fd)?)
}

/// Writes an option to where `getsockopt` has written one: `len` bytes of `value`.
///
/// # Safety
/// The two are those of a call that has succeeded.
unsafe fn write_int(option: c_int, value: *mut c_void, len: *const socklen_t) {
    // SAFETY: the caller vouches for it.
    let bytes = size_of::<c_int>().min(unsafe { len.read() } as usize);
    // SAFETY: as above.
    unsafe { ptr::copy_nonoverlapping((&raw const option).cast(), value.cast::<u8>(), bytes) };
}

/// Whether options of a level are those of TCP or IP, which an `AF_UNIX` socket does not have.
fn is_of_ip(level: c_int) -> bool {
    matches!(level, libc::IPPROTO_TCP | libc::IPPROTO_IP | libc::IPPROTO_IPV6)
}

fn options() -> &'static TcpOptions {
    &Registry::get().env().options
}

/// A new TCP socket with the options that the application has set at the connection of `fd`.
fn stand_in(fd: RawFd, ends: &SocketEnds) -> Option<OwnedFd> {
    let tcp = sys::tcp_socket(ends.local.is_ipv4()).ok()?;
    for option in options().get(&sys::names_of(fd)?.unique()) {
        option.repeat(tcp.as_raw_fd());
    }
    Some(tcp)
}
