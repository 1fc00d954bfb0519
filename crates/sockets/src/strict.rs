//! Where the kernel's TCP does not take the place of SDP.
//!
//! Once there is a key, or `WEFT_SOCKETS=strict` says so, a socket speaks to another host by SDP or
//! not at all, unless a rule leaves it to TCP. What stays on this machine may go by TCP, as it may
//! by iWARP.
//!
//! Invariant: no octet of a program goes to another host, or comes from one, by a TCP connection
//! for which [`forbids_tcp`] holds.

use std::ffi::c_int;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::RawFd;
use std::time::Duration;

use weft_net::secrecy::{Lower, Secrecy};

use crate::settings::Settings;
use crate::{permits_client, permits_server, sys};

/// What `connect` fails with: nobody there takes what this program may send.
pub const REFUSED: c_int = libc::ECONNREFUSED;
/// How long a peer may be silent before it is mentioned.
pub const MENTIONED_AFTER: Duration = Duration::from_millis(1500);
/// How long it may take to answer: there is nothing else to be done in its place, and packets that
/// were lost are sent again by then.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Whether nothing may pass by TCP between `local` and `remote`, of what no rule leaves to it.
pub fn forbids_tcp(local: IpAddr, remote: IpAddr) -> bool {
    let decide = || Secrecy::get().decide(Lower::Sockets, local, remote);
    Settings::get().strict && decide().is_err()
}

/// Whether the program's TCP socket `fd` may not be connected to `remote` by TCP itself.
pub fn forbids_call(fd: RawFd, remote: SocketAddr) -> bool {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let local = sys::local(fd).map_or(any, |at| at.ip());
    !Settings::get().off && permits_client(remote) && forbids_tcp(local, remote.ip())
}

/// Why the kernel would have no way to `remote`, if it had none.
pub fn route_error(remote: SocketAddr) -> Option<c_int> {
    let any: IpAddr = match remote {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    // Connecting a datagram socket sends nothing; it only asks for the route.
    UdpSocket::bind((any, 0)).ok()?.connect(remote).err()?.raw_os_error()
}

/// Whether `stream`, which the program has accepted from `peer` at `listener`, is not to be served;
/// says so.
pub fn turns_away(listener: RawFd, stream: RawFd, peer: SocketAddr) -> bool {
    let ours = sys::local(listener).is_ok_and(permits_server);
    ours && sys::local(stream).is_ok_and(|at| refuses_caller(at.ip(), peer.ip()))
}

/// Whether a caller that does not speak SDP is not to be served; says so.
pub fn refuses_caller(local: IpAddr, peer: IpAddr) -> bool {
    forbids_tcp(local, peer) && Secrecy::get().admit(Lower::Sockets, local, peer).is_err()
}

/// Has a TCP socket that is not connected, or no more to be, end as one does that is refused: the
/// kernel tells whoever polls, in whichever process.
pub fn refuse(tcp: RawFd, remote: SocketAddr) {
    sys::disconnect(tcp);
    let nobody = match remote.ip() {
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some() => {
            Ipv4Addr::LOCALHOST.to_ipv6_mapped().into()
        }
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    // Nobody can listen at port 0, and this machine says so. Where even that cannot be asked the
    // socket is not connected, which is no less true.
    let _refused = sys::connect(tcp, &SocketAddr::new(nobody, 0));
}
