//! A socket whose machine has lost the address that it sends from: on the way from one network to
//! another, or when a lease of DHCP is not renewed.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use weft_os::options::{option, set_option};
use weft_os::sys;

use super::names::unspecified_like;
use super::{UdpPort, fragments, prepare};
use crate::ports::PortBounds;
use crate::socket::{self, SocketKind};

impl UdpPort {
    /// Whether a send has failed since the last call as it does without a source address or a
    /// route.
    pub fn has_lost_route(&self) -> bool {
        self.unrouted.load(Ordering::Relaxed) && self.unrouted.swap(false, Ordering::AcqRel)
    }

    /// Whether it is connected: it takes what comes from one peer alone.
    pub fn has_peer(&self) -> bool {
        socket::peer_addr(self.fd.as_fd()).is_ok()
    }

    /// The address from which `remote` is reached now, if the machine does not have `lost` any
    /// more. A socket that was bound to it, or connected from it, is replaced by one at that
    /// address, under the same descriptor: with the same port if that is free, else with one
    /// within `bounds`. Whoever watches the descriptor has to register it again.
    ///
    /// # Errors
    /// There is no route, or no socket can be had; the old one stays.
    pub fn relocate(
        &self,
        lost: IpAddr,
        remote: SocketAddr,
        bounds: PortBounds,
    ) -> io::Result<Option<SocketAddr>> {
        if lost.is_unspecified() || !is_gone(lost) {
            return Ok(None);
        }
        let probe = UdpSocket::bind((unspecified_like(remote), 0))?;
        probe.connect(remote)?;
        let mut at = SocketAddr::new(probe.local_addr()?.ip(), self.number);
        if self.has_peer() {
            let fd = self.open_at(at.ip(), bounds)?;
            prepare(fd.as_fd(), self.dual)?;
            let stamps = option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
            if fragments::is_cut(self.fd.as_fd()) {
                fragments::cut_long(fd.as_fd());
            }
            if stamps.is_some_and(|stamps| stamps != 0) {
                set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
            }
            socket::connect(fd.as_fd(), &self.addressed(remote))?;
            at.set_port(socket::local_addr(fd.as_fd())?.port());
            sys::replace(self.fd.as_fd(), fd.as_fd())?;
        }
        Ok(Some(at))
    }

    fn open_at(&self, ip: IpAddr, bounds: PortBounds) -> io::Result<OwnedFd> {
        let at = self.addressed(SocketAddr::new(ip, self.number));
        let fd = socket::open(&at, SocketKind::Datagram)?;
        if socket::bind(fd.as_fd(), &at, false).is_err() {
            bounds.bind(fd.as_fd(), &SocketAddr::new(at.ip(), 0), false)?;
        }
        Ok(fd)
    }

    /// `addr` in the family of the socket.
    fn addressed(&self, addr: SocketAddr) -> SocketAddr {
        match addr {
            SocketAddr::V4(v4) if self.dual => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
            addr => addr,
        }
    }
}

/// Whether this machine has `ip` no more. That of one link (`fe80::`), which the system wants to
/// hear with the link's name, counts as there.
fn is_gone(ip: IpAddr) -> bool {
    UdpSocket::bind((ip, 0)).is_err_and(|error| error.kind() == io::ErrorKind::AddrNotAvailable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_that_the_machine_has_no_more_is_replaced() {
        let port = UdpPort::bind(0).unwrap();
        let peer = SocketAddr::from(([127, 0, 0, 1], 9));
        let replaced = |lost: &str| port.relocate(lost.parse().unwrap(), peer, PortBounds::NONE);
        assert_eq!(replaced("fe80::1").unwrap(), None);
        assert_eq!(replaced("127.0.0.1").unwrap(), None);
        let at = SocketAddr::from(([127, 0, 0, 1], port.number()));
        assert_eq!(replaced("198.51.100.1").unwrap(), Some(at));
    }
}
