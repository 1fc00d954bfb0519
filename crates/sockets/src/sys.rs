//! System calls that bypass the hooks of this library: descriptors, names of sockets, data, waits.
//! [`socket_options`] has those of options.

mod socket_options;

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use libc::{c_int, c_long, c_void, socklen_t};
use rustix::fs::{self, Mode, OFlags, RawDir};
use weft_os::fds::HighFd;

pub use self::socket_options::{
    inherit, is_connecting, keep_urgent_inline, limit_sending, network, option, repeat_options,
    reset_at_close, resets_at_close, room, rtt, send_limit, set_option, set_reset_at_close,
    set_room, take_error,
};
use crate::address;
use crate::guard::sleeping;
use crate::names::{self, SocketEnds, SocketNames};

/// The inode of a socket: its identity, whatever its descriptors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Inode(u64);

/// Attempts to find a free name.
const NAME_TRIES: u32 = 8;
/// `SIOCATMARK`, which libc leaves out.
const SIOCATMARK: libc::c_ulong = 0x8905;

/// The result of a system call.
///
/// # Errors
/// errno, if `result` is negative.
pub fn check(result: c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Whether a call has failed for want of descriptors or memory.
pub fn is_lack(error: &io::Error) -> bool {
    let lacks = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS];
    error.raw_os_error().is_some_and(|error| lacks.contains(&error))
}

/// The result of a call, or none if it has failed, but not for want of descriptors or memory.
///
/// # Errors
/// Those that [`is_lack`] tells.
pub fn unless_lacking<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if is_lack(&error) => Err(error),
        result => Ok(result.ok()),
    }
}

fn owned(result: c_long) -> io::Result<OwnedFd> {
    let raw = check(result)? as RawFd;
    // SAFETY: the descriptor is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The descriptor, borrowed for a call.
pub fn borrow(fd: &RawFd) -> BorrowedFd<'_> {
    // SAFETY: the application keeps the descriptor open during its call; otherwise calls on it
    // fail.
    unsafe { BorrowedFd::borrow_raw(*fd) }
}

/// A duplicate above the descriptors that applications use.
pub fn duplicate(fd: RawFd) -> io::Result<HighFd> {
    Ok(HighFd::new(borrow(&fd).try_clone_to_owned()?))
}

/// A connected pair; the second socket does not block.
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

/// An `AF_UNIX` socket of messages (`SOCK_SEQPACKET`).
pub fn message_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }.into())
}

/// An `AF_UNIX` socket of a byte stream, which does not block.
pub fn stream_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(libc::AF_UNIX, kind, 0) }.into())
}

/// A socket for requests to the kernel's table of sockets (`sock_diag(7)`).
pub fn diag_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_INET_DIAG) }.into())
}

fn abstract_name(name: &[u8]) -> (libc::sockaddr_un, socklen_t) {
    // SAFETY: all zeroes is valid: an address without a name.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    address.sun_family = libc::AF_UNIX as _;
    for (place, byte) in address.sun_path[1..].iter_mut().zip(name) {
        *place = *byte as _;
    }
    let len = size_of::<libc::sa_family_t>() + 1 + name.len();
    (address, len as socklen_t)
}

/// Binds an `AF_UNIX` socket to an abstract name of at most 107 bytes.
pub fn bind_name(fd: RawFd, name: &[u8]) -> io::Result<()> {
    let (address, len) = abstract_name(name);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_bind, fd, &raw const address, len) }).map(drop)
}

/// Connects to an abstract name.
pub fn connect_name(fd: RawFd, name: &[u8]) -> io::Result<()> {
    let (address, len) = abstract_name(name);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const address, len) }).map(drop)
}

/// The abstract name of an `AF_UNIX` socket, or that of its peer, by this call.
fn abstract_name_of(call: c_long, fd: RawFd) -> Option<Vec<u8>> {
    // SAFETY: all zeroes is valid.
    let mut address: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    let mut len = size_of::<libc::sockaddr_un>() as socklen_t;
    let place = &raw mut address;
    // SAFETY: the address has the room that `len` says.
    check(unsafe { libc::syscall(call, fd, place, &raw mut len) }).ok()?;
    if c_int::from(address.sun_family) != libc::AF_UNIX {
        return None;
    }
    let bytes = (len as usize).checked_sub(size_of::<libc::sa_family_t>() + 1)?;
    let path = address.sun_path.get(1..1 + bytes)?;
    (address.sun_path[0] == 0).then(|| path.iter().map(|byte| *byte as u8).collect())
}

