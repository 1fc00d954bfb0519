//! A socket address of any family.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// A `sockaddr_storage`, as octets.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
pub struct Storage(pub [u8; 128]);

impl Storage {
    /// No address: family `AF_UNSPEC`.
    pub const EMPTY: Storage = Storage([0; 128]);
}

impl From<SocketAddr> for Storage {
    fn from(addr: SocketAddr) -> Storage {
        let mut octets = [0u8; 128];
        let family = if addr.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        octets[..2].copy_from_slice(&(family as libc::sa_family_t).to_ne_bytes());
        octets[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(v4) => octets[4..8].copy_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => {
                octets[4..8].copy_from_slice(&v6.flowinfo().to_ne_bytes());
                octets[8..24].copy_from_slice(&v6.ip().octets());
                octets[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        Storage(octets)
    }
}

impl Storage {
    /// The address, unless it is of a family that is not IP.
    pub fn decode(&self) -> Option<SocketAddr> {
        let port = u16::from_be_bytes(self.take(2));
        match self.family() {
            libc::AF_INET => Some((Ipv4Addr::from(self.take::<4>(4)), port).into()),
            libc::AF_INET6 => {
                let flowinfo = u32::from_ne_bytes(self.take(4));
                let ip = Ipv6Addr::from(self.take::<16>(8));
                let scope_id = u32::from_ne_bytes(self.take(24));
                Some(SocketAddrV6::new(ip, port, flowinfo, scope_id).into())
            }
            _ => None,
        }
    }

    /// The address family, `AF_*`.
    pub fn family(&self) -> i32 {
        i32::from(libc::sa_family_t::from_ne_bytes(self.take(0)))
    }

    /// The port as it lies in memory, in network byte order; 0 unless the family is IP.
    pub fn port_be(&self) -> u16 {
        self.decode().map_or(0, |addr| addr.port().to_be())
    }

    fn take<const N: usize>(&self, at: usize) -> [u8; N] {
        std::array::from_fn(|i| self.0[at + i])
    }
}
