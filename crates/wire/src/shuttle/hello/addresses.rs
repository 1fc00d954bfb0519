//! Addresses in handshake packets: an IPv6 address, IPv4 as a mapped one, and a port.

use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::shuttle::ShuttleError;

/// Addresses that a handshake packet names at most.
pub const MAX_ADDRESSES: usize = 8;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(super) struct AddressWire {
    ip: [u8; 16],
    port: U16,
}
pub(super) const ADDRESS_LEN: usize = size_of::<AddressWire>();
const _: () = assert!(ADDRESS_LEN == 18);

impl AddressWire {
    pub(super) fn new(at: SocketAddr) -> Self {
        let ip = match at.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        Self { ip: ip.octets(), port: at.port().into() }
    }

    pub(super) fn get(&self) -> SocketAddr {
        let ip = IpAddr::V6(Ipv6Addr::from(self.ip)).to_canonical();
        SocketAddr::new(ip, self.port.get())
    }
}

/// Further addresses of the sender of a handshake packet, [`MAX_ADDRESSES`] at most (S-75).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressList<'a>(pub(super) &'a [u8]);

impl<'a> AddressList<'a> {
    /// No address.
    pub const EMPTY: Self = Self(&[]);

    /// The first [`MAX_ADDRESSES`] of `addresses`; `room` is for them as they travel.
    pub fn encode(addresses: &[SocketAddr], room: &'a mut Vec<u8>) -> Self {
        room.clear();
        for at in addresses.iter().take(MAX_ADDRESSES) {
            room.extend(AddressWire::new(*at).as_bytes());
        }
        Self(room)
    }

    pub(super) fn parse(octets: &'a [u8]) -> Result<Self, ShuttleError> {
        let is_whole = octets.len().is_multiple_of(ADDRESS_LEN);
        let valid = is_whole && octets.len() <= MAX_ADDRESSES * ADDRESS_LEN;
        if valid { Ok(Self(octets)) } else { Err(ShuttleError::Value("addresses")) }
    }

    /// The addresses; those of IPv4 are never mapped ones.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddr> + use<'a> {
        let (wires, _) = self.0.as_chunks::<ADDRESS_LEN>();
        wires.iter().filter_map(|wire| Some(AddressWire::ref_from_bytes(wire).ok()?.get()))
    }
}
