//! One stream: the same buffer sent over and over, received into the same buffer.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

/// Receives until the client has nothing more, then says how much it was.
pub fn serve(mut socket: TcpStream, call: usize) -> Result<()> {
    let mut buffer = vec![0; call];
    let mut octets: u64 = 0;
    loop {
        match socket.read(&mut buffer)? {
            0 => break,
            count => octets += count as u64,
        }
    }
    socket.write_all(&octets.to_be_bytes())?;
    Ok(())
}

/// Sends for `time`, or so many `octets`; what counts is what the server received, until it had it
/// all.
pub fn measure(
    mut socket: TcpStream,
    call: usize,
    time: Duration,
    octets: Option<u64>,
) -> Result<Value> {
    let buffer = vec![0x5a; call];
    let mut left = octets.unwrap_or(u64::MAX);
    let began = Instant::now();
    while left > 0 && (octets.is_some() || began.elapsed() < time) {
        let count = left.min(call as u64);
        socket.write_all(&buffer[..count as usize])?;
        left -= count;
    }
    socket.shutdown(Shutdown::Write)?;
    let mut received = [0; 8];
    socket.read_exact(&mut received)?;
    let octets = u64::from_be_bytes(received) as f64;
    let gbps = octets * 8.0 / began.elapsed().as_secs_f64() / 1e9;
    Ok(json!({ "gbps": gbps, "octets": octets }))
}
