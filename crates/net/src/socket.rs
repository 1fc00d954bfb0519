//! The few socket calls that the standard library does not offer: unconnected stream sockets,
//! non-blocking connects, a backlog, and options.
//!
//! Every descriptor made here is non-blocking, close-on-exec and out of the low numbers that
//! programs use for `select`.
#![allow(unsafe_code)]

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::ptr;

use libc::{c_int, socklen_t};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use weft_os::fds;
use weft_os::options::{set_option, set_value};

/// Silence after which TCP asks whether the peer is still there.
const KEEPALIVE_IDLE_S: c_int = 30;
/// Time between two such questions.
const KEEPALIVE_INTERVAL_S: c_int = 10;
/// Questions without an answer after which the connection is over.
const KEEPALIVE_PROBES: c_int = 3;

/// A datagram socket keeps a port of the UDP space; a stream socket is for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP.
    Stream,
    /// UDP.
    Datagram,
}

/// How far a non-blocking connect got at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialed {
    /// Connected.
    Done,
    /// The peer has yet to answer.
    InProgress,
}

/// Opens a socket of the family of `addr`.
pub fn open(addr: &SocketAddr, kind: SocketKind) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = match kind {
        SocketKind::Stream => libc::SOCK_STREAM,
        SocketKind::Datagram => libc::SOCK_DGRAM,
    };
    // SAFETY: socket takes integers only.
    let raw = unsafe { libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    check(raw)?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    Ok(fds::high(fd))
}

/// Binds to a local address. A port that only connections of the past still hold is taken over;
/// one that another socket is bound to is not, unless both allow it (`shared`).
pub fn bind(fd: BorrowedFd, addr: &SocketAddr, shared: bool) -> io::Result<()> {
    set_reuse(fd, shared)?;
    let first = bind_raw(fd, addr);
    let in_use = matches!(&first, Err(e) if e.raw_os_error() == Some(libc::EADDRINUSE));
    if shared || !in_use {
        return first;
    }
    set_reuse(fd, true)?;
    let second = bind_raw(fd, addr);
    set_reuse(fd, false)?;
    second
}

fn bind_raw(fd: BorrowedFd, addr: &SocketAddr) -> io::Result<()> {
    let raw = RawAddr::from(addr);
    let (raw_fd, addr, len) = (fd.as_raw_fd(), raw.as_ptr(), raw.len());
    // Not `bind`, for which this library or another one may have a definition of its own.
    // SAFETY: the address is a whole sockaddr of the length given.
    let result = unsafe { libc::syscall(libc::SYS_bind, raw_fd, addr, len) };
    check(result as libc::c_int)
}

/// Starts to connect, unless that is done or under way. The first call after a refusal only
/// clears it away.
pub fn connect(fd: BorrowedFd, addr: &SocketAddr) -> io::Result<Dialed> {
    match connect_once(fd, addr) {
        Err(e) if e.raw_os_error() == Some(libc::ECONNABORTED) => connect_once(fd, addr),
        Err(e) if e.raw_os_error() == Some(libc::EISCONN) => Ok(Dialed::Done),
        Err(e) if e.raw_os_error() == Some(libc::EALREADY) => Ok(Dialed::InProgress),
        other => other,
    }
}

fn connect_once(fd: BorrowedFd, addr: &SocketAddr) -> io::Result<Dialed> {
    let raw = RawAddr::from(addr);
    // SAFETY: the address is a whole sockaddr of the length given.
    let result = check(unsafe { libc::connect(fd.as_raw_fd(), raw.as_ptr(), raw.len()) });
    match result {
        Ok(()) => Ok(Dialed::Done),
        Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => Ok(Dialed::InProgress),
        Err(e) => Err(e),
    }
}

/// Whether `ip` is a host's own, not that of a group or of all hosts of a network.
pub fn is_of_host(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(v4) => !v4.is_multicast() && !is_broadcast(v4),
        IpAddr::V6(v6) => !v6.is_multicast(),
    }
}

