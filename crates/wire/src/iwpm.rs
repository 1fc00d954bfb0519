//! Messages of the iWARP port mapper, which tells the true TCP port behind a service when an RNIC
//! keeps its ports to itself. They travel over UDP to port [`PORT`].

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use zerocopy::byteorder::network_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// UDP port of the mapper.
pub const PORT: u16 = 3935;
/// Octets of a request.
pub const REQUEST_LEN: usize = 64;
/// Octets of every other message.
pub const REPLY_LEN: usize = 48;

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Asks for the port behind a service.
    Request = 0,
    /// Tells it.
    Accept = 1,
    /// Confirms that it arrived.
    Ack = 2,
    /// Refuses.
    Reject = 3,
}

/// Why octets are no message of the mapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IwpmError {
    /// The datagram ends inside the message.
    #[error("port mapper message is cut short")]
    Short,
    /// Another version of the protocol.
    #[error("port mapper version {0}")]
    Version(u8),
    /// Neither IPv4 nor IPv6.
    #[error("port mapper message for IP version {0}")]
    IpVersion(u8),
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct IwpmWire {
    kind: u8,
    time: u8,
    mapped_connecting_port: U16,
    accepting_port: U16,
    connecting_port: U16,
    handle: U64,
    connecting_ip: [u8; 16],
    accepting_ip: [u8; 16],
}
const _: () = assert!(size_of::<IwpmWire>() == REPLY_LEN);

/// A message of the mapper. All addresses are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IwpmMessage {
    /// What it is for.
    pub kind: MessageType,
    /// Validity of a mapping, in the protocol's own units.
    pub time: u8,
    /// Request: the true port of the side that connects.
    pub mapped_connecting_port: u16,
    /// Request: the port of the service. Accept: the true port to connect to.
    pub accepting_port: u16,
    /// The port that the connecting side knows as its own.
    pub connecting_port: u16,
    /// Names the exchange.
    pub handle: u64,
    /// Address of the connecting side.
    pub connecting_ip: IpAddr,
    /// Address of the accepting side.
    pub accepting_ip: IpAddr,
    /// Request: the true address of the connecting side. Absent from the others.
    pub mapped_connecting_ip: Option<IpAddr>,
}

impl IwpmMessage {
    /// Reads the message at the start of `datagram`.
    pub fn parse(datagram: &[u8]) -> Result<Self, IwpmError> {
        let (wire, rest) = IwpmWire::ref_from_prefix(datagram).map_err(|_| IwpmError::Short)?;
        let (version, ip_version) = (wire.kind >> 6, wire.kind & 0x0f);
        if version != 0 {
            return Err(IwpmError::Version(version));
        }
        let kind = match wire.kind >> 4 & 3 {
            0 => MessageType::Request,
            1 => MessageType::Accept,
            2 => MessageType::Ack,
            _ => MessageType::Reject,
        };
        let mapped = match kind {
            MessageType::Request => Some(rest.first_chunk().ok_or(IwpmError::Short)?),
            _ => None,
        };
        Ok(Self {
            kind,
            time: wire.time,
            mapped_connecting_port: wire.mapped_connecting_port.get(),
            accepting_port: wire.accepting_port.get(),
            connecting_port: wire.connecting_port.get(),
            handle: wire.handle.get(),
            connecting_ip: parse_ip(ip_version, &wire.connecting_ip)?,
            accepting_ip: parse_ip(ip_version, &wire.accepting_ip)?,
            mapped_connecting_ip: mapped.map(|ip| parse_ip(ip_version, ip)).transpose()?,
        })
    }

    /// Appends the message to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let ip_version = if self.connecting_ip.is_ipv4() { 4 } else { 6 };
        let wire = IwpmWire {
            kind: (self.kind as u8) << 4 | ip_version,
            time: self.time,
            mapped_connecting_port: self.mapped_connecting_port.into(),
            accepting_port: self.accepting_port.into(),
            connecting_port: self.connecting_port.into(),
            handle: self.handle.into(),
            connecting_ip: ip_octets(self.connecting_ip),
            accepting_ip: ip_octets(self.accepting_ip),
        };
        out.extend_from_slice(wire.as_bytes());
        if let Some(ip) = self.mapped_connecting_ip {
            out.extend_from_slice(&ip_octets(ip));
        }
    }
}

fn parse_ip(version: u8, octets: &[u8; 16]) -> Result<IpAddr, IwpmError> {
    match version {
        4 => {
            let [a, b, c, d, ..] = *octets;
            Ok(Ipv4Addr::new(a, b, c, d).into())
        }
        6 => Ok(Ipv6Addr::from(*octets).into()),
        _ => Err(IwpmError::IpVersion(version)),
    }
}

fn ip_octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&ip.octets());
            octets
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_round_trip_without_a_mapped_address() {
        for kind in [MessageType::Accept, MessageType::Ack, MessageType::Reject] {
            let message = IwpmMessage {
                kind,
                time: 3,
                mapped_connecting_port: 1,
                accepting_port: 2,
                connecting_port: 3,
                handle: 4,
                connecting_ip: Ipv6Addr::LOCALHOST.into(),
                accepting_ip: Ipv6Addr::UNSPECIFIED.into(),
                mapped_connecting_ip: None,
            };
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            assert_eq!(bytes.len(), REPLY_LEN);
            assert_eq!(IwpmMessage::parse(&bytes), Ok(message));
            assert_eq!(IwpmMessage::parse(&bytes[..REPLY_LEN - 1]), Err(IwpmError::Short));
        }
    }

    #[test]
    fn strange_versions_are_refused() {
        let mut bytes = [0; REQUEST_LEN];
        bytes[0] = 0x45;
        assert_eq!(IwpmMessage::parse(&bytes), Err(IwpmError::Version(1)));
        bytes[0] = 0x05;
        assert_eq!(IwpmMessage::parse(&bytes), Err(IwpmError::IpVersion(5)));
        bytes[0] = 0x04;
        assert_eq!(IwpmMessage::parse(&bytes[..REPLY_LEN]), Err(IwpmError::Short));
    }
}
