//! Options of sockets, and what the kernel says of a connection, by calls that bypass the hooks of
//! this library.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, socklen_t};

use super::{check, set_flags};

/// Send buffer of a socket of a pair in bytes; the kernel doubles it for its own overhead.
const ROOM_BYTES: c_int = 512 << 10;

/// The value of a socket option that is an `int`.
pub fn option(fd: RawFd, level: c_int, name: c_int) -> Option<c_int> {
    let mut value = 0 as c_int;
    let mut len = size_of::<c_int>() as socklen_t;
    let (value_at, len_at) = (&raw mut value, &raw mut len);
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value_at, len_at) })
        .ok()?;
    Some(value)
}

/// Sets a socket option to the value that these bytes are; a failure leaves it as it is.
pub fn set_option(fd: RawFd, level: c_int, name: c_int, value: &[u8]) {
    let (at, len) = (value.as_ptr(), value.len());
    // SAFETY: the value has the size that is said.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
}

/// Takes the pending error of a socket (`SO_ERROR`).
pub fn take_error(fd: RawFd) -> Option<c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_ERROR).filter(|error| *error != 0)
}

/// Sets the send buffer to [`ROOM_BYTES`], or the kernel's limit if that is less: a writer that has
/// filled it is woken when three quarters are free.
pub fn set_room(fd: RawFd) {
    let (room, len) = (ROOM_BYTES, size_of::<c_int>());
    let at = &raw const room;
    // SAFETY: the value is there.
    unsafe {
        libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_SNDBUF, at, len);
    }
}

/// The send buffer in bytes, as the kernel counts it.
pub fn room(fd: RawFd) -> Option<c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
}

/// Limits how long a socket blocks in `send` and `connect`.
pub fn limit_sending(fd: RawFd, limit: Duration) -> io::Result<()> {
    let limit = libc::timeval { tv_sec: limit.as_secs() as _, tv_usec: limit.subsec_micros() as _ };
    let len = size_of::<libc::timeval>() as socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw const limit);
    // SAFETY: the value has the size that is said.
    let done = unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
    check(done).map(drop)
}

/// How long a socket blocks in `send` and `connect`; none if that is not limited.
pub fn send_limit(fd: RawFd) -> Option<Duration> {
    let mut limit = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut len = size_of::<libc::timeval>() as socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw mut limit);
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, &raw mut len) })
        .ok()?;
    let (seconds, micros) = (u64::try_from(limit.tv_sec).ok()?, u64::try_from(limit.tv_usec).ok()?);
    let limit = Duration::from_secs(seconds) + Duration::from_micros(micros);
    (!limit.is_zero()).then_some(limit)
}

/// Keeps urgent bytes of a TCP socket in line.
pub fn keep_urgent_inline(fd: RawFd) {
    let (on, len) = (1 as c_int, size_of::<c_int>() as socklen_t);
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_OOBINLINE, &raw const on);
    // SAFETY: the value has the size that is said. Every socket takes it.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
}

/// Makes the close of a TCP socket a reset (`SO_LINGER` of zero).
pub fn reset_at_close(fd: RawFd) {
    set_reset_at_close(fd, true);
}

/// The same, or an end in order.
pub fn set_reset_at_close(fd: RawFd, resets: bool) {
    let linger = libc::linger { l_onoff: resets.into(), l_linger: 0 };
    let len = size_of::<libc::linger>() as socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_LINGER, &raw const linger);
    // SAFETY: the value has the size that is said. A socket that refuses it ends in order.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
}

/// Whether the close of a socket is a reset (`SO_LINGER` of zero).
pub fn resets_at_close(fd: RawFd) -> bool {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
    let (at, len_at) = (&raw mut linger, &raw mut len);
    // SAFETY: the value has the room that `len` says.
    unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, len_at) };
    linger.l_onoff != 0 && linger.l_linger == 0
}

/// The cookie of a socket's network namespace, if the kernel has one.
pub fn network(fd: RawFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    let (at, len_at) = (&raw mut cookie, &raw mut len);
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, len_at) }).ok()?;
    Some(cookie)
}

/// Whether TCP is in SYN-SENT: the peer has not answered.
pub fn is_connecting(fd: RawFd) -> bool {
    const SYN_SENT: u8 = 2;
    let mut state = [0_u8; 8];
    let mut len = state.len() as socklen_t;
    let (level, name, at) = (libc::IPPROTO_TCP, libc::TCP_INFO, state.as_mut_ptr());
    // SAFETY: the value has the room that `len` says.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, &raw mut len) };
    got == 0 && state[0] == SYN_SENT
}

/// The round trip of a TCP connection, as the kernel has measured it; none if it has not.
pub fn rtt(fd: RawFd) -> Option<Duration> {
    // SAFETY: an all-zero tcp_info is valid: it holds integers only.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as socklen_t;
    let (level, name, at) = (libc::IPPROTO_TCP, libc::TCP_INFO, &raw mut info);
    // SAFETY: the value has the room that `len` says.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, &raw mut len) };
    (got == 0 && info.tcpi_rtt > 0).then(|| Duration::from_micros(info.tcpi_rtt.into()))
}

/// Options of `SOL_SOCKET` that a socket has in common with the one that replaces it, and their
/// defaults.
const COMMON: [(c_int, u8); 5] = [
    (libc::SO_RCVTIMEO, 0),
    (libc::SO_SNDTIMEO, 0),
    (libc::SO_OOBINLINE, 0),
    (libc::SO_KEEPALIVE, 0),
    (libc::SO_RCVLOWAT, 1),
];

/// Copies the options and flags of a socket to the one that replaces it.
pub fn inherit(from: RawFd, to: &OwnedFd, nonblocking: c_int) {
    let raw = to.as_raw_fd();
    for (name, default) in COMMON {
        copy_option(from, raw, name, Some(default));
    }
    // A new socket takes any flag.
    let _ = set_flags(raw, libc::O_RDWR | nonblocking & libc::O_NONBLOCK);
}

/// Copies the options of a socket to the one that it has stood for, those too that have their
/// defaults again.
pub fn repeat_options(from: RawFd, to: RawFd) {
    for name in COMMON.map(|(name, _)| name).into_iter().chain([libc::SO_LINGER]) {
        copy_option(from, to, name, None);
    }
}

/// Copies an option of `SOL_SOCKET` of at most 32 bytes, unless its first byte is the `default` and
/// the others are zero: a new socket has that. A failure changes nothing.
fn copy_option(from: RawFd, to: RawFd, name: c_int, default: Option<u8>) {
    let mut value = [0_u8; 32];
    let mut len = value.len() as socklen_t;
    let (level, at) = (libc::SOL_SOCKET, value.as_mut_ptr());
    // SAFETY: the value has the room that `len` says.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, from, level, name, at, &raw mut len) };
    let Some(value) = value.get(..len as usize).filter(|_| got == 0) else { return };
    let is_default = value
        .split_first()
        .is_some_and(|(first, rest)| Some(*first) == default && rest.iter().all(|byte| *byte == 0));
    if !is_default {
        set_option(to, level, name, value);
    }
}
