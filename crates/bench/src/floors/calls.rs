//! Cost of socket calls: medians in microseconds.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::MESSAGE;
use crate::reading::median;

const SAMPLES: usize = 101;

/// Reads until the client goes.
pub fn serve(mut socket: TcpStream) -> Result<()> {
    while socket.read(&mut [0; 1 << 16])? > 0 {}
    Ok(())
}

/// Socket calls in the place of those of verbs.
pub fn measure(mut socket: TcpStream) -> Result<Value> {
    // The server takes one client; who comes later stays in its queue, connected.
    let address = socket.peer_addr()?;
    let connect = timed(|| TcpStream::connect(address).map(drop))?;
    let send = timed(|| socket.write_all(&[0x5a; MESSAGE]))?;
    socket.set_nonblocking(true)?;
    let mut arrived = 0;
    let poll = timed(|| match socket.read(&mut [0]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        other => other.map(|count| arrived += count),
    })?;
    ensure!(arrived == 0, "something arrived");
    let calls = json!({ "connect": connect, "post a Write": send, "poll, nothing there": poll });
    Ok(json!({ "calls": calls }))
}

fn timed(mut call: impl FnMut() -> std::io::Result<()>) -> Result<f64> {
    let mut samples = Vec::new();
    for _ in 0..SAMPLES {
        let began = Instant::now();
        call()?;
        samples.push(began.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(samples))
}
