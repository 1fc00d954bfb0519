//! The two devices as the connection manager sees them, the port spaces, and addresses and errors
//! of sockets in its terms.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use weft_host::CmTransport;
use weft_rnic::cm::{CmConvention, Depths, DeviceProperties, Failure};
use weft_verbs::Limits;

/// What the manager must know of each device.
pub(crate) const IWARP: DeviceProperties = device(&weft_verbs::limits::IWARP, CmConvention::Iwarp);
pub(crate) const ROCE: DeviceProperties =
    device(&weft_verbs::limits::ROCE, CmConvention::InfiniBand);

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

/// The device that an id is on until it is known where it leads.
pub(crate) fn likely(transport: CmTransport) -> DeviceProperties {
    if transport == CmTransport::Iwarp { IWARP } else { ROCE }
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
