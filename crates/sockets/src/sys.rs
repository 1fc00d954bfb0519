//! The system calls of this library, made past its own hooks.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_long, c_void, socklen_t};
use weft_os::fds::HighFd;

use crate::address;
use crate::names::Ends;

/// What names a socket for as long as it exists, whatever its descriptors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64);

/// `SIOCATMARK`, which libc leaves out.
const SIOCATMARK: libc::c_ulong = 0x8905;

/// What a system call gave.
pub fn check(result: c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Octets that may wait in a socket of a pair, which the kernel doubles for what it needs itself.
const ROOM_OCTETS: c_int = 512 << 10;

fn owned(result: c_long) -> io::Result<OwnedFd> {
    let raw = check(result)? as RawFd;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The descriptor as what is borrowed for a call.
pub fn borrow(fd: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: the number comes from the program, which keeps it open during its call; if it does
    // not, the calls made on it fail.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// A second descriptor, out of the program's way.
pub fn duplicate(fd: RawFd) -> io::Result<HighFd> {
    Ok(HighFd::new(borrow(&fd).try_clone_to_owned()?))
}

/// Two sockets that are connected to each other; the second never waits.
pub fn stream_pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) }.into())?;
    let [first, second] = pair.map(|raw| owned(raw.into()));
    let (first, second) = (first?, second?);
    set_flags(second.as_raw_fd(), libc::O_RDWR | libc::O_NONBLOCK)?;
    Ok((first, second))
}

/// Lets more wait in a socket than the kernel's default: whoever has filled it is woken when three
/// quarters are gone. Where the kernel allows less, it is less.
pub fn set_room(fd: RawFd) {
    let (room, len) = (ROOM_OCTETS, size_of::<c_int>());
    let at = &raw const room;
    // SAFETY: the value is there.
    unsafe {
        libc::syscall(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_SNDBUF, at, len);
    }
}

/// How much may wait in a socket, as the kernel counts it.
pub fn room(fd: RawFd) -> Option<c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)
}

/// A socket of messages in the abstract name space, on which nothing waits.
pub fn message_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }.into())
}

/// Limits how long a socket waits for room at its peer's, or for a connection there.
pub fn limit_sending(fd: RawFd, limit: Duration) -> io::Result<()> {
    let limit = libc::timeval { tv_sec: limit.as_secs() as _, tv_usec: limit.subsec_micros() as _ };
    let len = size_of::<libc::timeval>() as socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, &raw const limit);
    // SAFETY: the value has the size that is said.
    let done = unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
    check(done).map(drop)
}

fn abstract_name(name: &[u8]) -> (libc::sockaddr_un, socklen_t) {
    // SAFETY: all zeroes is valid: an address without a name.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, octet) in address.sun_path[1..].iter_mut().zip(name) {
        *place = *octet as _;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    (address, len as socklen_t)
}

/// Gives a socket of `AF_UNIX` a name in the abstract name space; it has 107 octets at most.
pub fn bind_name(fd: RawFd, name: &[u8]) -> io::Result<()> {
    let (address, len) = abstract_name(name);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_bind, fd, &raw const address, len) }).map(drop)
}

/// Connects to such a name.
pub fn connect_name(fd: RawFd, name: &[u8]) -> io::Result<()> {
    let (address, len) = abstract_name(name);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const address, len) }).map(drop)
}

/// The name of a socket of `AF_UNIX` in the abstract name space.
fn name_of(fd: RawFd) -> Option<Vec<u8>> {
    // SAFETY: all zeroes is valid.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of::<libc::sockaddr_un>() as socklen_t;
    let place = &raw mut address;
    // SAFETY: the address has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockname, fd, place, &raw mut len) }).ok()?;
    if c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let octets = (len as usize).checked_sub(size_of::<libc::sa_family_t>() + 1)?;
    let path = address.sun_path.get(1..1 + octets)?;
    (address.sun_path[0] == 0).then(|| path.iter().map(|octet| *octet as u8).collect())
}

/// The connection that the program's socket stands for, if it is one of ours.
pub fn ends(fd: RawFd) -> Option<Ends> {
    Ends::parse(&name_of(fd)?)
}

/// Lets others connect.
pub fn listen(fd: RawFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_listen, fd, backlog) }).map(drop)
}

/// Takes the next that has connected.
pub fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    let (address, len) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
    // SAFETY: the peer's address is not asked for.
    owned(unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, libc::SOCK_CLOEXEC) })
}

/// Binds a socket.
pub fn bind(fd: RawFd, at: &SocketAddr) -> io::Result<()> {
    let (address, len) = address::to_raw(at);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_bind, fd, &raw const address, len) }).map(drop)
}

/// Connects a socket, or begins to.
pub fn connect(fd: RawFd, to: &SocketAddr) -> io::Result<()> {
    let (address, len) = address::to_raw(to);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const address, len) }).map(drop)
}

