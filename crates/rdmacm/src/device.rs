//! The two devices as the connection manager sees them, the port spaces, and addresses and errors
//! of sockets in its terms.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use weft_host::CmTransport;
use weft_rnic::cm::{CmConvention, Depths, DeviceProperties, Failure};
use weft_verbs::Limits;

/// Hops that the Internet may take: of the address vectors of connections.
pub const HOP_LIMIT: u8 = 64;

/// What the manager must know of an RNIC.
pub(crate) const IWARP: DeviceProperties = device(&weft_verbs::limits::IWARP, CmConvention::Iwarp);

/// What it must know of an adapter for ids of `space`.
pub(crate) const fn roce(space: PortSpace) -> DeviceProperties {
    let manner = match space {
        PortSpace::Tcp => CmConvention::InfiniBand,
        PortSpace::Udp => CmConvention::Datagrams,
    };
    device(&weft_verbs::limits::ROCE, manner)
}

const fn device(limits: &Limits, manner: CmConvention) -> DeviceProperties {
    let (ird, ord) = (limits.max_qp_rd_atom as u16, limits.max_qp_init_rd_atom as u16);
    DeviceProperties { depths: Depths { ird, ord }, manner }
}

/// Where the ports of an id come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortSpace {
    /// Reliable connections.
    Tcp,
    /// Datagrams: an id finds, or says, which queue pair takes them.
    Udp,
}

/// The device that an id of `space` is on until it is known where it leads.
pub(crate) fn likely(transport: CmTransport, space: PortSpace) -> DeviceProperties {
    if transport == CmTransport::Iwarp { IWARP } else { roce(space) }
}

/// "Any address" of the family of `addr`.
pub(crate) fn wildcard(addr: &SocketAddr) -> SocketAddr {
    if addr.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    }
}

/// An error of a socket call as an outcome of a connection attempt.
pub(crate) fn failure(error: &std::io::Error) -> Failure {
    Failure::from_errno(error.raw_os_error().unwrap_or(libc::EIO))
}
