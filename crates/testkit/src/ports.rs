//! Ports for programs that have to be told one, and those of programs that cannot be told.
//!
//! Tests of several processes choose ports at the same time, and some time passes before a program
//! has bound its own. So a port is claimed by a socket with its name, which no two processes of a
//! network can have, until the claim is dropped or its process ends.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use crate::running::{LIMIT, now};

/// The first port that is handed out here; those below belong to services.
const FIRST: u32 = 10_000;
/// Where the kernel begins to choose by itself, unless it says otherwise.
const EPHEMERAL: u32 = 32_768;
/// How often to look whether a port is claimed no more.
const LOOK: Duration = Duration::from_millis(20);

/// A port that nobody has in TCP or UDP, and no other test gets. No connection gets it by chance
/// before its user does, because it is none of those that the kernel chooses from.
pub fn free_port() -> u16 {
    static TURNS: AtomicU32 = AtomicU32::new(0);
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    let span = kernels_first().saturating_sub(FIRST).max(1);
    let own = std::process::id().wrapping_mul(7919);
    loop {
        let turn = TURNS.fetch_add(1, Ordering::Relaxed);
        assert!(turn < span, "no port from {FIRST} on is free");
        let port = (FIRST + own.wrapping_add(turn) % span) as u16;
        if let Ok(claim) = claim(port)
            && is_free(port)
        {
            CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
            return port;
        }
    }
}

/// A port of a program that cannot be told another: its tests' turn, until this is dropped.
#[derive(Debug)]
pub struct FixedPort {
    _claim: UnixListener,
}

impl FixedPort {
    /// Waits until no test of any process has `port`.
    ///
    /// # Panics
    /// When that does not come in time.
    pub fn claim(port: u16) -> Self {
        let deadline = now() + LIMIT;
        loop {
            match claim(port) {
                Ok(claim) => return Self { _claim: claim },
                Err(error) => assert!(now() < deadline, "port {port} is claimed: {error}"),
            }
            std::thread::park_timeout(LOOK);
        }
    }
}

fn claim(port: u16) -> io::Result<UnixListener> {
    let name = SocketAddr::from_abstract_name(format!("weft-test-port-{port}"))?;
    UnixListener::bind_addr(&name)
}

fn is_free(port: u16) -> bool {
    let anywhere: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    anywhere.into_iter().all(|ip| {
        let bound = TcpListener::bind((ip, port)).and_then(|_| UdpSocket::bind((ip, port)));
        // Who has no IPv6 has no sockets of it either.
        bound.map_or_else(|error| is_without_family(&error), |_| true)
    })
}

fn is_without_family(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error())
}

/// The first port that the kernel may choose.
fn kernels_first() -> u32 {
    let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok());
    first.filter(|first| *first > FIRST).unwrap_or(EPHEMERAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_claimed_as_long_as_it_may_be_used() {
        let port = free_port();
        assert_eq!(claim(port).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        // Of a service that no test has.
        let fixed = FixedPort::claim(9);
        assert!(claim(9).is_err());
        drop(fixed);
        FixedPort::claim(9);
    }

    #[test]
    fn a_port_that_a_program_has_is_not_free() {
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let udp = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let ports = [tcp.local_addr().unwrap().port(), udp.local_addr().unwrap().port()];
        assert_eq!(ports.map(is_free), [false; 2]);
    }
}
