//! The kernel's table of TCP and UDP sockets, queried by address (`sock_diag(7)`).
//!
//! The kernel looks a socket up as it does for a packet, in the network namespace of this process.
//! So the answer says which listener a connect from here reaches, whatever else is bound, whether
//! the other end of a connection is a socket of this host, and which user has opened it.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;
use weft_os::users;

use crate::address;
use crate::names::SocketEnds;
use crate::sys::{self, Inode};

/// A request, and an answer, of this kind.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// States of TCP, as the kernel numbers them.
const ESTABLISHED: u8 = 1;
const LISTEN: u8 = 10;
const ALL_STATES: [u8; 4] = [u8::MAX; 4];
/// A cookie that fits every socket.
const NO_COOKIE: [u8; 8] = [u8::MAX; 8];
/// Room for an answer in bytes; nothing that is optional was requested.
const ANSWER_BYTES: usize = 1024;

/// Bytes of `nlmsghdr` and `inet_diag_req_v2`.
const REQUEST_BYTES: u32 = 72;
/// Where an answer (`nlmsghdr` and `inet_diag_msg`) has its kind, and the socket's
/// family, state, local port, user and inode.
const KIND_AT: usize = 4;
const FAMILY_AT: usize = 16;
const STATE_AT: usize = 17;
const PORT_AT: usize = 20;
const USER_AT: usize = 80;
const INODE_AT: usize = 84;

/// A listener in the table.
pub struct LocalListener {
    /// The inode of its socket.
    pub inode: Inode,
    /// Whether its socket is one of IPv6, which may take connections of IPv4 too.
    pub is_ipv6: bool,
}

/// A socket in the table.
#[derive(Debug, PartialEq, Eq)]
struct TableEntry {
    family: u8,
    state: u8,
    port: u16,
    user: u32,
    inode: u32,
}

/// Access to the table.
pub struct SocketDiag(OwnedFd);

impl SocketDiag {
    /// Opens it.
    ///
    /// # Errors
    /// Without descriptors, or on a system that hides it.
    pub fn open() -> io::Result<Self> {
        sys::diag_socket().map(Self)
    }

    /// The listener of this network namespace that a connect to `remote` reaches, if that is an
    /// address of this host.
    pub fn listener(&self, remote: SocketAddr) -> Option<LocalListener> {
        let nobody = SocketAddr::new(any(remote.ip()), 0);
        let ends = SocketEnds { local: remote, remote: nobody };
        let TableEntry { family, state, inode, .. } = self.find(libc::IPPROTO_TCP, &ends)?;
        let is_ipv6 = i32::from(family) == libc::AF_INET6;
        let listener = || LocalListener { inode: Inode::new(inode.into()), is_ipv6 };
        (state == LISTEN && inode != 0).then(listener)
    }

    /// Whether the peer of the TCP connection from `local` to `remote` is a socket of this network
    /// namespace, which waits to be accepted or was.
    pub fn is_peer_here(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        let peer = SocketEnds { local: remote, remote: local };
        self.find(libc::IPPROTO_TCP, &peer).is_some_and(|socket| socket.state == ESTABLISHED)
    }

    /// Whether there is a TCP socket of this network namespace between `ends`, whatever its state
    /// and whether or not it was accepted.
    pub fn has_connection(&self, ends: &SocketEnds) -> bool {
        self.find(libc::IPPROTO_TCP, ends).is_some_and(|socket| socket.state != LISTEN)
    }

    /// The open TCP or UDP socket of this network namespace between `ends`. A UDP socket need not
    /// be connected. None where a user other than one that is known here has it, since all unknown
    /// users look the same.
    pub fn owner(&self, protocol: c_int, ends: &SocketEnds) -> Option<u32> {
        let TableEntry { state, port, user, inode, .. } = self.find(protocol, ends)?;
        // The kernel says 0 for the user of a socket that was closed, which has no inode.
        let is_open = inode != 0 && state != LISTEN && port == ends.local.port();
        (is_open && !users::is_overflow(user)).then_some(user)
    }

    /// The socket between `ends`, or the one without a peer that a packet from there would be for.
    fn find(&self, protocol: c_int, ends: &SocketEnds) -> Option<TableEntry> {
        let request = request(protocol, ends);
        sys::send(self.0.as_raw_fd(), &request, 0).ok()?;
        // The kernel has answered by the time that it has taken the request.
        let mut answer = [0; ANSWER_BYTES];
        let count = sys::receive(self.0.as_raw_fd(), &mut answer, 0).ok()?;
        parse(answer.get(..count)?)
    }
}

fn any(like: IpAddr) -> IpAddr {
    match like.to_canonical() {
        IpAddr::V4(_) => IpAddr::from([0; 4]),
        IpAddr::V6(_) => IpAddr::from([0; 16]),
    }
}

