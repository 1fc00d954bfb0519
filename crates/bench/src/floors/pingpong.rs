//! Ping-pong: one message back and forth, repeatedly.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::reading::median;

/// Round trips before those that count, at most.
const WARM_UP: usize = 100;

/// Sends back what comes, until the client goes.
pub fn serve(mut socket: TcpStream, spin: bool, bytes: usize) -> Result<()> {
    socket.set_nonblocking(spin)?;
    let mut message = vec![0; bytes];
    while receive(&mut socket, &mut message)? {
        send(&mut socket, &message)?;
    }
    Ok(())
}

/// Halves of round trips: their mean and their median.
pub fn measure(mut socket: TcpStream, spin: bool, bytes: usize, time: Duration) -> Result<Value> {
    socket.set_nonblocking(spin)?;
    let mut message = vec![0x5a; bytes];
    let mut trip = || {
        send(&mut socket, &message)?;
        ensure!(receive(&mut socket, &mut message)?, "the server went away");
        Ok(())
    };
    round_trips(time / 10, WARM_UP, &mut trip)?;
    round_trips(time, usize::MAX, &mut trip)
}

/// Makes round trips for `time`, at least one and no more than `most`, and reports half of their
/// mean and of their median.
pub fn round_trips(
    time: Duration,
    most: usize,
    trip: &mut dyn FnMut() -> Result<()>,
) -> Result<Value> {
    let mut trips_us = Vec::new();
    let began = Instant::now();
    let mut before = began;
    while trips_us.is_empty() || (trips_us.len() < most && before - began < time) {
        trip()?;
        let now = Instant::now();
        trips_us.push((now - before).as_secs_f64() * 1e6);
        before = now;
    }
    let mean = (before - began).as_secs_f64() * 1e6 / trips_us.len() as f64;
    Ok(json!({ "us": mean / 2.0, "p50": median(trips_us) / 2.0 }))
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