/// The names of an `AF_UNIX` socket and, if it is the accepting end of a pair, of its peer.
pub fn names_of(fd: RawFd) -> Option<SocketNames> {
    let own = abstract_name_of(libc::SYS_getsockname, fd)?;
    let peer = names::is_of_offers(&own).then(|| abstract_name_of(libc::SYS_getpeername, fd));
    Some(SocketNames { own, peer: peer.flatten() })
}

/// Names an application's socket after the addresses of its connection.
///
/// # Errors
/// If no name is free, or memory is short.
pub fn name_after(fd: RawFd, ends: &SocketEnds) -> io::Result<()> {
    let mut tries = NAME_TRIES;
    while let Err(error) = bind_name(fd, &ends.name(random())) {
        tries -= 1;
        if tries == 0 || error.kind() != io::ErrorKind::AddrInUse {
            return Err(error);
        }
    }
    Ok(())
}

/// The addresses of the connection of an application's socket, if it is one of this library.
pub fn ends(fd: RawFd) -> Option<SocketEnds> {
    names_of(fd)?.ends()
}

/// Listens on a socket.
pub fn listen(fd: RawFd, backlog: c_int) -> io::Result<()> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_listen, fd, backlog) }).map(drop)
}

/// Accepts a connection.
pub fn accept(fd: RawFd) -> io::Result<OwnedFd> {
    let (address, len) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
    // SAFETY: the peer's address is not asked for.
    owned(unsafe { libc::syscall(libc::SYS_accept4, fd, address, len, libc::SOCK_CLOEXEC) })
}

/// Binds a socket to an IP address.
pub fn bind(fd: RawFd, at: &SocketAddr) -> io::Result<()> {
    let (address, len) = address::to_raw(at);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_bind, fd, &raw const address, len) }).map(drop)
}

/// Connects a socket to an IP address, or begins to if it does not block.
pub fn connect(fd: RawFd, to: &SocketAddr) -> io::Result<()> {
    let (address, len) = address::to_raw(to);
    // SAFETY: the address is whole and of the length given.
    check(unsafe { libc::syscall(libc::SYS_connect, fd, &raw const address, len) }).map(drop)
}

/// Dissolves a connection or a connect in progress, with its pending error.
pub fn disconnect(fd: RawFd) {
    let nobody = libc::sockaddr { sa_family: libc::AF_UNSPEC as _, sa_data: [0; 14] };
    let len = size_of::<libc::sockaddr>() as socklen_t;
    // SAFETY: the address is whole and of the length given. An unconnected socket stays so.
    unsafe { libc::syscall(libc::SYS_connect, fd, &raw const nobody, len) };
    take_error(fd);
}

/// The local address of a socket.
pub fn local(fd: RawFd) -> io::Result<SocketAddr> {
    name(libc::SYS_getsockname, fd)
}

/// The peer's address of a socket.
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

/// Whether the peer of a TCP stream has ended it, and nothing of what it sent is unread.
pub fn has_ended_empty(fd: RawFd) -> bool {
    match receive(fd, &mut [0], libc::MSG_PEEK) {
        Ok(count) => count == 0,
        Err(error) => error.raw_os_error() == Some(libc::ECONNRESET),
    }
}

/// Sends without waiting, and without a signal.
pub fn send(fd: RawFd, from: &[u8], flags: c_int) -> io::Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let none = std::ptr::null_mut::<c_void>();
    let (at, len) = (from.as_ptr(), from.len());
    // SAFETY: the buffer is readable for its length.
    check(unsafe { libc::syscall(libc::SYS_sendto, fd, at, len, flags, none, 0) })
}

/// Shuts down one half, or both.
pub fn shut(fd: RawFd, how: c_int) {
    // SAFETY: plain arguments. A failure means that it is over.
    unsafe { libc::syscall(libc::SYS_shutdown, fd, how) };
}

/// Whether the next byte is urgent.
pub fn is_at_mark(fd: RawFd) -> bool {
    let mut at = 0 as c_int;
    // SAFETY: the kernel writes an int.
    let done = unsafe { libc::syscall(libc::SYS_ioctl, fd, SIOCATMARK, &raw mut at) };
    done == 0 && at != 0
}

/// The bytes that a socket has received and that were not read.
pub fn unread(fd: RawFd) -> c_int {
    let mut bytes = 0 as c_int;
    // SAFETY: the kernel writes an int.
    unsafe { libc::syscall(libc::SYS_ioctl, fd, libc::FIONREAD, &raw mut bytes) };
    bytes
}

