//! TCP ports on this machine: one that is free, and whether somebody listens.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Context, Result};

/// The state of a listening socket in /proc/net/tcp.
const LISTEN: &str = "0A";

/// A port that the kernel has just called free. Somebody else may take it before its user does.
pub fn free() -> Result<u16> {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("asking for a free port")?;
    Ok(socket.local_addr()?.port())
}

/// Whether a TCP socket of this network namespace listens on `port`.
pub fn is_listening(port: u16) -> Result<bool> {
    let four = fs::read_to_string("/proc/net/tcp").context("reading /proc/net/tcp")?;
    // A kernel without IPv6 has no second table.
    let six = fs::read_to_string("/proc/net/tcp6").unwrap_or_default();
    Ok(four.lines().chain(six.lines()).any(|line| listens(line, port)))
}

fn listens(line: &str, port: u16) -> bool {
    let mut fields = line.split_whitespace().skip(1);
    let (local, state) = (fields.next(), fields.nth(1));
    local.is_some_and(|local| local.ends_with(&format!(":{port:04X}"))) && state == Some(LISTEN)
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
    fn only_the_local_port_in_the_listening_state_counts() {
        let line = "   0: 0100007F:1F90 0100007F:0050 0A 00000000:00000000 00:00000000";
        assert!(listens(line, 8080));
        assert!(!listens(line, 80));
        assert!(!listens(&line.replace(" 0A ", " 01 "), 8080));
    }
}
