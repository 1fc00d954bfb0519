//! Bidirectional streams, for the same time. The server ends its own when it has read the end of
//! the client's, so that the client learns that all has arrived.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Sends as the client does, from its first byte on.
pub fn serve(mut socket: TcpStream, call: usize, time: Duration) -> Result<()> {
    socket.read_exact(&mut [0])?;
    let reader = reader(&socket, call)?;
    send(&mut socket, call, time)?;
    drop(reader.join());
    socket.shutdown(Shutdown::Write)?;
    Ok(())
}

/// Throughput of both directions together, from the first byte to the last.
pub fn measure(mut socket: TcpStream, call: usize, time: Duration) -> Result<Value> {
    let began = Instant::now();
    socket.write_all(&[0])?;
    let reader = reader(&socket, call)?;
    let sent = send(&mut socket, call, time)?;
    socket.shutdown(Shutdown::Write)?;
    let received = reader.join().ok().context("the reader failed")??;
    let bytes = (sent + received) as f64;
    let gbps = bytes * 8.0 / began.elapsed().as_secs_f64() / 1e9;
    Ok(json!({ "gbps": gbps, "bytes": bytes }))
}

fn send(socket: &mut TcpStream, call: usize, time: Duration) -> Result<u64> {
    let (buffer, began, mut sent) = (vec![0x5a; call], Instant::now(), 0);
    while began.elapsed() < time {
        socket.write_all(&buffer)?;
        sent += call as u64;
    }
    Ok(sent)
}

/// A thread that reads to the end and counts.
fn reader(socket: &TcpStream, call: usize) -> Result<thread::JoinHandle<std::io::Result<u64>>> {
    let mut socket = socket.try_clone()?;
    Ok(thread::spawn(move || {
        let (mut buffer, mut bytes) = (vec![0; call], 0);
        loop {
            match socket.read(&mut buffer)? {
                0 => return Ok(bytes),
                count => bytes += count as u64,
            }
        }
    }))
}
