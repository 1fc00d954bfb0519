//! The abstract name of an application's socket: the addresses of its connection.
//!
//! The accepting end of a pair has the name where offers are taken, as an accepted socket has its
//! listener's; its peer has the addresses.
//!
//! Invariant: the name of each socket of this library, or its peer's, has both addresses of its
//! connection, in all processes; so no table has to follow a descriptor through `dup`, `fork` and
//! `exec`.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// The prefix of all names of this library.
const TAG: &[u8] = b"weft-sockets/1";
/// The prefix of the names where pairs are offered to a listener of IPv4, and of IPv6.
const OFFERS: [&str; 2] = ["weft-sockets/pairs/4/", "weft-sockets/pairs/6/"];
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

/// The name where pairs are offered to the listener of this inode.
pub fn of_offers(inode: u64, is_ipv6: bool) -> Vec<u8> {
    format!("{}{inode}", OFFERS[usize::from(is_ipv6)]).into_bytes()
}

/// Whether a name is one of those.
pub fn is_of_offers(name: &[u8]) -> bool {
    OFFERS.iter().any(|prefix| name.starts_with(prefix.as_bytes()))
}

/// The names of an application's socket.
pub struct SocketNames {
    /// Its own.
    pub own: Vec<u8>,
    /// Its peer's, if it is the accepting end of a pair.
    pub peer: Option<Vec<u8>>,
}

impl SocketNames {
    /// The addresses of its connection, if it is a socket of this library.
    pub fn ends(&self) -> Option<SocketEnds> {
        let Some(peer) = &self.peer else { return SocketEnds::parse(&self.own) };
        let SocketEnds { local, remote } = SocketEnds::parse(peer)?;
        let is_ipv6 = self.own.starts_with(OFFERS[1].as_bytes());
        let seen = |at| if is_ipv6 { mapped(at) } else { at };
        Some(SocketEnds { local: seen(remote), remote: seen(local) })
    }

    /// What no other socket has.
    pub fn unique(self) -> Vec<u8> {
        // The two ends of a pair may be of one process.
        let peer = self.peer.map(|peer| [b"peer of ", peer.as_slice()].concat());
        peer.unwrap_or(self.own)
    }
}

/// An address as a socket of IPv6 has it.
fn mapped(at: SocketAddr) -> SocketAddr {
    match at {
        SocketAddr::V4(v4) => (v4.ip().to_ipv6_mapped(), v4.port()).into(),
        SocketAddr::V6(_) => at,
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
    fn the_accepting_end_of_a_pair_is_known_by_its_peer() {
        let ends = SocketEnds {
            local: "127.0.0.1:7".parse().unwrap(),
            remote: "127.0.0.1:80".parse().unwrap(),
        };
        let found = |own| SocketNames { own, peer: Some(ends.name(1)) }.ends().unwrap();
        let SocketEnds { local, remote } = found(of_offers(9, false));
        assert_eq!((local, remote), (ends.remote, ends.local));
        let mapped: SocketAddr = "[::ffff:127.0.0.1]:80".parse().unwrap();
        assert_eq!(found(of_offers(9, true)).local, mapped);
        assert!(is_of_offers(&of_offers(9, true)) && !is_of_offers(&ends.name(1)));
    }

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
