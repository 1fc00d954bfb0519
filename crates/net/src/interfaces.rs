//! The machine's network interfaces and their addresses, as the kernel lists them now.
#![allow(unsafe_code)]

mod ioctl;

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ptr;

use crate::socket::{self, SocketKind};

/// One interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetInterface {
    /// Its name, as in `ip link`.
    pub name: Vec<u8>,
    /// The kernel's index of the interface, from 1.
    pub index: u32,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Its Ethernet address, if it has one.
    pub mac: Option<[u8; 6]>,
    /// Bytes of an IP packet.
    pub mtu: u32,
    /// Its addresses, IPv4 first.
    pub addresses: Vec<IpAddr>,
}

/// The C library has no memory or descriptor to ask the kernel with.
#[derive(Clone, Copy, Debug)]
pub struct Shortage;

/// The interfaces that are up and have an address, loopback last.
///
/// # Errors
/// The C library cannot ask for them now; [`list_v4`] can.
pub fn list() -> Result<Vec<NetInterface>, Shortage> {
    ask().map(settle)
}

/// The same without addresses of IPv6, with less memory and fewer descriptors.
pub fn list_v4() -> Vec<NetInterface> {
    settle(by_ioctl())
}

fn ask() -> Result<Vec<NetInterface>, Shortage> {
    let mut found = Vec::new();
    let mut list = ptr::null_mut();
    // SAFETY: `list` receives the head of a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut list) } != 0 {
        return match io::Error::last_os_error().raw_os_error() {
            Some(libc::ENOMEM | libc::ENOBUFS | libc::EMFILE | libc::ENFILE) => Err(Shortage),
            // Some sandboxes have no netlink, which it asks.
            _ => Ok(by_ioctl()),
        };
    }
    let mut entry = list;
    while !entry.is_null() {
        // SAFETY: entries of the list are valid until it is freed.
        let item = unsafe { &*entry };
        add(&mut found, item);
        entry = item.ifa_next;
    }
    // SAFETY: the list came from getifaddrs or is NULL, and nothing borrows from it any more.
    unsafe { libc::freeifaddrs(list) };
    Ok(found)
}

fn by_ioctl() -> Vec<NetInterface> {
    let mut found = Vec::new();
    ioctl::each(|item| add(&mut found, item));
    found
}

/// The usable interfaces of `found`, in order.
fn settle(mut found: Vec<NetInterface>) -> Vec<NetInterface> {
    let v6 = speaks_v6();
    for interface in &mut found {
        interface.addresses.retain(|address| v6 || address.is_ipv4());
        interface.addresses.sort_by_key(IpAddr::is_ipv6);
        interface.mtu = mtu(&interface.name);
    }
    found.retain(|i| !i.addresses.is_empty());
    found.sort_by_key(|i| (i.loopback, i.index));
    found
}

fn add(found: &mut Vec<NetInterface>, item: &libc::ifaddrs) {
    let up = item.ifa_flags & libc::IFF_UP as u32 != 0;
    if !up || item.ifa_addr.is_null() {
        return;
    }
    // SAFETY: names in the list are NUL-terminated.
    let name = unsafe { CStr::from_ptr(item.ifa_name) };
    let loopback = item.ifa_flags & libc::IFF_LOOPBACK as u32 != 0;
    let position = found.iter().position(|i| i.name == name.to_bytes()).unwrap_or_else(|| {
        // SAFETY: the name is NUL-terminated.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        let (name, addresses) = (name.to_bytes().to_vec(), Vec::new());
        found.push(NetInterface { name, index, loopback, mac: None, mtu: 0, addresses });
        found.len() - 1
    });
    let interface = &mut found[position];
    // SAFETY: a non-null address has at least a family.
    match i32::from(unsafe { (*item.ifa_addr).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in.
            let address = unsafe { &*item.ifa_addr.cast::<libc::sockaddr_in>() };
            let bytes = address.sin_addr.s_addr.to_ne_bytes();
            interface.addresses.push(Ipv4Addr::from(bytes).into());
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6.
            let address = unsafe { &*item.ifa_addr.cast::<libc::sockaddr_in6>() };
            interface.addresses.push(Ipv6Addr::from(address.sin6_addr.s6_addr).into());
        }
        libc::AF_PACKET => {
            // SAFETY: the family says that it is a sockaddr_ll.
            let address = unsafe { &*item.ifa_addr.cast::<libc::sockaddr_ll>() };
            interface.mac = mac(address);
        }
        _ => {}
    }
}

fn mac(address: &libc::sockaddr_ll) -> Option<[u8; 6]> {
    let mac: [u8; 6] = address.sll_addr[..6].try_into().ok()?;
    (address.sll_halen == 6 && mac != [0; 6]).then_some(mac)
}

fn mtu(name: &[u8]) -> u32 {
    const ETHERNET: u32 = 1500;
    let Some(answer) = ioctl::about(name, libc::SIOCGIFMTU) else { return ETHERNET };
    // SAFETY: a successful SIOCGIFMTU fills this member.
    u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).unwrap_or(ETHERNET)
}

/// Whether sockets of IPv6 can be had: addresses that nobody can speak from are none.
fn speaks_v6() -> bool {
    socket::open(&(Ipv6Addr::UNSPECIFIED, 0).into(), SocketKind::Datagram).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_there_and_last() {
        let all = list().expect("there are descriptors");
        let last = all.last().expect("a machine has a loopback interface");
        assert!(last.loopback);
        assert!(last.addresses.contains(&Ipv4Addr::LOCALHOST.into()));
        assert!(last.mtu >= 1500 && last.index > 0);
        assert_eq!(all.iter().filter(|i| i.loopback).count(), 1);
    }
}
