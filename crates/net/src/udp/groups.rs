//! Sockets of multicast groups, and how far what is sent to groups goes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use weft_os::options::{set_option, set_value};
use weft_rnic::wire::datagram::GROUP_QPN;
use weft_verbs::Misuse;

use super::UdpPort;
use crate::refused;
use crate::socket::{self, SocketKind};

/// Where datagrams to groups go, as the number of their destination says.
const GROUP_PORT: u16 = (GROUP_QPN >> 8) as u16;

impl UdpPort {
    /// A port for what comes to `group` by the network interfaces `interfaces`: one of many at the
    /// same number, in this process and others.
    ///
    /// # Errors
    /// If none of the interfaces can be a member, or somebody keeps the number for themselves.
    pub fn for_group(group: IpAddr, interfaces: &[u32]) -> Result<Self, Misuse> {
        Self::join(group, interfaces).map_err(refused)
    }

    fn join(group: IpAddr, interfaces: &[u32]) -> io::Result<Self> {
        let any: IpAddr = match group {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let at = SocketAddr::new(any, GROUP_PORT);
        let fd = socket::open(&at, SocketKind::Datagram)?;
        // Not what others on this machine are members of.
        if group.is_ipv4() {
            set_option(fd.as_fd(), libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        } else {
            socket::set_v6_only(fd.as_fd(), true)?;
            set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
        }
        socket::bind(fd.as_fd(), &at, true)?;
        let mut joined = Err(io::Error::from_raw_os_error(libc::ENODEV));
        for interface in interfaces {
            let outcome = enter_group(fd.as_fd(), group, *interface);
            if joined.is_err() {
                joined = outcome;
            }
        }
        joined?;
        let port = Self::adopt(fd)?;
        port.cut_long();
        Ok(port)
    }

    /// What is sent to groups passes `hops` hosts; with 0 it does not leave this machine. Whether
    /// the system agrees.
    pub fn limit_groups(&self, hops: u8) -> bool {
        let (fd, hops) = (self.fd.as_fd(), hops.into());
        let v4 = set_option(fd, libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, hops);
        let v6 = || set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops);
        v4 && (!self.dual || v6())
    }
}

/// Makes the socket a member of `group` on a network interface.
fn enter_group(socket: BorrowedFd<'_>, group: IpAddr, interface: u32) -> io::Result<()> {
    let entered = match group {
        IpAddr::V4(group) => {
            let group = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(group.octets()) },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: interface as libc::c_int,
            };
            set_value(socket, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &group)
        }
        IpAddr::V6(group) => {
            let group = libc::ipv6_mreq {
                ipv6mr_multiaddr: libc::in6_addr { s6_addr: group.octets() },
                ipv6mr_interface: interface,
            };
            set_value(socket, libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &group)
        }
    };
    if entered { Ok(()) } else { Err(io::Error::last_os_error()) }
}
