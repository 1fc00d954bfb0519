//! Addresses of queue pairs, for applications that carry them to each other by themselves.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weft_net::socket;
use weft_verbs::{AddressVector, Destination};

use crate::completion::Completion;
use crate::{Error, Result};

/// Where a queue pair is reached. It is plain data that a peer sends, by [`Address::to_bytes`] or
/// in any other form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// An address of its host, not a link-local one.
    pub ip: IpAddr,
    /// Its number, 24 bits.
    pub number: u32,
    /// The key of its datagrams; 0 for a connection.
    pub qkey: u32,
}

impl Address {
    /// Bytes of its encoding.
    pub const LEN: usize = 24;
    /// Bytes of the route header in front of a datagram.
    pub const ROUTE_LEN: usize = 40;

    /// Its encoding: the address as one of IPv6, number and key, big-endian.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&gid(self.ip));
        bytes[16..20].copy_from_slice(&self.number.to_be_bytes());
        bytes[20..].copy_from_slice(&self.qkey.to_be_bytes());
        bytes
    }

    /// What a peer has encoded; `None` if there are fewer bytes than that takes. Bytes after it are
    /// left alone.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (ip, rest) = bytes.split_first_chunk::<16>()?;
        let (number, rest) = rest.split_first_chunk()?;
        let qkey = u32::from_be_bytes(*rest.first_chunk()?);
        let ip = Ipv6Addr::from(*ip).to_canonical();
        Some(Self { ip, number: u32::from_be_bytes(*number), qkey })
    }

    /// Where an answer to a datagram goes: `datagram` is its completion, `route` the first
    /// [`Address::ROUTE_LEN`] bytes of what was received, and `qkey` the key that the sender
    /// expects, which no datagram brings. `None` if that is no route header.
    pub fn of_sender(datagram: &Completion, route: &[u8], qkey: u32) -> Option<Self> {
        let ip = route_source(route.first_chunk()?)?;
        Some(Self { ip, number: datagram.source, qkey })
    }

    pub(crate) fn path(self, local: IpAddr) -> AddressVector {
        let (sgid, dgid) = (gid(local), gid(self.ip));
        AddressVector { sgid, dgid, is_global: true, port: 1, ..AddressVector::default() }
    }

    pub(crate) fn destination(self, local: IpAddr) -> Destination {
        Destination { path: self.path(local), qpn: self.number, qkey: self.qkey }
    }
}

/// Who sent a datagram: the header is one of IPv6, or one of IPv4 behind 20 bytes of nothing.
fn route_source(route: &[u8; Address::ROUTE_LEN]) -> Option<IpAddr> {
    let (first, second) = route.split_at(20);
    match (first[0] >> 4, second[0] >> 4) {
        (6, _) => route[8..].first_chunk::<16>().map(|ip| Ipv6Addr::from(*ip).to_canonical()),
        (0, 4) => second[12..].first_chunk::<4>().map(|ip| Ipv4Addr::from(*ip).into()),
        _ => None,
    }
}

/// Whether a queue pair of this host can have the address `ip`.
///
/// # Errors
/// [`Error::System`] if it cannot.
pub(crate) fn check_local(during: &'static str, ip: IpAddr) -> Result<()> {
    socket::check_local(ip).map_err(|source| Error::System { during, source })
}

fn gid(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
