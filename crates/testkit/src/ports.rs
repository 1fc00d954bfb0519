//! Ports for programs that have to be told one.

use std::fs;
use std::net::{Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first port that is handed out here; those below belong to services.
const FIRST: u32 = 10_000;
/// Where the kernel begins to choose by itself, unless it says otherwise.
const EPHEMERAL: u32 = 32_768;

/// A port that nobody has in TCP or UDP. No connection gets it by chance before its user does,
/// because it is none of those that the kernel chooses from; and it is handed out once.
pub fn free_port() -> u16 {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    let span = kernels_first().saturating_sub(FIRST).max(1);
    let own = std::process::id().wrapping_mul(7919);
    loop {
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        assert!(turn < span, "no port from {FIRST} on is free");
        let port = (FIRST + own.wrapping_add(turn) % span) as u16;
        let free = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok()
            && UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port)).is_ok();
        if free {
            return port;
        }
    }
}

/// The first port that the kernel may choose.
fn kernels_first() -> u32 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST).unwrap_or(EPHEMERAL)
}
