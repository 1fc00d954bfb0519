//! Sockets that hold the address of an id: one port, in TCP and in UDP.
//!
//! A connection that a listener grants over UDP gets a socket of its own at that port, connected to
//! its peer ([`crate::shuttle_listener`]): the kernel finds whom a datagram is for, and a firewall
//! needs one rule.
//!
//! Invariant: where both sockets exist, they are bound to the same address and port.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use weft_host::CmTransport;
use weft_net::lane::rendezvous::{self, LaneListener};
use weft_net::ports::PortBounds;
use weft_net::report;
use weft_net::socket::{self, SocketKind};
use weft_os::clock::{self, Moment};

use crate::config;
use crate::device::PortSpace;

/// How sockets are opened and bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Manners {
    /// Others that allow it too may be bound to the same address.
    pub shared: bool,
    /// Which ports are taken where the application names none.
    pub ports: PortBounds,
    /// Whether the IPv6 wildcard excludes IPv4.
    pub v6_only: Option<bool>,
}

/// Bound sockets that nobody uses yet.
#[derive(Default)]
pub(crate) struct Sockets {
    pub stream: Option<OwnedFd>,
    /// Since when the stream is connected to the peer that is to be called, if it is.
    pub connected: Option<Moment>,
    pub datagram: Option<OwnedFd>,
}

impl Sockets {
    /// Binds what an id of this port space and transport needs to `addr`; port 0 means a number
    /// that is free for all of it.
    ///
    /// Where another socket has the port in TCP or in UDP, an id that may use either makes do with
    /// the other one.
    ///
    /// # Errors
    /// What the system says; `EADDRNOTAVAIL` for a port that is taken if either side has it by the
    /// wildcard, as the kernel's rdma-cm has it.
    pub fn bind(
        addr: SocketAddr,
        space: PortSpace,
        transport: CmTransport,
        manners: Manners,
    ) -> io::Result<Self> {
        Self::bind_all(addr, space, transport, manners).map_err(|error| {
            let kind = match (space, transport) {
                (PortSpace::Tcp, CmTransport::Iwarp) => SocketKind::Stream,
                _ => SocketKind::Datagram,
            };
            let wildcard = || addr.ip().to_canonical().is_unspecified() || has_wildcard(kind, addr);
            if is_taken(&error) && wildcard() {
                io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)
            } else {
                error
            }
        })
    }

    fn bind_all(
        addr: SocketAddr,
        space: PortSpace,
        transport: CmTransport,
        manners: Manners,
    ) -> io::Result<Self> {
        if space == PortSpace::Udp || transport == CmTransport::Shuttle {
            let datagram = Some(open_bound(SocketKind::Datagram, &addr, manners)?);
            return Ok(Self { datagram, ..Self::default() });
        }
        let mut tries = config::NUMBER_TRIES;
        loop {
            let stream = match open_bound(SocketKind::Stream, &addr, manners) {
                Err(e) if is_taken(&e) && transport == CmTransport::Auto && addr.port() != 0 => {
                    let datagram = Some(open_bound(SocketKind::Datagram, &addr, manners)?);
                    return Ok(Self { datagram, ..Self::default() });
                }
                stream => stream?,
            };
            let at = socket::local_addr(stream.as_fd())?;
            if transport == CmTransport::Iwarp || at.port() == 0 {
                return Ok(Self { stream: Some(stream), ..Self::default() });
            }
            let datagram = open_bound(SocketKind::Datagram, &at, manners);
            tries -= 1;
            match datagram {
                Err(e) if is_taken(&e) && addr.port() == 0 && tries > 0 => {}
                Err(e) if !is_taken(&e) => return Err(e),
                datagram => {
                    let (stream, datagram) = (Some(stream), datagram.ok());
                    return Ok(Self { stream, connected: None, datagram });
                }
            }
        }
    }

    /// Listens for streams, and if `permitted` for lanes in their place. Where another socket does
    /// so at this port already, datagrams must do, if there are any.
    pub fn listen(&mut self, permitted: bool) -> io::Result<Option<LaneListener>> {
        let Some(stream) = &self.stream else { return Ok(None) };
        match rendezvous::listen(stream.as_fd(), config::BACKLOG_MAX, permitted) {
            Err(e) if is_taken(&e) && self.datagram.is_some() => {
                self.stream = None;
                Ok(None)
            }
            listening => listening,
        }
    }

    /// Says that a listener which is to serve both transports serves only one.
    pub fn warn_of_lack(&self, at: SocketAddr) {
        let (taken, served, lost) = match (&self.stream, &self.datagram) {
            (None, Some(_)) => ("TCP", "Shuttle (weft0)", "iWARP"),
            (Some(_), None) => ("UDP", "iWARP (weft_iw0)", "Shuttle"),
            _ => return,
        };
        report::warning(format!(
            "rdma-cm listens at {at} by {served} alone: another socket has the {taken} port, so \
             peers over {lost} do not reach this listener"
        ));
    }

    /// The address that they are bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.all().next() {
            Some(fd) => socket::local_addr(fd),
            None => Ok((Ipv4Addr::UNSPECIFIED, 0).into()),
        }
    }

    /// Ends the stream, in such a way that its number is free at once.
    pub fn give_stream_up(&mut self) {
        if let Some(stream) = self.stream.take() {
            let _it_only_frees_the_number_later = socket::reset_on_close(stream.as_fd());
        }
        self.connected = None;
    }

    /// Takes the stream, unless it has been connected for so long that the peer, which has heard
    /// nothing on it, may have ended it.
    pub fn take_fresh_stream(&mut self) -> Option<OwnedFd> {
        let stale = |since: Moment| clock::now() >= since + config::SILENT_STREAM_MAX;
        if self.connected.take().is_some_and(stale) {
            self.give_stream_up();
        }
        self.stream.take()
    }

    /// Each of them.
    pub fn all(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.stream.iter().chain(&self.datagram).map(AsFd::as_fd)
    }
}

