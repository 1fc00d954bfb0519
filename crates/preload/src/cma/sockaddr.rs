//! Socket addresses between C and Rust.

use std::net::{IpAddr, SocketAddr};

use weft_verbs_abi::cma::Storage;
use weft_verbs_abi::ibv_gid;

const V4_LEN: usize = size_of::<libc::sockaddr_in>();
const V6_LEN: usize = size_of::<libc::sockaddr_in6>();

/// Bytes of a `sockaddr` of this family, 0 if it is not IP.
pub fn len_of(family: i32) -> usize {
    match family {
        libc::AF_INET => V4_LEN,
        libc::AF_INET6 => V6_LEN,
        _ => 0,
    }
}

/// Reads an application's address; nothing if it is not IP.
///
/// # Safety
/// `addr` is NULL or a whole address of its family.
pub unsafe fn read(addr: *const libc::sockaddr) -> Option<SocketAddr> {
    if addr.is_null() {
        return None;
    }
    // SAFETY: every address begins with its family.
    let family = i32::from(unsafe { addr.cast::<libc::sa_family_t>().read_unaligned() });
    let mut storage = Storage::EMPTY;
    let (from, to) = (addr.cast::<u8>(), storage.0.as_mut_ptr());
    // SAFETY: the address is as long as its family says, which is less than the storage.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len_of(family)) };
    storage.decode()
}

/// The GID that stands for an IP address: IPv4 is mapped into IPv6.
pub fn gid(addr: Option<SocketAddr>) -> ibv_gid {
    let raw = match addr.map(|addr| addr.ip()) {
        None => [0; 16],
        Some(IpAddr::V4(v4)) => v4.to_ipv6_mapped().octets(),
        Some(IpAddr::V6(v6)) => v6.octets(),
    };
    ibv_gid { raw }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_there_and_back() {
        for text in ["127.0.0.1:7174", "[::1]:1", "[fe80::1%3]:65535", "0.0.0.0:0"] {
            let addr: SocketAddr = text.parse().unwrap();
            let storage = Storage::from(addr);
            assert_eq!(storage.decode(), Some(addr));
            assert_eq!(u16::from_be(storage.port_be()), addr.port());
            // SAFETY: the storage is a whole address of its family.
            assert_eq!(unsafe { read(storage.0.as_ptr().cast()) }, Some(addr));
        }
    }

    #[test]
    fn other_families_are_no_addresses() {
        let mut storage = Storage::EMPTY;
        storage.0[0] = libc::AF_UNIX as u8;
        assert_eq!(storage.decode(), None);
        assert_eq!(storage.port_be(), 0);
        // SAFETY: as long as its family says, of which nothing is read.
        assert_eq!(unsafe { read(storage.0.as_ptr().cast()) }, None);
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { read(std::ptr::null()) }, None);
    }

    #[test]
    fn an_ipv4_address_is_mapped() {
        let gid = gid(Some("10.1.2.3:4".parse().unwrap()));
        assert_eq!(gid.raw, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 1, 2, 3]);
    }
}
