//! Ping-pong through memory: a thread receives into memory that another one polls. It is the
//! counterpart of an application that polls memory for an RDMA Write.

use std::hint;
use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::{MESSAGE, pingpong};

/// Value of the polled word when the stream ends.
const END: u64 = u64::MAX;

/// Sends a message for each that arrives, until the client goes.
pub fn serve(mut socket: TcpStream) -> Result<()> {
    let (arrived, receiver) = receive_into_memory(&socket)?;
    let message = [0x5a; MESSAGE];
    let mut count = 0;
    while wait_for(&arrived, count + 1) {
        count += 1;
        socket.write_all(&message)?;
    }
    drop(receiver.join());
    Ok(())
}

/// Half of the average round trip.
pub fn measure(mut socket: TcpStream, time: Duration) -> Result<Value> {
    let (arrived, receiver) = receive_into_memory(&socket)?;
    let message = [0x5a; MESSAGE];
    let mut rounds = 0;
    let began = Instant::now();
    while began.elapsed() < time {
        socket.write_all(&message)?;
        rounds += 1;
        anyhow::ensure!(wait_for(&arrived, rounds), "the server went away");
    }
    let us = began.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0;
    socket.shutdown(std::net::Shutdown::Both)?;
    drop(receiver.join());
    Ok(json!({ "us": us }))
}

/// A thread that counts the messages that arrive in a word of memory.
fn receive_into_memory(socket: &TcpStream) -> Result<(Arc<AtomicU64>, JoinHandle<()>)> {
    let arrived = Arc::new(AtomicU64::new(0));
    let (word, mut socket) = (Arc::clone(&arrived), socket.try_clone()?);
    let receiver = thread::spawn(move || {
        let mut message = [0; MESSAGE];
        while pingpong::receive(&mut socket, &mut message).unwrap_or(false) {
            word.fetch_add(1, Ordering::Release);
        }
        word.store(END, Ordering::Release);
    });
    Ok((arrived, receiver))
}

/// Polls the word until it is `count`; false if the stream ended.
fn wait_for(arrived: &AtomicU64, count: u64) -> bool {
    loop {
        match arrived.load(Ordering::Acquire) {
            END => return false,
            seen if seen >= count => return true,
            _ => hint::spin_loop(),
        }
    }
}
