//! How connections of Shuttle are set up on this machine: sizes, protection, rate control, and
//! numbers that nobody can guess.

use std::net::UdpSocket;

use weft_net::udp;
use weft_os::{clock, random};
use weft_rnic::shuttle::{Identity, MIN_DATAGRAM, Route, ShuttleConfig, cc};
use weft_rnic::wire::shuttle::ConnectionId;
use weft_rnic::wire::shuttle::hello::{placement, protection};

use crate::host::Host;

/// Bytes of a datagram between applications of one machine. Two of them make one bundle, which
/// costs the kernel one packet.
const LOCAL_DATAGRAM: u16 = 32_000;
/// Connections of which nothing is asked last for so long although nothing is heard of the peer:
/// its process may be stopped, its host suspended, the path down.
const IDLE_NS: u64 = 3600 * 1_000_000_000;
/// Bytes of IP and UDP headers, with IPv6.
const HEADERS: u32 = 48;

/// The configuration for a connection of `host` over `route`.
pub fn config(host: &Host, route: &Route) -> ShuttleConfig {
    let settings = host.settings();
    let carries = carries(route);
    let local = carries > u32::from(u16::MAX);
    let datagram_octets = if local { LOCAL_DATAGRAM } else { MIN_DATAGRAM };
    let goal = if local { LOCAL_DATAGRAM } else { carries.saturating_sub(HEADERS) as u16 };
    let config = ShuttleConfig {
        protection: if settings.crc { protection::CRC32C } else { protection::NONE },
        placement: placement::TAIL,
        lost_twice: settings.lost_twice,
        idle_ns: IDLE_NS,
        datagram_octets,
        datagram_octets_goal: goal.max(datagram_octets),
        unix_ms: Some(clock::time_of_day_ms()),
        addresses: host.multipath().map(|_| Vec::new()),
        saved: host.known_paths().and_then(|paths| paths.find(route.remote.ip().to_canonical())),
        controller: cc::weave,
        controller_params: cc::Params {
            seed: u64::from(random::random()),
            ..cc::Params::default()
        },
        ..ShuttleConfig::default()
    };
    host.secrecy().protect(config)
}

/// Numbers for one end of a connection.
pub fn identity() -> Identity {
    let word = || u64::from_ne_bytes(random::random_octets());
    let (cid, entropy) = (ConnectionId(random::random() & !0xff), random::random_octets());
    Identity { cid, nonce: word(), seed: word(), entropy }
}

/// Bytes of the largest packet that leaves towards the peer in one piece, as far as the kernel
/// knows.
fn carries(route: &Route) -> u32 {
    let any = if route.remote.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(route.remote)?;
        Ok(socket)
    });
    socket.ok().and_then(|socket| udp::path_mtu(&socket)).unwrap_or(u32::from(MIN_DATAGRAM))
}
