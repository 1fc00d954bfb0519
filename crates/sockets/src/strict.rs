//! Strict mode: TCP does not take the place of SDP.
//!
//! With a key, or with `WEFT_SOCKETS=strict`, a socket reaches another host by SDP or not at all,
//! unless a rule leaves it to TCP. Connections within this machine may use TCP, as they may iWARP.
//!
//! Invariant: no byte of an application goes to another host, or comes from one, by a TCP
//! connection for which [`forbids_tcp`] holds.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;
use std::time::Duration;

use weft_net::secrecy::PeerTransport;

use crate::settings::SocketSettings;
use crate::{rdma, sys};

/// The errno of `connect` where only TCP would reach the peer.
pub const REFUSED: c_int = libc::ECONNREFUSED;
/// How long a peer may be silent before that is reported.
pub const REPORTED_AFTER: Duration = Duration::from_millis(1500);
/// How long a peer may take to answer: lost packets are retransmitted in that time, and there is
/// nothing to fall back on.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// Whether TCP between `local` and `remote` is forbidden, where no rule leaves it to TCP.
pub fn forbids_tcp(settings: &SocketSettings, local: IpAddr, remote: IpAddr) -> bool {
    let decide = || rdma::host().secrecy().decide(PeerTransport::Sockets, local, remote);
    settings.strict && decide().is_err()
}

/// Whether the application's TCP socket `fd` may not be connected to `remote` by TCP.
pub fn forbids_connect(settings: &SocketSettings, fd: RawFd, remote: SocketAddr) -> bool {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let local = sys::local(fd).map_or(any, |at| at.ip());
    !settings.off && settings.permits_client(remote) && forbids_tcp(settings, local, remote.ip())
}

/// The errno of a connect to `remote` without a route, if there is none.
pub fn route_error(remote: SocketAddr) -> Option<c_int> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing; it only asks for the route.
    UdpSocket::bind((any, 0)).ok()?.connect(remote).err()?.raw_os_error()
}

/// Whether `stream`, which was accepted from `peer` at `listener`, is to be reset; reports it.
pub fn turns_away(
    settings: &SocketSettings,
    listener: RawFd,
    stream: RawFd,
    peer: SocketAddr,
) -> bool {
    let ours = sys::local(listener).is_ok_and(|at| settings.permits_server(at));
    ours && sys::local(stream).is_ok_and(|at| refuses_peer(settings, at.ip(), peer.ip()))
}

/// Whether a peer that does not speak SDP is refused; reports it.
pub fn refuses_peer(settings: &SocketSettings, local: IpAddr, peer: IpAddr) -> bool {
    forbids_tcp(settings, local, peer)
        && rdma::host().secrecy().admit(PeerTransport::Sockets, local, peer).is_err()
}

/// Makes the kernel report a refused connect on a TCP socket that is not connected, to whoever
/// polls it, in any process.
pub fn refuse(tcp: RawFd, remote: SocketAddr) {
    sys::disconnect(tcp);
    let nobody = match remote.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()
        }
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    // Nobody can listen at port 0, so this machine refuses. If the connect fails at once the socket
    // stays unconnected, which serves as well.
    let _refused = sys::connect(tcp, &SocketAddr::new(nobody, 0));
}