/// Ends what a socket is connected to, or about to be; nothing of that is told by it any more.
pub fn disconnect(fd: RawFd) {
    let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as _, sa_data: [0; 14] };
    let len = size_of::<libc::sockaddr>() as socklen_t;
    // SAFETY: the address is whole and of the length given. What is not connected stays so.
    unsafe { libc::syscall(libc::SYS_connect, fd, &raw const nobody, len) };
    take_error(fd);
}

/// The error that a socket keeps for its program, which it does no more.
pub fn take_error(fd: RawFd) -> Option<c_int> {
    option(fd, libc::SOL_SOCKET, libc::SO_ERROR).filter(|error| *error != 0)
}

/// The address of this end.
pub fn local(fd: RawFd) -> io::Result<SocketAddr> {
    name(libc::SYS_getsockname, fd)
}

/// The address of the other end.
pub fn remote(fd: RawFd) -> io::Result<SocketAddr> {
    name(libc::SYS_getpeername, fd)
}

fn name(call: c_long, fd: RawFd) -> io::Result<SocketAddr> {
    // SAFETY: all zeroes is valid: an address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of::<libc::sockaddr_storage>() as socklen_t;
    // SAFETY: the storage has the room that `len` says.
    check(unsafe { libc::syscall(call, fd, &raw mut storage, &raw mut len) })?;
    address::from_storage(&storage).ok_or(io::ErrorKind::AddrNotAvailable.into())
}

/// Receives without waiting.
pub fn receive(fd: RawFd, into: &mut [u8], flags: c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT;
    let none = std::ptr::null_mut::<c_void>();
    let (at, len) = (into.as_mut_ptr(), into.len());
    // SAFETY: the buffer is writable for its length.
    check(unsafe { libc::syscall(libc::SYS_recvfrom, fd, at, len, flags, none, none) })
}

/// Sends without waiting, and without a signal.
pub fn send(fd: RawFd, from: &[u8], flags: c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let none = std::ptr::null_mut::<c_void>();
    let (at, len) = (from.as_ptr(), from.len());
    // SAFETY: the buffer is readable for its length.
    check(unsafe { libc::syscall(libc::SYS_sendto, fd, at, len, flags, none, 0) })
}

/// Ends one direction, or both.
pub fn shut(fd: RawFd, how: c_int) {
    // SAFETY: plain arguments. What is over cannot be ended, which is as good.
    unsafe { libc::syscall(libc::SYS_shutdown, fd, how) };
}

/// Whether the next octet is an urgent one.
pub fn is_at_mark(fd: RawFd) -> bool {
    let mut at = 0 as c_int;
    // SAFETY: the kernel writes an int.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd, SIOCATMARK, &raw mut at) };
    done == 0 && at != 0
}

/// What of `events` holds now, or of the ends that are always told.
pub fn poll_now(fd: RawFd, events: i16) -> i16 {
    poll(fd, events, Some(Duration::ZERO)).unwrap_or(0)
}

/// Waits for `events`; gives none after `limit`.
pub fn poll(fd: RawFd, events: i16, limit: Option<Duration>) -> io::Result<i16> {
    let mut wanted = libc::pollfd { fd, events, revents: 0 };
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs() as _,
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const _);
    // SAFETY: one entry that outlives the call; the limit is null or a time that does too.
    check(unsafe { libc::ppoll(&raw mut wanted, 1, limit, std::ptr::null()) }.into())?;
    Ok(wanted.revents)
}

/// Puts `fd` at the number `at`, in place of what is there.
pub fn install(fd: &impl AsRawFd, at: RawFd, on_exec: bool) -> io::Result<()> {
    let flags = if on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), at, flags) }).map(drop)
}

/// Whether a number is closed when another program begins.
pub fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: plain arguments.
    unsafe {
        libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) & c_long::from(libc::FD_CLOEXEC) != 0
    }
}

/// The flags of what is open there.
pub fn flags(fd: RawFd) -> io::Result<c_int> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) }).map(|flags| flags as c_int)
}

/// Sets these.
pub fn set_flags(fd: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }).map(drop)
}

/// What names the socket behind a descriptor.
pub fn inode(fd: RawFd) -> Option<Inode> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place has room for the structure.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    if done != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    // Files have numbers of their own.
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(Inode(stat.st_ino))
}

/// The numbers of this process that lead to a socket.
pub fn find(socket: Inode) -> Vec<RawFd> {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(|fd: &RawFd| inode(*fd) == Some(socket)).collect()
}