/// A request for the socket between `ends`.
fn request(protocol: c_int, ends: &SocketEnds) -> Vec<u8> {
    let (local, remote) = (address::plain(ends.local), address::plain(ends.remote));
    let scope_of = |at| if let SocketAddr::V6(v6) = at { v6.scope_id() } else { 0 };
    let scope = [local, remote].into_iter().map(scope_of).find(|scope| *scope != 0).unwrap_or(0);
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // For UDP the kernel takes the two addresses the other way round.
    let (first, second) =
        if protocol == libc::IPPROTO_UDP { (remote, local) } else { (local, remote) };
    let mut request = REQUEST_BYTES.to_ne_bytes().to_vec();
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Its number and its sender are the kernel's business.
    request.extend([0; 8]);
    // Nothing optional is requested.
    request.extend([family as u8, protocol as u8, 0, 0]);
    request.extend(ALL_STATES);
    request.extend(first.port().to_be_bytes());
    request.extend(second.port().to_be_bytes());
    request.extend(padded(first.ip()));
    request.extend(padded(second.ip()));
    request.extend(scope.to_ne_bytes());
    request.extend(NO_COOKIE);
    request
}

/// An address as the table has it: IPv4 in the first four bytes.
fn padded(ip: IpAddr) -> [u8; 16] {
    let mut bytes = [0; 16];
    match ip {
        IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes = v6.octets(),
    }
    bytes
}

/// The socket in an answer.
fn parse(answer: &[u8]) -> Option<TableEntry> {
    let kind = answer.get(KIND_AT..)?.first_chunk()?;
    let word = |at| Some(u32::from_ne_bytes(*answer.get(at..)?.first_chunk()?));
    let entry = TableEntry {
        family: *answer.get(FAMILY_AT)?,
        state: *answer.get(STATE_AT)?,
        port: u16::from_be_bytes(*answer.get(PORT_AT..)?.first_chunk()?),
        user: word(USER_AT)?,
        inode: word(INODE_AT)?,
    };
    (u16::from_ne_bytes(*kind) == SOCK_DIAG_BY_FAMILY).then_some(entry)
}

#[cfg(test)]
mod tests {
    use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};

    use super::*;

    #[test]
    fn a_listener_and_an_accepted_connection_are_found() {
        let places = [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
        ];
        for (at, to) in places {
            let listener = TcpListener::bind(at).unwrap();
            let port = listener.local_addr().unwrap().port();
            let to = SocketAddr::new(to.parse().unwrap(), port);
            let diag = SocketDiag::open().unwrap();
            let found = diag.listener(to).unwrap();
            assert_eq!(Some(found.inode), sys::inode(listener.as_raw_fd()));
            assert_eq!(found.is_ipv6, at.starts_with('['));
            let stream = TcpStream::connect(to).unwrap();
            let local = stream.local_addr().unwrap();
            assert!(diag.is_peer_here(local, to));
            assert!(!diag.is_peer_here(SocketAddr::new(local.ip(), port), to));
            drop(listener);
            assert!(diag.listener(to).is_none());
        }
    }

    #[test]
    fn an_open_socket_has_an_owner_and_a_closed_one_has_none() {
        let diag = SocketDiag::open().unwrap();
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).unwrap();
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (accepted, local) = listener.accept().unwrap();
            let ends = SocketEnds { local, remote: listener.local_addr().unwrap() };
            assert_eq!(diag.owner(libc::IPPROTO_TCP, &ends), Some(weft_os::sys::user()));
            let of_peer = SocketEnds { local: ends.remote, remote: ends.local };
            assert!(diag.has_connection(&of_peer));
            // It goes on as a socket that no process has, until its peer ends too.
            stream.shutdown(Shutdown::Write).unwrap();
            drop(stream);
            assert_eq!(diag.owner(libc::IPPROTO_TCP, &ends), None);
            drop((accepted, listener));
            assert_eq!(diag.owner(libc::IPPROTO_TCP, &ends), None);
        }
    }

    #[test]
    fn a_listener_at_the_port_of_a_caller_is_not_the_caller() {
        let diag = SocketDiag::open().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let remote = SocketAddr::from(([127, 0, 0, 1], 9));
        let ends = SocketEnds { local: listener.local_addr().unwrap(), remote };
        assert_eq!(diag.owner(libc::IPPROTO_TCP, &ends), None);
        assert!(!diag.has_connection(&ends));
    }

    #[test]
    fn a_socket_for_datagrams_is_found_by_where_it_sends_from() {
        let diag = SocketDiag::open().unwrap();
        for (server, any) in [("127.0.0.1:0", "0.0.0.0:0"), ("[::1]:0", "[::]:0")] {
            let server = UdpSocket::bind(server).unwrap();
            let remote = server.local_addr().unwrap();
            for connects in [false, true] {
                let caller = UdpSocket::bind(any).unwrap();
                let local = SocketAddr::new(remote.ip(), caller.local_addr().unwrap().port());
                if connects {
                    caller.connect(remote).unwrap();
                }
                let ends = SocketEnds { local, remote };
                assert_eq!(diag.owner(libc::IPPROTO_UDP, &ends), Some(weft_os::sys::user()));
                drop(caller);
                assert_eq!(diag.owner(libc::IPPROTO_UDP, &ends), None);
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_nothing() {
        let mut answer = [0; INODE_AT + 4];
        assert_eq!(parse(&answer), None);
        answer[KIND_AT..KIND_AT + 2].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        let empty = TableEntry { family: 0, state: 0, port: 0, user: 0, inode: 0 };
        assert_eq!(parse(&answer), Some(empty));
        assert_eq!(parse(&answer[..answer.len() - 1]), None);
        let some = SocketAddr::from(([127, 0, 0, 1], 80));
        let ends = SocketEnds { local: some, remote: some };
        assert_eq!(request(libc::IPPROTO_TCP, &ends).len(), REQUEST_BYTES as usize);
    }
}