fn open_bound(kind: SocketKind, addr: &SocketAddr, manners: Manners) -> io::Result<OwnedFd> {
    let fd = open(kind, addr, manners)?;
    match manners.ports.bind(fd.as_fd(), addr, manners.shared) {
        Err(e)
            if kind == SocketKind::Stream
                && addr.port() == 0
                && manners.ports == PortBounds::NONE
                && is_taken(&e) =>
        {
            // Every free port is spoken for, but not for every destination.
            socket::defer_port(fd.as_fd());
            socket::bind(fd.as_fd(), addr, manners.shared)?;
        }
        other => other?,
    }
    Ok(fd)
}

/// Opens a socket that is to be bound to `addr`.
pub(crate) fn open(kind: SocketKind, addr: &SocketAddr, manners: Manners) -> io::Result<OwnedFd> {
    let fd = socket::open(addr, kind)?;
    if let (true, Some(only)) = (addr.is_ipv6(), manners.v6_only) {
        socket::set_v6_only(fd.as_fd(), only)?;
    }
    Ok(fd)
}

/// Whether who has the port of `addr` has it by the wildcard: then it is taken under addresses,
/// too, that nobody has.
fn has_wildcard(kind: SocketKind, addr: SocketAddr) -> bool {
    // The wildcard of IPv6 takes both families, unless it was to leave IPv4 to others.
    let v4 = (Ipv4Addr::new(127, 255, 255, 254), addr.port()).into();
    let v6 = (Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1), addr.port()).into();
    is_refused(kind, v4) || addr.is_ipv6() && is_refused(kind, v6)
}

/// Whether another socket keeps one from `addr`, which need not be an address of this machine.
fn is_refused(kind: SocketKind, addr: SocketAddr) -> bool {
    let bound = open(kind, &addr, Manners::default()).and_then(|fd| {
        socket::bind_anywhere(fd.as_fd());
        socket::bind(fd.as_fd(), &addr, false)
    });
    matches!(bound, Err(e) if is_taken(&e))
}

fn is_taken(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EADDRINUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn bind(addr: SocketAddr) -> Sockets {
        Sockets::bind(addr, PortSpace::Tcp, CmTransport::Auto, Manners::default()).unwrap()
    }

    /// A socket of one port space, at a port of the kernel's choice, and what binds to that port in
    /// both: another process may have it in the other space, and then another one is tried.
    fn beside<T>(take: impl Fn() -> (T, SocketAddr)) -> (T, SocketAddr, Sockets) {
        let mut tries = std::iter::repeat_with(|| {
            let (other, at) = take();
            let sockets = Sockets::bind(at, PortSpace::Tcp, CmTransport::Auto, Manners::default());
            Some((other, at, sockets.ok()?))
        });
        tries.by_ref().take(100).flatten().next().expect("a port that is free in the other space")
    }

    #[test]
    fn one_number_is_taken_in_both_spaces() {
        let sockets = bind("127.0.0.1:0".parse().unwrap());
        let [stream, datagram] = [0, 1].map(|i| sockets.all().nth(i).unwrap());
        let at = |fd| socket::local_addr(fd).unwrap();
        assert_eq!(at(stream), at(datagram));
        assert_ne!(at(stream).port(), 0);
    }

    #[test]
    fn a_port_that_another_socket_has_in_tcp_serves_udp() {
        let (_other, at, sockets) = beside(|| {
            let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let at = other.local_addr().unwrap();
            (other, at)
        });
        assert!(sockets.stream.is_none() && sockets.datagram.is_some());
        let again = Sockets::bind(at, PortSpace::Tcp, CmTransport::Auto, Manners::default());
        assert_eq!(again.err().and_then(|e| e.raw_os_error()), Some(libc::EADDRINUSE));
        let iwarp = Sockets::bind(at, PortSpace::Tcp, CmTransport::Iwarp, Manners::default());
        assert_eq!(iwarp.err().and_then(|e| e.raw_os_error()), Some(libc::EADDRINUSE));
    }

    #[test]
    fn a_number_that_udp_has_lost_serves_tcp() {
        let (_other, _, sockets) = beside(|| {
            let other = UdpSocket::bind("127.0.0.1:0").unwrap();
            let at = other.local_addr().unwrap();
            (other, at)
        });
        assert!(sockets.stream.is_some() && sockets.datagram.is_none());
    }

    #[test]
    fn a_stream_that_was_silent_for_long_is_not_taken() {
        let mut sockets = bind("127.0.0.1:0".parse().unwrap());
        sockets.connected = Some(clock::now() - config::SILENT_STREAM_MAX);
        assert!(sockets.take_fresh_stream().is_none() && sockets.stream.is_none());
        let mut sockets = bind("127.0.0.1:0".parse().unwrap());
        sockets.connected = Some(clock::now());
        assert!(sockets.take_fresh_stream().is_some());
    }
}
