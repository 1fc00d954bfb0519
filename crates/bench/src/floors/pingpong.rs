//! Ping-pong: one message back and forth, repeatedly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// Round trips before those that count, at most.
const WARM_UP: u32 = 100;

/// Sends back what comes, until the client goes.
pub fn serve(mut socket: TcpStream, spin: bool, bytes: usize) -> Result<()> {
    socket.set_nonblocking(spin)?;
    let mut message = vec![0; bytes];
    while receive(&mut socket, &mut message)? {
        send(&mut socket, &message)?;
    }
    Ok(())
}

/// Half of the average round trip.
pub fn measure(mut socket: TcpStream, spin: bool, bytes: usize, time: Duration) -> Result<Value> {
    socket.set_nonblocking(spin)?;
    let mut message = vec![0x5a; bytes];
    let mut rounds = |time: Duration, most: u32| -> Result<f64> {
        let (began, mut count) = (Instant::now(), 0);
        while count < most && (count == 0 || began.elapsed() < time) {
            send(&mut socket, &message)?;
            ensure!(receive(&mut socket, &mut message)?, "the server went away");
            count += 1;
        }
        Ok(began.elapsed().as_secs_f64() * 1e6 / f64::from(count) / 2.0)
    };
    rounds(time / 10, WARM_UP)?;
    Ok(json!({ "us": rounds(time, u32::MAX)? }))
}

fn send(socket: &mut TcpStream, mut message: &[u8]) -> Result<()> {
    while !message.is_empty() {
        match socket.write(message) {
            Ok(count) => message = &message[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Receives a whole message; false if the stream ends instead.
pub fn receive(socket: &mut TcpStream, message: &mut [u8]) -> Result<bool> {
    let mut filled = 0;
    while filled < message.len() {
        match socket.read(&mut message[filled..]) {
            Ok(0) => return Ok(false),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}
