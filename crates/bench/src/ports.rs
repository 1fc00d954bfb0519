//! Ports on this machine: one that is free, and whether somebody listens.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// The tables of sockets, and the states of one that listens: over UDP, of one without a peer.
const TABLES: [(&str, &str); 4] = [
    ("/proc/net/tcp", LISTEN),
    ("/proc/net/tcp6", LISTEN),
    ("/proc/net/udp", UNCONNECTED),
    ("/proc/net/udp6", UNCONNECTED),
];
const LISTEN: &str = "0A";
const UNCONNECTED: &str = "07";

/// A port that the kernel has just called free. Somebody else may take it before its user does.
pub fn free() -> Result<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("asking for a free port")?;
    Ok(socket.local_addr()?.port())
}

/// Whether a socket of this network namespace, of TCP or UDP, listens on `port`.
pub fn is_listening(port: u16) -> Result<bool> {
    for (index, (table, state)) in TABLES.into_iter().enumerate() {
        let text = match fs::read_to_string(table) {
            Err(error) if index == 0 => return Err(error).context(table),
            // A kernel without IPv6 has no tables of it.
            other => other.unwrap_or_default(),
        };
        if text.lines().any(|line| listens(line, port, state)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn listens(line: &str, port: u16, wanted: &str) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next(), fields.nth(1));
    local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_shows_and_its_end_too() {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(is_listening(port).unwrap());
        drop(socket);
        assert!(!is_listening(port).unwrap());
    }

    #[test]
    fn who_waits_for_datagrams_listens() {
        let socket = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(is_listening(port).unwrap());
    }

    #[test]
    fn only_the_local_port_in_the_listening_state_counts() {
        let line = "   0: 0100007F:1F90 0100007F:0050 0A 00000000:00000000 00:00000000";
        assert!(listens(line, 8080, LISTEN));
        assert!(!listens(line, 8080, UNCONNECTED));
        assert!(!listens(line, 80, LISTEN));
        assert!(!listens(&line.replace(" 0A ", " 01 "), 8080, LISTEN));
    }
}
