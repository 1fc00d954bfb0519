//! Whether IP cuts datagrams into fragments. Shuttle's search for what the path takes needs to see
//! its probes arrive whole or not at all (RFC 8899, section 3); what it sends again in pieces that
//! were cut for a longer path may be cut.

use std::os::fd::BorrowedFd;

use libc::{
    IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_PROBE, IP_PMTUDISC_WANT, IPPROTO_IP,
    IPPROTO_IPV6, IPV6_MTU, IPV6_MTU_DISCOVER, IPV6_PMTUDISC_DONT, IPV6_PMTUDISC_PROBE,
    IPV6_PMTUDISC_WANT,
};
use weft_os::options::{option, set_option};
use weft_rnic::shuttle::MIN_DATAGRAM;

/// Bytes of a packet that every path of IPv6 takes (RFC 8200, section 5): its routers cut none.
const IPV6_MIN_MTU: libc::c_int = 1280;

/// Who may cut a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DatagramCuts {
    /// Nobody.
    Never,
    /// This host, if it takes none of that length: every path is to take it.
    IfRefused,
    /// This host and the routers on the way.
    Anywhere,
}

impl DatagramCuts {
    /// Of datagrams that have `octets` bytes together.
    pub(super) fn of_datagram(octets: usize) -> Self {
        if octets <= usize::from(MIN_DATAGRAM) { Self::IfRefused } else { Self::Never }
    }
}

/// Has what the socket sends leave whole, also where the kernel has heard of a shorter path.
pub(super) fn keep_whole(socket: BorrowedFd<'_>) {
    set_both(socket, IP_PMTUDISC_PROBE, IPV6_PMTUDISC_PROBE);
}

/// Has the kernel cut what is longer than the path takes, as far as it has heard of that.
pub(super) fn cut_long(socket: BorrowedFd<'_>) {
    set_both(socket, IP_PMTUDISC_WANT, IPV6_PMTUDISC_WANT);
}

/// Sends something that may be cut on the way. What other threads send meanwhile may be too.
pub(super) fn with_cuts<T>(socket: BorrowedFd<'_>, send: impl FnOnce() -> T) -> T {
    let limit = |octets| set_option(socket, IPPROTO_IPV6, IPV6_MTU, octets);
    let before = is_cut(socket);
    set_both(socket, IP_PMTUDISC_DONT, IPV6_PMTUDISC_DONT);
    let limited = limit(IPV6_MIN_MTU);
    let sent = send();
    if limited {
        limit(0);
    }
    if before {
        cut_long(socket);
    } else {
        keep_whole(socket);
    }
    sent
}

/// Whether the kernel cuts what is too long.
pub(super) fn is_cut(socket: BorrowedFd<'_>) -> bool {
    option(socket, IPPROTO_IP, IP_MTU_DISCOVER) == Some(IP_PMTUDISC_WANT as u32)
}

/// A socket of IPv4 refuses the second, and one of both takes the first for mapped addresses.
fn set_both(socket: BorrowedFd<'_>, v4: libc::c_int, v6: libc::c_int) {
    set_option(socket, IPPROTO_IP, IP_MTU_DISCOVER, v4);
    set_option(socket, IPPROTO_IPV6, IPV6_MTU_DISCOVER, v6);
}