/// Whether sockets of this host can have the address `ip` now.
///
/// # Errors
/// `EADDRNOTAVAIL` if it is another host's or stands for several, or what the system says to it.
pub fn check_local(ip: IpAddr) -> io::Result<()> {
    if ip.to_canonical().is_unspecified() || !is_of_host(ip) {
        return Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL));
    }
    UdpSocket::bind((ip, 0)).map(drop)
}

/// The system says so when a socket that may not broadcast is connected. In an address that means
/// all hosts of a network two bits at least stand for the host, which are ones.
fn is_broadcast(v4: Ipv4Addr) -> bool {
    let may_be = v4.to_bits() & 3 == 3;
    let to = SocketAddr::from((v4, 1));
    let connected = || connect_once(open(&to, SocketKind::Datagram)?.as_fd(), &to);
    may_be && connected().is_err_and(|e| e.raw_os_error() == Some(libc::EACCES))
}

/// Lets peers connect. Connections inherit that their address may be reused once they are over.
pub fn listen(fd: BorrowedFd, backlog: usize) -> io::Result<()> {
    set_reuse(fd, true)?;
    let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
    // Not `listen`, which an application that knows no other sockets may have a function named.
    // SAFETY: listen takes integers only.
    let result = unsafe { libc::syscall(libc::SYS_listen, fd.as_raw_fd(), backlog) };
    check(result as libc::c_int)
}

/// A Unix socket that listens at `path`, made without the functions of the C library: see
/// [`listen`].
pub fn listen_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::bind(&fd, &SocketAddrUnix::new(path)?)?;
    net::listen(&fd, libc::SOMAXCONN)?;
    Ok(fd)
}

/// Whether somebody waits to be accepted. Where the limit of descriptors is too low to ask, it is
/// taken to be so.
pub fn is_called(listener: BorrowedFd) -> bool {
    let mut polled = [PollFd::new(&listener, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())) != Ok(0)
}

/// Whether the process or the system has no descriptor or memory left for now.
pub fn is_exhausted(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}

/// Takes the next stream that waits, if there is memory for a connection.
pub fn accept(fd: BorrowedFd) -> io::Result<OwnedFd> {
    if weft_memory::is_short() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let (addr, len) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the peer's address is not asked for.
    let raw = unsafe { libc::accept4(fd.as_raw_fd(), addr, len, flags) };
    check(raw)?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    let stream = unsafe { OwnedFd::from_raw_fd(raw) };
    Ok(fds::high(stream))
}

/// Sends what a socket takes of `bytes` without waiting, and without the signal that a peer which
/// has gone would cause; how much that was.
pub fn send_quietly(fd: BorrowedFd, bytes: &[u8]) -> io::Result<usize> {
    let flags = rustix::net::SendFlags::DONTWAIT | rustix::net::SendFlags::NOSIGNAL;
    Ok(rustix::net::send(fd, bytes, flags)?)
}

/// What every connection has, as far as the system lets it: no delay for small frames, and probes
/// that find a dead peer.
pub fn prepare_stream(stream: &TcpStream) {
    for (level, option, value) in [
        (libc::IPPROTO_TCP, libc::TCP_NODELAY, 1),
        (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
        (libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, KEEPALIVE_IDLE_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S),
        (libc::IPPROTO_TCP, libc::TCP_KEEPCNT, KEEPALIVE_PROBES),
    ] {
        let _slower_without = set_int(stream.as_fd(), level, option, value);
    }
}

/// Has a stream reset when it is closed.
pub fn reset_on_close(fd: BorrowedFd) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    done(set_value(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger))
}

/// Binds a datagram socket beside `first`, to an address that this one is bound to or that is
/// among those, and connects it to `peer`: what comes from there is its own from then on. Nobody
/// else may change meanwhile whether the address of `first` is `shared`.
pub fn beside(
    (first, shared): (BorrowedFd, bool),
    local: &SocketAddr,
    peer: &SocketAddr,
) -> io::Result<OwnedFd> {
    let fd = open(local, SocketKind::Datagram)?;
    // It stays allowed for this one, so that others may listen there once `first` is gone.
    set_reuse(fd.as_fd(), true)?;
    set_reuse(first, true)?;
    let bound = bind_raw(fd.as_fd(), local);
    let closed = set_reuse(first, shared);
    bound?;
    closed?;
    connect_once(fd.as_fd(), peer)?;
    Ok(fd)
}

