//! The kernel's table of TCP sockets, queried by address (`sock_diag(7)`).
//!
//! The kernel looks a socket up as it does for a packet, in the network namespace of this process.
//! So the answer says which listener a connect from here reaches, whatever else is bound, and
//! whether the other end of a connection is a socket of this host.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::address;
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
/// family, state and inode.
const KIND_AT: usize = 4;
const FAMILY_AT: usize = 16;
const STATE_AT: usize = 17;
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
        let TableEntry { family, state, inode } = self.find(remote, nobody)?;
        let is_ipv6 = i32::from(family) == libc::AF_INET6;
        let listener = || LocalListener { inode: Inode::new(inode.into()), is_ipv6 };
        (state == LISTEN && inode != 0).then(listener)
    }

    /// Whether the peer of the TCP connection from `local` to `remote` is a socket of this network
    /// namespace, which waits to be accepted or was.
    pub fn is_peer_here(&self, local: SocketAddr, remote: SocketAddr) -> bool {
        self.find(remote, local).is_some_and(|socket| socket.state == ESTABLISHED)
    }

    /// The socket between `local` and `remote`, or the listener that a packet from there would be
    /// for.
    fn find(&self, local: SocketAddr, remote: SocketAddr) -> Option<TableEntry> {
        let request = request(address::plain(local), address::plain(remote));
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

/// A request for the socket between `local` and `remote`, or the listener at `local`.
fn request(local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let scope = if let SocketAddr::V6(v6) = local { v6.scope_id() } else { 0 };
    let family = if local.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let mut request = REQUEST_BYTES.to_ne_bytes().to_vec();
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Its number and its sender are the kernel's business.
    request.extend([0; 8]);
    // Nothing optional is requested.
    request.extend([family as u8, libc::IPPROTO_TCP as u8, 0, 0]);
    request.extend(ALL_STATES);
    request.extend(local.port().to_be_bytes());
    request.extend(remote.port().to_be_bytes());
    request.extend(padded(local.ip()));
    request.extend(padded(remote.ip()));
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
    let inode = u32::from_ne_bytes(*answer.get(INODE_AT..)?.first_chunk()?);
    let (family, state) = (*answer.get(FAMILY_AT)?, *answer.get(STATE_AT)?);
    let is_found = u16::from_ne_bytes(*kind) == SOCK_DIAG_BY_FAMILY;
    is_found.then_some(TableEntry { family, state, inode })
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

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
            let listener = std::net::TcpListener::bind(at).unwrap();
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
    fn what_is_no_answer_is_nothing() {
        let mut answer = [0; INODE_AT + 4];
        assert_eq!(parse(&answer), None);
        answer[KIND_AT..KIND_AT + 2].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        assert_eq!(parse(&answer), Some(TableEntry { family: 0, state: 0, inode: 0 }));
        assert_eq!(parse(&answer[..answer.len() - 1]), None);
        let some = SocketAddr::from(([127, 0, 0, 1], 80));
        assert_eq!(request(some, some).len(), REQUEST_BYTES as usize);
    }
}
