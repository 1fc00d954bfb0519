//! The transport below SDP, and the parameters of connections over it.

use std::net::SocketAddr;

use libc::c_int;
use weft_host::{CmTransport, DeviceKind};
use weft_rdmacm::ConnParam;

use crate::rdma;

/// Flips the port of a TCP listener into that of its iWARP listener, which is in the same space.
const IWARP_PORT_BIT: u16 = 0x8000;

/// A device, and the transport that connects its queue pairs.
#[derive(Clone, Copy)]
pub struct Fabric {
    /// The kind of device.
    pub personality: DeviceKind,
    /// The transport of that device.
    pub transport: CmTransport,
    /// The transport's name, for people.
    pub name: &'static str,
    /// Whether the peer's answer by SDP comes before the connect by TCP: it takes longer then.
    pub sdp_first: bool,
}

impl Fabric {
    /// iWARP if `iwarp`, else Shuttle.
    pub fn new(iwarp: bool) -> Self {
        if iwarp {
            let (personality, transport) = (DeviceKind::Iwarp, CmTransport::Iwarp);
            Self { personality, transport, name: "iWARP", sdp_first: true }
        } else {
            let (personality, transport) = (DeviceKind::Roce, CmTransport::Shuttle);
            // Under a key a listener has its peer prove its address: one round trip more.
            let sdp_first = rdma::host().secrecy().has_key();
            Self { personality, transport, name: "Shuttle", sdp_first }
        }
    }

    /// The protocol of IP that carries the Hello.
    pub fn protocol(&self) -> c_int {
        match self.personality {
            DeviceKind::Iwarp => libc::IPPROTO_TCP,
            DeviceKind::Roce => libc::IPPROTO_UDP,
        }
    }

    /// The address of SDP for the TCP socket at `at`.
    pub fn address_for(&self, mut at: SocketAddr) -> SocketAddr {
        if self.personality == DeviceKind::Iwarp {
            at.set_port(at.port() ^ IWARP_PORT_BIT);
        }
        at
    }
}

/// The connection parameters of both ends, with a Hello or HelloAck as private data.
pub fn conn_param(private_data: Vec<u8>) -> ConnParam {
    ConnParam { private_data, ..ConnParam::device_max() }
}