/// Which of `events`, and of those that are always reported, hold now.
pub fn poll_now(fd: RawFd, events: i16) -> i16 {
    poll(fd, events, Some(Duration::ZERO)).unwrap_or(0)
}

/// Waits for `events`; returns none after `limit`.
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

/// Duplicates `fd` to the descriptor `at`, in place of what is open there.
pub fn install(fd: &impl AsRawFd, at: RawFd, on_exec: bool) -> io::Result<()> {
    let flags = if on_exec { libc::O_CLOEXEC } else { 0 };
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_dup3, fd.as_raw_fd(), at, flags) }).map(drop)
}

/// Whether a descriptor is closed by `exec`.
pub fn closes_on_exec(fd: RawFd) -> bool {
    // SAFETY: plain arguments.
    unsafe {
        libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFD) & c_long::from(libc::FD_CLOEXEC) != 0
    }
}

/// The file status flags of a descriptor.
pub fn flags(fd: RawFd) -> io::Result<c_int> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) }).map(|flags| flags as c_int)
}

/// Sets the file status flags.
pub fn set_flags(fd: RawFd, flags: c_int) -> io::Result<()> {
    // SAFETY: plain arguments.
    check(unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETFL, flags) }).map(drop)
}

/// The inode of the socket behind a descriptor; none for other files.
pub fn inode(fd: RawFd) -> Option<Inode> {
    socket_status(fd).map(|status| Inode(status.st_ino))
}

/// The user who has opened the socket behind a descriptor; none for other files.
pub fn owner(fd: RawFd) -> Option<u32> {
    socket_status(fd).map(|status| status.st_uid)
}

fn socket_status(fd: RawFd) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: the place has room for the structure.
    let done = unsafe { libc::fstat(fd, stat.as_mut_ptr()) };
    if done != 0 {
        return None;
    }
    // SAFETY: the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    // Inodes of files are numbered per file system.
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat)
}

/// The descriptors of this process for a socket.
pub fn find(socket: Inode) -> Vec<RawFd> {
    find_all(|found| found == socket)
}

/// The descriptors of this process for the sockets that are `wanted`, in one pass. Unlike
/// `opendir`, this does not call `malloc`, which the signal handler that ends the process may have
/// interrupted.
pub fn find_all(wanted: impl Fn(Inode) -> bool) -> Vec<RawFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(dir) = fs::open(c"/proc/self/fd", flags, Mode::empty()) else { return Vec::new() };
    // The stack may be that of a signal handler.
    let mut room = [MaybeUninit::<u8>::uninit(); 1024];
    let (mut entries, mut found) = (RawDir::new(dir, &mut room), Vec::new());
    while let Some(Ok(entry)) = entries.next() {
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        found.extend(number.filter(|fd: &RawFd| inode(*fd).is_some_and(&wanted)));
    }
    found
}

/// Closes a descriptor of the application.
pub fn close(fd: RawFd) {
    // SAFETY: plain arguments; the application does not need it any more.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

/// Closes the sockets behind these descriptors of the application, of whose end its threads see
/// nothing. The descriptors stay open, on sockets on which nothing comes: another thread may be
/// about to use one, or to close it, and its number must not become that of another file.
pub fn close_sockets(fds: &[RawFd]) {
    let mut silent: [Option<OwnedFd>; 2] = [None, None];
    for fd in fds {
        let nonblocking = flags(*fd).is_ok_and(|flags| flags & libc::O_NONBLOCK != 0);
        let place = &mut silent[usize::from(nonblocking)];
        if place.is_none() {
            *place = silent_socket(nonblocking).ok();
        }
        match place {
            Some(silent) => {
                // SAFETY: plain arguments.
                unsafe { libc::dup3(silent.as_raw_fd(), *fd, libc::O_CLOEXEC) };
            }
            None => close(*fd),
        }
    }
}

/// A socket whose other end stays open until the process is no more, and says nothing.
fn silent_socket(nonblocking: bool) -> io::Result<OwnedFd> {
    let nonblocking = if nonblocking { libc::SOCK_NONBLOCK } else { 0 };
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC | nonblocking;
    let mut ends = [-1; 2];
    // SAFETY: the place has room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()) }.into())?;
    // SAFETY: the descriptor is new, and nothing else owns it; nobody owns the other one.
    Ok(unsafe { OwnedFd::from_raw_fd(ends[0]) })
}

/// Sleeps for `time`, or until a signal.
pub fn pause(time: Duration) {
    // No descriptor, so that only time or a signal ends it.
    let _ = poll(-1, 0, Some(time));
}

impl Inode {
    /// The inode of this number.
    pub fn new(number: u64) -> Self {
        Self(number)
    }

    /// The inode number, unique within the file system of sockets.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Whether a descriptor has an owner that gets its signals (`F_SETOWN`).
pub fn has_owner(fd: RawFd) -> bool {
    // SAFETY: plain arguments.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETOWN) != 0 }
}

/// Whether at most one socket listens at this port.
pub fn is_only_listener(port: u16) -> bool {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
    let lines = tables.iter().flatten().flat_map(|table| table.lines());
    lines.filter(|line| is_listener(line, port)).count() <= 1
}

/// Whether a line of the kernel's table is about a socket that listens at this port.
fn is_listener(line: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let mut words = line.split_whitespace().skip(1);
    let (at, state) = (words.next(), words.nth(1));
    let number = at.and_then(|at| u16::from_str_radix(at.rsplit(':').next()?, 16).ok());
    number == Some(port) && state == Some(LISTEN)
}

/// A new TCP socket, close-on-exec; of IPv4 if `v4`, else of IPv6.
pub fn tcp_socket(v4: bool) -> io::Result<OwnedFd> {
    let family = if v4 { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: plain arguments.
    owned(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) }.into())
}

/// 64 unpredictable bits, by `getrandom`.
pub fn random() -> u64 {
    u64::from_ne_bytes(weft_os::random::random_octets())
}

/// A new eventfd: its reads block, and `exec` closes it.
pub fn event() -> io::Result<OwnedFd> {
    // SAFETY: plain arguments.
    owned(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) }.into())
}

