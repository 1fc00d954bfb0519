//! Ping-pong through memory: a thread receives into memory that another one polls. It is the
//! counterpart of an application that polls memory for an RDMA Write.

use std::hint;
use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

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

/// Halves of round trips: their mean and their median.
pub fn measure(socket: TcpStream, time: Duration) -> Result<Value> {
    let (arrived, receiver) = receive_into_memory(&socket)?;
    let mut sender = socket.try_clone()?;
    let (message, mut count) = ([0x5a; MESSAGE], 0);
    let report = pingpong::round_trips(time, usize::MAX, &mut || {
        sender.write_all(&message)?;
        count += 1;
        ensure!(wait_for(&arrived, count), "the server went away");
        Ok(())
    })?;
    socket.shutdown(Shutdown::Both)?;
    drop(receiver.join());
    Ok(report)
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
