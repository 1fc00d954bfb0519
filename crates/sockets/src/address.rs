//! Socket addresses, converted between C and Rust, and which of them are this host's.

use std::mem::{MaybeUninit, offset_of, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{sockaddr_storage, socklen_t};
use weft_net::{interfaces, udp};

/// `address`, with an IPv4-mapped IPv6 address as IPv4.
pub fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(v4) => SocketAddrV4::new(v4, address.port()).into(),
        IpAddr::V6(_) => address,
    }
}

/// The address that is meant: the unspecified one is this machine.
pub fn meant(mut remote: SocketAddr) -> SocketAddr {
    if remote.ip().is_unspecified() {
        let v4 = remote.is_ipv4();
        remote.set_ip(if v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
    }
    remote
}

/// Whether an address is one of this network namespace. None if the system does not say.
pub fn is_of_this_host(at: SocketAddr) -> Option<bool> {
    let ip = at.ip().to_canonical();
    if ip.is_loopback() {
        return Some(true);
    }
    // What goes to an own address comes from it, from a loopback address, or from the first address
    // of the same network.
    let source = udp::source_to(plain(at))?;
    let is_listed = || {
        let all = interfaces::list().ok()?;
        Some(all.iter().any(|interface| interface.addresses.contains(&ip)))
    };
    if source == ip || source.is_loopback() { Some(true) } else { is_listed() }
}

/// The 16 bytes of an address as a Hello has it, IPv4 in the last four.
pub fn bytes(ip: IpAddr) -> [u8; 16] {
    match ip.to_canonical() {
        IpAddr::V4(v4) => {
            let mut bytes = [0; 16];
            bytes[12..].copy_from_slice(&v4.octets());
            bytes
        }
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// A C address and its length in bytes.
pub fn to_raw(address: &SocketAddr) -> (sockaddr_storage, socklen_t) {
    // SAFETY: all zeroes is valid: an address of no family.
    let mut storage: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    let place = &raw mut storage;
    let len = match address {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as _,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: a sockaddr_storage has room and alignment for every address.
            unsafe { place.cast::<libc::sockaddr_in>().write(raw) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as _,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { place.cast::<libc::sockaddr_in6>().write(raw) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, len as socklen_t)
}

/// The address in `storage`, if it is an IP address.
pub fn from_storage(storage: &sockaddr_storage) -> Option<SocketAddr> {
    let place = &raw const *storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these.
            let raw = unsafe { place.cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(ip, u16::from_be(raw.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let raw = unsafe { place.cast::<libc::sockaddr_in6>().read() };
            let (ip, port) = (Ipv6Addr::from(raw.sin6_addr.s6_addr), u16::from_be(raw.sin6_port));
            Some(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// The address that an application passes, if it is a whole IP address.
///
/// # Safety
/// `address` is null or has `len` readable bytes.
pub unsafe fn from_raw(address: *const libc::sockaddr, len: socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    let lengths = offset_of!(libc::sockaddr, sa_data)..=size_of::<sockaddr_storage>();
    if address.is_null() || !lengths.contains(&len) {
        return None;
    }
    // SAFETY: all zeroes is valid.
    let mut storage: sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: both have so many bytes, and they do not overlap.
    unsafe { std::ptr::copy_nonoverlapping(address.cast(), (&raw mut storage).cast::<u8>(), len) };
    let whole = match i32::from(storage.ss_family) {
        libc::AF_INET => size_of::<libc::sockaddr_in>(),
        // Old applications leave the scope out.
        libc::AF_INET6 => offset_of!(libc::sockaddr_in6, sin6_scope_id),
        _ => return None,
    };
    (len >= whole).then(|| from_storage(&storage)).flatten()
}

/// Writes an address for an application, as `getpeername` does: truncated to `len` bytes, with the
/// whole length.
///
/// # Safety
/// `len` is writable and says how much room there is at `into`.
pub unsafe fn give(address: &SocketAddr, into: *mut libc::sockaddr, len: *mut socklen_t) {
    let (storage, whole) = to_raw(address);
    // SAFETY: the caller vouches for it.
    let room = unsafe { len.read() };
    let bytes = room.min(whole) as usize;
    // SAFETY: there is so much room, and the storage is larger.
    unsafe { std::ptr::copy_nonoverlapping((&raw const storage).cast(), into.cast::<u8>(), bytes) };
    // SAFETY: the caller vouches for it.
    unsafe { len.write(whole) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_c() {
        for text in ["192.0.2.1:7", "[fe80::1%3]:80"] {
            let address: SocketAddr = text.parse().unwrap();
            let (raw, len) = to_raw(&address);
            let place = (&raw const raw).cast();
            // SAFETY: the storage has more than `len` bytes.
            assert_eq!(unsafe { from_raw(place, len) }, Some(address));
            // SAFETY: as above.
            assert_eq!(unsafe { from_raw(place, 7) }, None);
        }
    }

    #[test]
    fn loopback_is_of_this_host_and_an_address_for_documents_is_not() {
        let is = |text: &str| is_of_this_host(text.parse().unwrap());
        assert_eq!(is("127.0.0.2:1"), Some(true));
        assert_eq!(is("[::ffff:127.0.0.1]:1"), Some(true));
        assert_ne!(is("192.0.2.1:1"), Some(true));
    }
}
