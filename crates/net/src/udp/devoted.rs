//! Sockets that are one route's alone, while a connection within a host lasts.
//!
//! Invariant: a socket that is no route's any more has the number and the options that it had
//! before.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use weft_os::fds;
use weft_os::options::set_option;
use weft_rnic::shuttle::Route;

use super::names::name_of;
use super::{UdpPort, source_to};
use crate::socket;

impl UdpPort {
    /// Makes the socket `route`'s alone, if that is how the system goes there: what others send
    /// does not arrive any more, and neither the kernel nor we look addresses up for what comes and
    /// goes. Whether it is.
    pub fn devote(&self, route: &Route) -> bool {
        // A socket cannot be asked first, and one that is disconnected again loses its number.
        if source_to(route.remote).is_none_or(|from| from != route.local.ip()) {
            return false;
        }
        let fd = self.fd.as_fd();
        let mut bound_before = self.bound_before.lock();
        let Ok(bound) = socket::local_addr(fd) else { return false };
        let (name, len) = name_of(route.remote, self.dual);
        // SAFETY: `name` is alive and has room for `len` bytes.
        if unsafe { libc::connect(fd.as_raw_fd(), (&raw const name).cast(), len) } != 0 {
            return false;
        }
        bound_before.get_or_insert(bound);
        self.tell_destinations(0);
        true
    }

    /// Makes the socket everybody's again, at the same number, for another connection of its queue
    /// pair. A socket that is no route's alone stays as it is.
    ///
    /// # Errors
    /// Another socket has taken the number, which it has lost for a moment.
    pub fn undevote(&self) -> io::Result<()> {
        let mut bound_before = self.bound_before.lock();
        // A number that the application has closed may be a socket of its own.
        let Some(bound) = bound_before.filter(|_| !fds::are_lost()) else { return Ok(()) };
        let fd = self.fd.as_fd();
        rustix::net::connect_unspec(fd)?;
        // The kernel takes a number back that it had chosen itself.
        if socket::local_addr(fd)?.port() != self.number {
            socket::bind(fd, &bound, false)?;
        }
        self.tell_destinations(1);
        *bound_before = None;
        Ok(())
    }

    /// Whether the kernel says with each datagram to which address it came.
    fn tell_destinations(&self, on: libc::c_int) {
        let fd = self.fd.as_fd();
        set_option(fd, libc::IPPROTO_IP, libc::IP_PKTINFO, on);
        if self.dual {
            set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, on);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use weft_rnic::Written;

    use super::*;
    use crate::udp::BUNDLE_OCTETS;

    fn heard(port: &UdpPort, own: Option<&Route>) -> Option<u16> {
        port.receive(&mut [0; BUNDLE_OCTETS], own).map(|bundle| bundle.route.remote.port())
    }

    #[test]
    fn a_socket_with_a_route_of_its_own_hears_nobody_else() {
        let [port, peer, stranger] = [(); 3].map(|()| UdpPort::bind(0).unwrap());
        let at = |ip: [u8; 4], port: &UdpPort| SocketAddr::from((ip, port.number()));
        let here = at([127, 0, 0, 1], &port);
        let route = Route { local: here, remote: at([127, 0, 0, 1], &peer) };
        let send = |from: &UdpPort| {
            let to_port = Route { local: at([127, 0, 0, 1], from), remote: here };
            assert_eq!(from.send_staged(&to_port, b"octets", 6), Written::Octets(6));
        };
        // The system does not leave by that address.
        assert!(!port.devote(&Route { local: at([127, 0, 0, 2], &port), ..route }));
        send(&stranger);
        assert_eq!(heard(&port, None), Some(stranger.number()));
        assert!(port.devote(&route));
        send(&stranger);
        assert_eq!(heard(&port, Some(&route)), None);
        send(&peer);
        assert_eq!(heard(&port, Some(&route)), Some(peer.number()));
    }

    #[test]
    fn a_socket_that_has_had_a_route_of_its_own_hears_everybody_again() {
        let [port, peer, stranger] = [(); 3].map(|()| UdpPort::bind(0).unwrap());
        let to = |ip: [u8; 4], from: &UdpPort| Route {
            local: (ip, from.number()).into(),
            remote: (ip, port.number()).into(),
        };
        let send = |route: &Route| {
            assert_eq!(stranger.send_staged(route, b"octets", 6), Written::Octets(6));
        };
        let back = to([127, 0, 0, 1], &peer);
        let route = Route { local: back.remote, remote: back.local };
        for _ in 0..3 {
            assert!(port.devote(&route));
            port.undevote().unwrap();
            // At each address of the host, and it is told which one it was.
            for ip in [[127, 0, 0, 1], [127, 0, 0, 2]] {
                send(&to(ip, &stranger));
                let bundle = port.receive(&mut [0; BUNDLE_OCTETS], None).map(|got| got.route);
                let Route { local, remote } = to(ip, &stranger);
                assert_eq!(bundle, Some(Route { local: remote, remote: local }));
            }
        }
        assert!(port.undevote().is_ok(), "nothing is to be done");
    }
}
