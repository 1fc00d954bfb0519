//! What arrives at a UDP port, and what the kernel says of it.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use weft_os::clock;
use weft_os::options::set_option;
use weft_rnic::shuttle::Route;

use super::UdpPort;
use super::control::ControlMessages;
use super::names::{address_of, unspecified_like};

/// Bytes of the largest bundle that arrives.
pub const BUNDLE_OCTETS: usize = 65_536;

/// A bundle of datagrams of one sender.
#[derive(Clone, Copy, Debug)]
pub struct Bundle {
    /// Bytes of all of them.
    pub octets: usize,
    /// Bytes of each but the last.
    pub each: usize,
    /// From where, and to which of our addresses.
    pub route: Route,
    /// The network marked them as congested.
    pub marked: bool,
    /// Datagrams that the socket had no room for, since it was made, as far as the kernel says.
    pub dropped: u32,
    /// For how long it has waited in the socket, if the kernel [stamps](UdpPort::stamp_arrivals)
    /// what arrives; else nothing.
    pub waited: Duration,
}

impl UdpPort {
    /// Has the kernel say when datagrams have arrived, where it can ([`Bundle::waited`]).
    pub fn stamp_arrivals(&self) {
        set_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1);
    }

    /// Receives a bundle into `room`, which holds [`BUNDLE_OCTETS`], without waiting. `own` is the
    /// route that the socket is devoted to, if it is.
    pub fn receive(&self, room: &mut [u8], own: Option<&Route>) -> Option<Bundle> {
        // SAFETY: all zeroes is valid: an address of no family.
        let mut name: libc::sockaddr_storage = unsafe { mem::zeroed() };
        let mut control = ControlMessages::default();
        let mut vector = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: an all-zero message header is valid.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        if own.is_none() {
            message.msg_name = (&raw mut name).cast();
            message.msg_namelen = size_of::<libc::sockaddr_storage>() as _;
        }
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.words.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control.words) as _;
        let fd = self.fd.as_fd().as_raw_fd();
        // SAFETY: `message` names locals and `room`, which live as long as the call.
        let n = unsafe { libc::recvmsg(fd, &mut message, libc::MSG_DONTWAIT) };
        let Ok(octets) = usize::try_from(n) else {
            self.failed(&io::Error::last_os_error(), false);
            return None;
        };
        let route = match own {
            Some(route) => *route,
            None => {
                let remote = address_of(&name)?;
                Route { local: (unspecified_like(remote), self.number).into(), remote }
            }
        };
        let mut bundle = Bundle {
            octets,
            each: octets.max(1),
            route,
            marked: false,
            dropped: 0,
            waited: Duration::ZERO,
        };
        self.read_control(&message, &mut bundle);
        Some(bundle)
    }

    fn read_control(&self, message: &libc::msghdr, bundle: &mut Bundle) {
        // SAFETY: `message` was filled by recvmsg and its control buffer is alive.
        let mut at = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: the kernel's headers are followed by as much data as their kind has.
        while let Some(header) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(at) };
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    // SAFETY: as above.
                    let each = unsafe { data.cast::<libc::c_int>().read_unaligned() };
                    bundle.each = usize::try_from(each).unwrap_or(0).max(1);
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    // SAFETY: as above.
                    bundle.dropped = unsafe { data.cast::<u32>().read_unaligned() };
                }
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                    // SAFETY: as above.
                    let at = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                    bundle.waited = since(&at);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    // SAFETY: as above.
                    let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                    let ip = Ipv6Addr::from(info.ipi6_addr.s6_addr).to_canonical();
                    bundle.route.local = (ip, self.number).into();
                }
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // SAFETY: as above.
                    let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                    let ip = Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    bundle.route.local = (ip, self.number).into();
                }
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    // The first byte in memory order of either form.
                    // SAFETY: as above.
                    bundle.marked = unsafe { data.read() } & 3 == 3;
                }
                _ => {}
            }
            // SAFETY: as above.
            at = unsafe { libc::CMSG_NXTHDR(message, at) };
        }
    }
}

/// The time that has passed since the kernel's stamp `at`; nothing if the clock was set back.
fn since(at: &libc::timespec) -> Duration {
    let at_ns = i128::from(at.tv_sec) * 1_000_000_000 + i128::from(at.tv_nsec);
    let waited_ns = i128::from(clock::time_of_day_ns()) - at_ns;
    Duration::from_nanos(u64::try_from(waited_ns).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn how_long_a_datagram_has_waited_is_known_where_arrivals_are_stamped() {
        let [port, peer] = [(); 2].map(|()| UdpPort::bind(0).unwrap());
        let at = |port: &UdpPort| SocketAddr::from(([127, 0, 0, 1], port.number()));
        let route = Route { local: at(&peer), remote: at(&port) };
        let waited = |pause: Duration| {
            let sent_at = clock::now();
            peer.send_staged(&route, b"octets", 6);
            while sent_at.elapsed() < pause {}
            port.receive(&mut [0; BUNDLE_OCTETS], None).unwrap().waited
        };
        let pause = Duration::from_millis(20);
        assert_eq!(waited(pause), Duration::ZERO);
        port.stamp_arrivals();
        // The kernel may go on without stamps until its clock for them is on.
        let started = clock::now();
        while waited(pause) < pause / 2 {
            assert!(started.elapsed() < Duration::from_secs(20), "no stamps");
        }
    }
}