/// Allows others to bind to the address of a socket that is there to stay.
pub fn share(fd: BorrowedFd) -> io::Result<()> {
    set_reuse(fd, true)
}

/// Sets the type of service (RFC 2474) of what is sent.
pub fn set_tos(fd: BorrowedFd, v6: bool, tos: u8) -> io::Result<()> {
    let (level, option) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    set_int(fd, level, option, c_int::from(tos))
}

/// Says whether an IPv6 wildcard also means IPv4.
pub fn set_v6_only(fd: BorrowedFd, only: bool) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, c_int::from(only))
}

/// Leaves the choice of a port to connect, which may reuse one that is bound elsewhere, where the
/// system can.
pub fn defer_port(fd: BorrowedFd) {
    let _bound_at_once = set_int(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
}

/// Lets it be bound to addresses that the machine does not have, where the system knows that.
pub fn bind_anywhere(fd: BorrowedFd) {
    let _older_kernels_refuse = set_int(fd, libc::SOL_IPV6, libc::IPV6_FREEBIND, 1);
    let _of_one_family = set_int(fd, libc::SOL_IP, libc::IP_FREEBIND, 1);
}

fn set_reuse(fd: BorrowedFd, on: bool) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, c_int::from(on))
}

fn set_int(fd: BorrowedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    done(set_option(fd, level, option, value))
}