/// Raises an eventfd by one.
pub fn raise(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: eight readable bytes.
    unsafe { libc::write(fd, (&raw const one).cast(), size_of::<u64>()) };
}

/// The number of this thread.
pub fn this_thread() -> libc::pid_t {
    // SAFETY: the call takes nothing.
    unsafe { libc::gettid() }
}

/// Whether a thread of this process has this number.
pub fn is_thread(number: libc::pid_t) -> bool {
    let process = std::process::id();
    // SAFETY: plain arguments; no signal is sent.
    let found = check(unsafe { libc::syscall(libc::SYS_tgkill, process, number, 0) });
    !found.is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH))
}

/// Waits until an eventfd is raised, for `limit` at most. A signal handler ends the wait, without a
/// limit only one without `SA_RESTART`, as in `connect` of the kernel. The thread may be cancelled.
///
/// # Errors
/// `EINTR` then, and `TimedOut` after the limit.
pub fn wait_raised(fd: RawFd, limit: Option<Duration>) -> io::Result<()> {
    if limit.is_some() {
        return wait_for(fd, libc::POLLIN, limit);
    }
    let mut count = 0_u64;
    let count_at = (&raw mut count).cast();
    // SAFETY: eight writable bytes.
    let read = sleeping(|| unsafe { libc::read(fd, count_at, size_of::<u64>()) });
    check(read as c_long).map(drop)
}

/// Waits until a socket can be written to, or has failed, for `limit` at most.
///
/// # Errors
/// As of [`wait_raised`].
pub fn wait_writable(fd: RawFd, limit: Duration) -> io::Result<()> {
    wait_for(fd, libc::POLLOUT, Some(limit))
}

fn wait_for(fd: RawFd, events: libc::c_short, limit: Option<Duration>) -> io::Result<()> {
    let ready = sleeping(|| poll(fd, events, limit))?;
    if ready == 0 { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
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

    #[test]
    fn all_descriptors_of_several_sockets_are_found_in_one_pass() {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let again = one.try_clone().unwrap();
        let wanted = [&one, &other].map(|socket| inode(socket.as_raw_fd()).unwrap());
        let mut found = find_all(|socket| wanted.contains(&socket));
        found.sort_unstable();
        let mut all = [&one, &other, &again].map(AsRawFd::as_raw_fd);
        all.sort_unstable();
        assert_eq!(found, all);
    }

    #[test]
    fn the_descriptors_of_closed_sockets_stay_open() {
        let (here, there) = std::os::unix::net::UnixStream::pair().unwrap();
        let socket = inode(here.as_raw_fd()).unwrap();
        close_sockets(&find(socket));
        assert_eq!(std::io::Read::read(&mut &there, &mut [0]).unwrap(), 0, "it is closed");
        assert!(find(socket).is_empty());
        // Panics on a descriptor that is closed already.
        drop(here);
    }
}