/// Closes a number of the program's.
pub fn close(fd: RawFd) {
    // SAFETY: plain arguments; the caller says that the program needs it no more.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Sleeps.
pub fn pause(time: Duration) {
    // No descriptor, so that nothing but time ends it; a signal may, too.
    let _ = poll(-1, 0, Some(time));
}

impl Inode {
    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// An option that is a number.
pub fn option(fd: RawFd, level: c_int, name: c_int) -> Option<c_int> {
    let mut value = 0 as c_int;
    let mut len = size_of::<c_int>() as socklen_t;
    let (value_at, len_at) = (&raw mut value, &raw mut len);
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, value_at, len_at) })
        .ok()?;
    Some(value)
}

/// Has urgent octets of a TCP socket stay in their places in the stream.
pub fn keep_urgent_inline(fd: RawFd) {
    let (on, len) = (1 as c_int, size_of::<c_int>() as socklen_t);
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_OOBINLINE, &raw const on);
    // SAFETY: the value has the size that is said. Every socket takes it.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
}

/// Has the peer of a TCP socket find a reset when it is closed.
pub fn reset_at_close(fd: RawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = size_of::<libc::linger>() as socklen_t;
    let (level, name, at) = (libc::SOL_SOCKET, libc::SO_LINGER, &raw const linger);
    // SAFETY: the value has the size that is said. A socket that refuses it ends in order.
    unsafe { libc::syscall(libc::SYS_setsockopt, fd, level, name, at, len) };
}

/// What names the network that a socket is in, if the kernel tells.
pub fn network(fd: RawFd) -> Option<u64> {
    let mut cookie = 0_u64;
    let mut len = size_of::<u64>() as socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_NETNS_COOKIE);
    let (at, len_at) = (&raw mut cookie, &raw mut len);
    // SAFETY: the value has the room that `len` says.
    check(unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, len_at) }).ok()?;
    Some(cookie)
}

/// Sets an option of one socket to what it is at another.
pub fn copy_option(from: RawFd, to: RawFd, name: c_int) {
    let mut value = [0_u8; 32];
    let mut len = value.len() as socklen_t;
    let (level, at) = (libc::SOL_SOCKET, value.as_mut_ptr());
    // SAFETY: the value has the room that `len` says.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, from, level, name, at, &raw mut len) };
    if got == 0 {
        // SAFETY: the kernel has filled `len` octets of it.
        unsafe { libc::syscall(libc::SYS_setsockopt, to, level, name, at, len) };
    }
}

/// Whether TCP is being connected: its peer has no answer yet.
pub fn is_connecting(fd: RawFd) -> bool {
    const SYN_SENT: u8 = 2;
    let mut state = [0_u8; 8];
    let mut len = state.len() as socklen_t;
    let (level, name, at) = (libc::IPPROTO_TCP, libc::TCP_INFO, state.as_mut_ptr());
    // SAFETY: the value has the room that `len` says.
    let got = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, name, at, &raw mut len) };
    got == 0 && state[0] == SYN_SENT
}

/// Whether one socket alone listens at this number.
pub fn is_only_listener(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    lines.filter(|line| is_listener(line, port)).count() <= 1
}

/// Whether a line of the kernel's table is about a socket that listens at this number.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let (at, state) = (words.next(), words.nth(1));
    let number = at.and_then(|at| u16::from_str_radix(at.rsplit(':').next()?, 16).ok());
    number == Some(port) && state == Some(LISTEN)
}

/// A TCP socket that is not connected.
pub fn tcp_socket(v4: bool) -> io::Result<OwnedFd> {
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }.into())
}

/// Gives the program's end what its socket had.
pub fn inherit(from: RawFd, to: &OwnedFd, nonblocking: c_int) {
    let raw = to.as_raw_fd();
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO, libc::SO_OOBINLINE, libc::SO_RCVLOWAT] {
        copy_option(from, raw, name);
    }
    // A new socket takes the flag.
    let _ = set_flags(raw, libc::O_RDWR | nonblocking & libc::O_NONBLOCK);
}

/// Random bits that nobody can guess.
pub fn random() -> u64 {
    u64::from_ne_bytes(weft_os::random::random_octets())
}

/// A counter that is waited for.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: plain arguments.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into())
}

/// Wakes who waits for it.
pub fn raise(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: eight readable octets.
    unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
}

/// Waits until it is raised. A signal handler that asks for that lets the wait go on.
pub fn wait_raised(fd: RawFd) -> io::Result<()> {
    let mut count = 0_u64;
    // SAFETY: eight writable octets.
    check(unsafe { libc::read(fd, (&raw mut count).cast(), size_of::<u64>()) } as c_long).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_told_from_connections() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000";
        assert!(is_listener(line, 8080) && !is_listener(line, 8081));
        let line = "   1: 0100007F:1F90 0100007F:D431 01 00000000:00000000 00:00000000";
        assert!(!is_listener(line, 8080));
        assert!(!is_listener("  sl  local_address rem_address   st", 8080));
        let first = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(is_only_listener(first.local_addr().unwrap().port()));
    }
}
