//! Interface requests (`netdevice(7)`), which need no netlink; of IPv4 only.

use std::mem;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use crate::socket::{self, SocketKind};

/// Interfaces that are asked about at most.
const INTERFACES_MAX: usize = 64;

/// A socket for requests; nothing is sent on it.
fn any_socket() -> Option<OwnedFd> {
    socket::open(&(Ipv4Addr::UNSPECIFIED, 0).into(), SocketKind::Datagram).ok()
}

/// The kernel's answer to `request` about the interface `name`.
pub fn about(name: &[u8], request: libc::c_ulong) -> Option<libc::ifreq> {
    let socket = any_socket()?;
    // SAFETY: all zeroes is a valid request.
    let mut about: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= about.ifr_name.len() {
        return None;
    }
    for (to, from) in about.ifr_name.iter_mut().zip(name) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the request is a writable ifreq with a NUL-terminated name.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), request, &raw mut about) };
    (done == 0).then_some(about)
}

/// Calls `look` for each address of IPv4 and each Ethernet address, as `getifaddrs` lists them.
pub fn each(mut look: impl FnMut(&libc::ifaddrs)) {
    // SAFETY: all zeroes are valid requests.
    let mut places: [libc::ifreq; INTERFACES_MAX] = unsafe { mem::zeroed() };
    let ifc_len = size_of_val(&places) as libc::c_int;
    let ifc_ifcu = libc::__c_anonymous_ifc_ifcu { ifcu_req: places.as_mut_ptr() };
    let mut list = libc::ifconf { ifc_len, ifc_ifcu };
    let Some(socket) = any_socket() else { return };
    // SAFETY: the list names as much writable memory as it says.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFCONF, &raw mut list) } != 0 {
        return;
    }
    let count = usize::try_from(list.ifc_len).unwrap_or(0) / size_of::<libc::ifreq>();
    for place in places.iter_mut().take(count) {
        let name = place.ifr_name.map(|letter| letter as u8);
        let name = name.split(|letter| *letter == 0).next().unwrap_or_default();
        let Some(flags) = about(name, libc::SIOCGIFFLAGS) else { continue };
        let mut item = libc::ifaddrs {
            ifa_next: ptr::null_mut(),
            ifa_name: place.ifr_name.as_mut_ptr(),
            // SAFETY: a successful SIOCGIFFLAGS fills this member.
            ifa_flags: unsafe { flags.ifr_ifru.ifru_flags } as libc::c_uint,
            ifa_addr: (&raw mut place.ifr_ifru).cast(),
            ifa_netmask: ptr::null_mut(),
            ifa_ifu: ptr::null_mut(),
            ifa_data: ptr::null_mut(),
        };
        look(&item);
        if let Some(mut ethernet) = ethernet(name) {
            item.ifa_addr = (&raw mut ethernet).cast();
            look(&item);
        }
    }
}

fn ethernet(name: &[u8]) -> Option<libc::sockaddr_ll> {
    let hardware = about(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: a successful SIOCGIFHWADDR fills this member.
    let hardware = unsafe { hardware.ifr_ifru.ifru_hwaddr };
    // SAFETY: all zeroes is valid: integers.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as libc::c_ushort;
    address.sll_halen = 6;
    for (to, from) in address.sll_addr.iter_mut().zip(hardware.sa_data).take(6) {
        *to = from as u8;
    }
    (hardware.sa_family == libc::ARPHRD_ETHER).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_listed_is_what_getifaddrs_lists() {
        let mut found = Vec::new();
        each(|item| super::super::add(&mut found, item));
        let all = super::super::list().expect("there are descriptors");
        for listed in &mut found {
            listed.mtu = super::super::mtu(&listed.name);
            let own = all.iter().find(|interface| interface.name == listed.name);
            let mut own = own.expect("an interface with an address of IPv4").clone();
            own.addresses.retain(|address| address.is_ipv4());
            assert_eq!(*listed, own);
        }
        assert!(found.iter().any(|interface| interface.loopback));
    }
}
