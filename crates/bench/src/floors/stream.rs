//! One stream: the same buffer sent repeatedly, received into the same buffer.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::sockopt::set_socket_linger;
use serde_json::{Value, json};

use crate::sys;

/// Receives until the client has nothing more, or has had enough; then says how much it was.
pub fn serve(mut socket: TcpStream, call: usize) -> Result<()> {
    let mut buffer = vec![0; call];
    let mut bytes: u64 = 0;
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => bytes += count as u64,
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return Ok(()),
            Err(e) => return Err(e.into()),
        }
    }
    socket.write_all(&bytes.to_be_bytes())?;
    Ok(())
}

/// Sends for `time`, after a tenth of it that does not count, or so many `bytes` if they all
/// arrive in that time. What counts is what the server received, until it had it all; where the
/// time was too short for `bytes`, what its kernel acknowledged by then.
pub fn measure(
    mut socket: TcpStream,
    call: usize,
    time: Duration,
    bytes: Option<u64>,
) -> Result<Value> {
    let buffer = vec![0x5a; call];
    let before = if bytes.is_none() { warm_up(&mut socket, &buffer, time / 10)? } else { 0 };
    let mut left = bytes.unwrap_or(u64::MAX);
    let mut sent = 0;
    let began = Instant::now();
    while left > 0 && began.elapsed() < time {
        let count = left.min(call as u64);
        socket.write_all(&buffer[..count as usize])?;
        left -= count;
        sent += count;
    }
    let report = |bytes: u64| {
        let gbps = bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9;
        json!({ "gbps": gbps, "bytes": bytes as f64 })
    };
    let whole = bytes.is_none() || left == 0;
    let rest = bytes.map(|_| time.saturating_sub(began.elapsed()).max(Duration::from_millis(1)));
    if let Some(received) = whole.then(|| await_count(&mut socket, rest)).transpose()?.flatten() {
        return Ok(report(received.saturating_sub(before)));
    }
    let acknowledged = sent.saturating_sub(sys::unacknowledged(socket.as_fd())?);
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    Ok(report(acknowledged))
}

/// Sends for a while; how much it was.
fn warm_up(socket: &mut TcpStream, buffer: &[u8], time: Duration) -> Result<u64> {
    let (began, mut sent) = (Instant::now(), 0);
    while began.elapsed() < time {
        socket.write_all(buffer)?;
        sent += buffer.len() as u64;
    }
    Ok(sent)
}

/// What the server received in all; nothing if it does not have it all in this time.
fn await_count(socket: &mut TcpStream, time: Option<Duration>) -> Result<Option<u64>> {
    socket.shutdown(Shutdown::Write)?;
    socket.set_read_timeout(time)?;
    let mut received = [0; 8];
    match socket.read_exact(&mut received) {
        Ok(()) => Ok(Some(u64::from_be_bytes(received))),
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => Ok(None),
        Err(e) => Err(e.into()),
    }
}
