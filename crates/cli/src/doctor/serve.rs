//! `weft doctor --serve`: the far end of `weft doctor --peer`.
//!
//! Invariant: a datagram is answered only if it has the token of an exchange, which only who made
//! the TCP connection knows, and by one that is no longer.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use weft_os::random;

use super::exchange::{DoctorLines, DoctorRequest, PROBE_BYTES, ProbeCount, canonical, introduce};

/// A client that says nothing for so long is left.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long datagrams are waited for before it is looked whether the exchange has ended.
const TICK: Duration = Duration::from_millis(50);
/// Datagrams that are sent unasked: one may be lost.
const UNASKED: usize = 3;
/// The longest datagram.
const DATAGRAM_MAX: usize = 65536;

/// Answers until it is ended.
///
/// # Errors
/// The port cannot be had.
pub fn main(port: u16) -> Result<()> {
    let (listener, udp) = bind(port).with_context(|| format!("cannot listen at port {port}"))?;
    let at = listener.local_addr()?.port();
    writeln!(io::stdout(), "weft doctor: listening on port {at} of TCP and UDP")?;
    loop {
        let Ok((stream, from)) = listener.accept() else { continue };
        let said = serve(stream, from, &udp);
        let outcome = said.map_or_else(|error| error.to_string(), |()| "done".into());
        writeln!(io::stdout(), "{}: {outcome}", canonical(from))?;
    }
}

/// Both sockets at one port, of both families where there are.
fn bind(port: u16) -> io::Result<(TcpListener, UdpSocket)> {
    let at = |ip: IpAddr| -> io::Result<_> {
        let listener = TcpListener::bind((ip, port))?;
        let udp = UdpSocket::bind((ip, listener.local_addr()?.port()))?;
        Ok((listener, udp))
    };
    at(Ipv6Addr::UNSPECIFIED.into()).or_else(|_| at(Ipv4Addr::UNSPECIFIED.into()))
}

fn serve(stream: TcpStream, from: SocketAddr, udp: &UdpSocket) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    udp.set_read_timeout(Some(TICK))?;
    let token = u64::from_ne_bytes(random::random_octets());
    let mut lines = DoctorLines::new(stream);
    lines.say(&introduce(from, token))?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let echo = scope.spawn(|| echo(udp, token, &over));
        let heard = answer(&mut lines, from, token);
        over.store(true, Ordering::Release);
        let count = echo.join().unwrap_or(ProbeCount { received: 0, from: None });
        heard?;
        lines.say(&count)
    })
}

/// Does what is asked for, until the client wants to know the count.
fn answer(lines: &mut DoctorLines, from: SocketAddr, token: u64) -> io::Result<()> {
    loop {
        match lines.hear()? {
            DoctorRequest::Count => return Ok(()),
            DoctorRequest::Unasked { port } => {
                let any: IpAddr = match from {
                    SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                    SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
                };
                let mut to = from;
                to.set_port(port);
                let socket = UdpSocket::bind((any, 0))?;
                for _ in 0..UNASKED {
                    socket.send_to(&token.to_be_bytes(), to)?;
                }
            }
        }
    }
}

/// Sends probes back to where they came from until the exchange is over.
fn echo(udp: &UdpSocket, token: u64, over: &AtomicBool) -> ProbeCount {
    let mut count = ProbeCount { received: 0, from: None };
    let mut room = vec![0; DATAGRAM_MAX];
    while !over.load(Ordering::Acquire) {
        match udp.recv_from(&mut room) {
            Ok((length, from)) if room[..length].starts_with(&token.to_be_bytes()) => {
                count.received += u64::from(length == PROBE_BYTES);
                count.from.get_or_insert(canonical(from));
                // One that cannot be sent is lost, as on the path.
                let _ = udp.send_to(&room[..length], from);
            }
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // What ICMP says of an earlier datagram.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(_) => break,
        }
    }
    count
}
