//! Options of sockets that the standard library does not know.

use std::io;
use std::mem::size_of;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Has the kernel cut what `socket` sends into datagrams of `bytes`; whether it can.
pub fn segment(socket: &UdpSocket, bytes: u16) -> bool {
    set(socket, libc::SOL_UDP, libc::UDP_SEGMENT, bytes.into())
}

/// Has the kernel send datagrams whole or not at all, whatever it knows of the path.
///
/// # Errors
/// The kernel does not.
pub fn forbid_fragments(socket: &UdpSocket) -> io::Result<()> {
    let v4 = set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    let v6 = set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
    if v4 || v6 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel hand out joined what `socket` receives; whether it can.
pub fn join(socket: &UdpSocket) -> bool {
    set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)
}

/// Asks for buffers of `bytes`, as Weft does; gives the bytes granted for receiving and for
/// sending.
pub fn widen(socket: &UdpSocket, bytes: u32) -> [u32; 2] {
    let wanted = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    let buffers =
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)];
    buffers.map(|(force, plain)| {
        if !set(socket, libc::SOL_SOCKET, force, wanted) {
            set(socket, libc::SOL_SOCKET, plain, wanted);
        }
        // The kernel doubles what it is asked for, to account for its own structures.
        get(socket, libc::SOL_SOCKET, plain) / 2
    })
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> bool {
    let (place, len) = ((&raw const value).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: `place` points to a live integer of `len` bytes.
    unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, place, len) == 0 }
}

fn get(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> u32 {
    let mut value: libc::c_int = 0;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    let place = (&raw mut value).cast();
    // SAFETY: `place` has room for `len` bytes.
    unsafe { libc::getsockopt(socket.as_raw_fd(), level, name, place, &mut len) };
    u32::try_from(value).unwrap_or(0)
}
