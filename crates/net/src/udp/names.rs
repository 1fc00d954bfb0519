//! Addresses as the kernel has them.
#![allow(unsafe_code)]

use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `to` as the kernel takes it, and its length, for a socket of IPv6 or one of IPv4.
pub(super) fn name_of(to: SocketAddr, v6: bool) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeroes is valid: an address of no family.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let place = &raw mut storage;
    if let (false, IpAddr::V4(ip)) = (v6, to.ip()) {
        let name = libc::sockaddr_in {
            sin_family: libc::AF_INET as _,
            sin_port: to.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) },
            sin_zero: [0; 8],
        };
        // SAFETY: a sockaddr_storage has room and alignment for every address.
        unsafe { place.cast::<libc::sockaddr_in>().write(name) };
        return (storage, size_of::<libc::sockaddr_in>() as _);
    }
    let scope = if let SocketAddr::V6(to) = to { to.scope_id() } else { 0 };
    let name = libc::sockaddr_in6 {
        sin6_family: libc::AF_INET6 as _,
        sin6_port: to.port().to_be(),
        sin6_flowinfo: 0,
        sin6_addr: libc::in6_addr { s6_addr: mapped(to.ip()).octets() },
        sin6_scope_id: scope,
    };
    // SAFETY: as above.
    unsafe { place.cast::<libc::sockaddr_in6>().write(name) };
    (storage, size_of::<libc::sockaddr_in6>() as _)
}

/// The address in `name`, where it is one of IP; IPv4's as such.
pub(super) fn address_of(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *name;
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says what it is.
            let name = unsafe { &*place.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some((ip, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says what it is.
            let name = unsafe { &*place.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            match ip.to_canonical() {
                IpAddr::V4(ip) => Some((ip, port).into()),
                IpAddr::V6(ip) => {
                    Some(std::net::SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into())
                }
            }
        }
        _ => None,
    }
}

/// The address that stands for all, of the family of `other`.
pub(super) fn unspecified_like(other: SocketAddr) -> IpAddr {
    if other.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

/// The address as IPv6 has it.
pub(super) fn mapped(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
