//! The abstract name of an application's socket: the addresses of its connection.
//!
//! Invariant: the name of each socket of this library has both addresses of its connection, in all
//! processes; so no table has to follow a descriptor through `dup`, `fork` and `exec`.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The prefix of all names of this library.
const TAG: &[u8] = b"weft-sockets/1";
/// Bytes of an address in a name: version, address, port, scope.
const ADDRESS_BYTES: usize = 1 + 16 + 2 + 4;
/// Bytes of a number that makes the name unique.
const UNIQUE_BYTES: usize = 8;

/// The addresses of a connection, as its application knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketEnds {
    /// The address of this end.
    pub local: SocketAddr,
    /// The address of the peer.
    pub remote: SocketAddr,
}

impl SocketEnds {
    /// A name for the application's socket.
    pub fn name(&self, unique: u64) -> Vec<u8> {
        let mut name = TAG.to_vec();
        encode(&self.local, &mut name);
        encode(&self.remote, &mut name);
        name.extend(unique.to_be_bytes());
        name
    }

    /// The addresses in a name.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let rest = name.strip_prefix(TAG)?;
        if rest.len() != 2 * ADDRESS_BYTES + UNIQUE_BYTES {
            return None;
        }
        let (local, rest) = rest.split_at(ADDRESS_BYTES);
        Some(Self { local: decode(local)?, remote: decode(&rest[..ADDRESS_BYTES])? })
    }
}

fn encode(address: &SocketAddr, name: &mut Vec<u8>) {
    let (version, bytes, scope) = match address {
        SocketAddr::V4(v4) => (4, v4.ip().to_ipv6_mapped().octets(), 0),
        SocketAddr::V6(v6) => (6, v6.ip().octets(), v6.scope_id()),
    };
    name.push(version);
    name.extend(bytes);
    name.extend(address.port().to_be_bytes());
    name.extend(scope.to_be_bytes());
}

fn decode(name: &[u8]) -> Option<SocketAddr> {
    let ip = Ipv6Addr::from(<[u8; 16]>::try_from(&name[1..17]).ok()?);
    let port = u16::from_be_bytes([name[17], name[18]]);
    let scope = u32::from_be_bytes(name[19..23].try_into().ok()?);
    match name[0] {
        4 => Some(SocketAddrV4::new(ip.to_ipv4_mapped()?, port).into()),
        6 => Some(SocketAddrV6::new(ip, port, 0, scope).into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_both_ends() {
        for (local, remote) in [
            ("192.0.2.1:7", "198.51.100.255:65535"),
            ("[fe80::1%3]:80", "[2001:db8::2]:1"),
            ("[::ffff:192.0.2.1]:80", "[::ffff:192.0.2.2]:443"),
        ] {
            let ends =
                SocketEnds { local: local.parse().unwrap(), remote: remote.parse().unwrap() };
            let name = ends.name(u64::MAX);
            assert!(name.len() <= 107);
            assert_eq!(SocketEnds::parse(&name), Some(ends));
            assert_eq!(SocketEnds::parse(&name[1..]), None);
            assert_eq!(SocketEnds::parse(&name[..name.len() - 1]), None);
        }
    }
}
