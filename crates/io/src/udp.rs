//! UDP sockets.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use weft_verbs::Misuse;

use crate::sys;

/// The socket of a queue pair, which the pair's number leads to.
pub(crate) struct Port {
    _socket: UdpSocket,
    number: u32,
}

impl Port {
    /// Opens a socket on every address of the machine, at a port that the kernel chooses.
    pub fn bind() -> Result<Self, Misuse> {
        let refused =
            |error: std::io::Error| Misuse::System(error.raw_os_error().unwrap_or(libc::EIO));
        let socket = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))
            .or_else(|_| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))
            .map_err(refused)?;
        let port = socket.local_addr().map_err(refused)?.port();
        let number = u32::from(port) << 8 | sys::random() & 0xff;
        Ok(Self { _socket: socket, number })
    }

    /// The number of the queue pair: the UDP port, and an octet that tells it from its predecessor
    /// at the same port.
    pub fn qp_number(&self) -> u32 {
        self.number
    }
}