/// What the system says of a call that was just made.
fn done(worked: bool) -> io::Result<()> {
    if worked { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The local address of a socket, whatever its kind.
pub fn local_addr(fd: BorrowedFd) -> io::Result<SocketAddr> {
    // getsockname does not care what the socket is, so a second descriptor seen as a stream does.
    TcpStream::from(fd.try_clone_to_owned()?).local_addr()
}

/// Where a socket is connected.
///
/// # Errors
/// `ENOTCONN` if it is not.
pub fn peer_addr(fd: BorrowedFd) -> io::Result<SocketAddr> {
    // As above.
    TcpStream::from(fd.try_clone_to_owned()?).peer_addr()
}

/// Why a route was not found.
pub enum NoRoute {
    /// The source address is none of this machine's.
    Source(io::Error),
    /// Nothing leads to the destination.
    Destination(io::Error),
}

/// The address that packets to `dst` leave from, and `dst` itself as the system understands it
/// (the wildcard address means this machine). Sends nothing.
pub fn route(src: SocketAddr, dst: SocketAddr) -> Result<(SocketAddr, SocketAddr), NoRoute> {
    let mut src = src;
    src.set_port(0);
    let probe = UdpSocket::bind(src).map_err(NoRoute::Source)?;
    // A datagram socket connected to port 0 counts as unconnected, and has no peer address.
    let mut target = dst;
    if target.port() == 0 {
        target.set_port(1);
    }
    probe.connect(target).map_err(NoRoute::Destination)?;
    let mut from = probe.local_addr().map_err(NoRoute::Destination)?;
    let mut to = probe.peer_addr().map_err(NoRoute::Destination)?;
    from.set_port(0);
    to.set_port(dst.port());
    Ok((from, to))
}

fn check(result: c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket address in the system's form.
enum RawAddr {
    V4(libc::sockaddr_in),
    V6(libc::sockaddr_in6),
}

impl From<&SocketAddr> for RawAddr {
    fn from(addr: &SocketAddr) -> RawAddr {
        match addr {
            SocketAddr::V4(v4) => RawAddr::V4(libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            }),
            SocketAddr::V6(v6) => RawAddr::V6(libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            }),
        }
    }
}

impl RawAddr {
    fn as_ptr(&self) -> *const libc::sockaddr {
        match self {
            RawAddr::V4(v4) => (&raw const *v4).cast(),
            RawAddr::V6(v6) => (&raw const *v6).cast(),
        }
    }

    fn len(&self) -> socklen_t {
        match self {
            RawAddr::V4(_) => size_of::<libc::sockaddr_in>() as socklen_t,
            RawAddr::V6(_) => size_of::<libc::sockaddr_in6>() as socklen_t,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any() -> SocketAddr {
        "127.0.0.1:0".parse().unwrap()
    }

    #[test]
    fn a_bound_port_is_not_shared_unless_both_sides_agree() {
        let first = open(&any(), SocketKind::Stream).unwrap();
        bind(first.as_fd(), &any(), false).unwrap();
        let addr = local_addr(first.as_fd()).unwrap();
        for shared in [false, true] {
            let second = open(&addr, SocketKind::Stream).unwrap();
            let error = bind(second.as_fd(), &addr, shared).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
        }
    }

    #[test]
    fn two_that_share_may_both_bind_and_one_may_listen() {
        let first = open(&any(), SocketKind::Stream).unwrap();
        bind(first.as_fd(), &any(), true).unwrap();
        let addr = local_addr(first.as_fd()).unwrap();
        let second = open(&addr, SocketKind::Stream).unwrap();
        bind(second.as_fd(), &addr, true).unwrap();
        listen(first.as_fd(), 1).unwrap();
        let error = listen(second.as_fd(), 1).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EADDRINUSE));
    }

    #[test]
    fn what_connects_already_goes_on() {
        let listener = open(&any(), SocketKind::Stream).unwrap();
        bind(listener.as_fd(), &any(), false).unwrap();
        listen(listener.as_fd(), 0).unwrap();
        let addr = local_addr(listener.as_fd()).unwrap();
        // The queue has room for one or two; those after them are not answered.
        let callers: Vec<_> = (0..4).map(|_| open(&any(), SocketKind::Stream).unwrap()).collect();
        let twice = |fd: &OwnedFd| [(); 2].map(|()| connect(fd.as_fd(), &addr).unwrap());
        let outcomes: Vec<_> = callers.iter().map(twice).collect();
        assert!(outcomes.contains(&[Dialed::InProgress; 2]), "{outcomes:?}");
    }

    #[test]
    fn a_port_can_be_bound_again_while_its_old_connections_fade() {
        let first = open(&any(), SocketKind::Stream).unwrap();
        bind(first.as_fd(), &any(), false).unwrap();
        listen(first.as_fd(), 1).unwrap();
        let addr = local_addr(first.as_fd()).unwrap();
        let client = TcpStream::connect(addr).unwrap();
        let listener = std::net::TcpListener::from(first);
        let accepted = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(e) => assert_eq!(e.kind(), io::ErrorKind::WouldBlock),
            }
        };
        // The side that closes first keeps the address for a while.
        drop(accepted);
        drop(client);
        drop(listener);
        let again = open(&addr, SocketKind::Stream).unwrap();
        bind(again.as_fd(), &addr, false).unwrap();
        listen(again.as_fd(), 1).unwrap();
    }

    #[test]
    fn a_route_to_this_machine_has_its_own_source() {
        let unspecified = "0.0.0.0:0".parse().unwrap();
        let (from, to) =
            route(unspecified, "127.0.0.1:7".parse().unwrap()).ok().expect("loopback has a route");
        assert_eq!(from, any());
        assert_eq!(to, "127.0.0.1:7".parse().unwrap());
        let (_, to) = route(unspecified, "0.0.0.0:0".parse().unwrap()).ok().expect("this machine");
        assert_eq!(to, any());
    }

    #[test]
    fn a_foreign_source_address_is_the_callers_fault() {
        let foreign = "192.0.2.1:0".parse().unwrap();
        let result = route(foreign, "127.0.0.1:7".parse().unwrap());
        assert!(matches!(result, Err(NoRoute::Source(_))));
    }
}
