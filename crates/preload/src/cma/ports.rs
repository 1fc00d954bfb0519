//! `bind`: an application may have a TCP socket at the port of a listener of its own.

use std::ffi::c_int;
use std::mem::size_of;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use weft_os::calls::LibraryCall;
use weft_os::options;

use super::sockaddr;
use crate::errno;
use crate::rdma;
use crate::real::next;

/// `bind`. Where the port is in use by a listener of this process that has it in TCP besides UDP,
/// that gives it up.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bind(
    fd: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> c_int {
    let Some(real) = next!(bind(fd, addr, len)) else { return errno::minus_one(libc::ENOSYS) };
    // SAFETY: the caller's arguments.
    let bound = unsafe { real(fd, addr, len) };
    if bound == 0 || errno::get() != libc::EADDRINUSE {
        return bound;
    }
    // SAFETY: as for the C function.
    let frees = unsafe { wanted(fd, addr, len) }.is_some_and(free);
    if frees {
        // SAFETY: the caller's arguments.
        return unsafe { real(fd, addr, len) };
    }
    errno::minus_one(libc::EADDRINUSE)
}

/// The address of TCP that `fd` is to be bound to.
///
/// # Safety
/// `addr` has `len` bytes.
unsafe fn wanted(
    fd: c_int,
    addr: *const libc::sockaddr,
    len: libc::socklen_t,
) -> Option<SocketAddr> {
    // SAFETY: nobody else closes it during the call.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    let kind = options::option(socket, libc::SOL_SOCKET, libc::SO_TYPE)?;
    // The system has taken its family for one of an address that is in use.
    if kind != libc::SOCK_STREAM as u32 || (len as usize) < size_of::<libc::sockaddr_in>() {
        return None;
    }
    // SAFETY: every address begins with its family.
    let family = i32::from(unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() });
    if (len as usize) < sockaddr::len_of(family) {
        return None;
    }
    // SAFETY: the address is as long as its family says.
    unsafe { sockaddr::read(addr) }
}

fn free(wanted: SocketAddr) -> bool {
    let _call = LibraryCall::begin();
    rdma::host_so_far().is_some_and(|host| host.free_tcp_port(wanted))
}
