//! A message to and fro, over and over.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::MESSAGE;

/// Sends back what comes, until the client goes.
pub fn serve(mut socket: TcpStream, spin: bool) -> Result<()> {
    socket.set_nonblocking(spin)?;
    let mut message = [0; MESSAGE];
    while receive(&mut socket, &mut message)? {
        socket.write_all(&message)?;
    }
    Ok(())
}

/// Half of the average round trip.
pub fn measure(mut socket: TcpStream, spin: bool, time: Duration) -> Result<Value> {
    socket.set_nonblocking(spin)?;
    let mut message = [0x5a; MESSAGE];
    let mut rounds: u32 = 0;
    let began = Instant::now();
    while began.elapsed() < time {
        socket.write_all(&message)?;
        if !receive(&mut socket, &mut message)? {
            bail!("the server went away");
        }
        rounds += 1;
    }
    let us = began.elapsed().as_secs_f64() * 1e6 / f64::from(rounds) / 2.0;
    Ok(json!({ "us": us }))
}

/// Receives a whole message; false if the stream ends instead.
pub fn receive(socket: &mut TcpStream, message: &mut [u8; MESSAGE]) -> Result<bool> {
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
