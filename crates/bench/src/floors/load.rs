//! Sockets of an application that computes: rate of answers, overlap, and loss of computing time.

use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

/// Bytes that are asked for, and that go to and fro.
pub const MESSAGE: usize = 1024;
const CLIENTS: usize = 40;
const RATE_BPS: f64 = 1e9;
const CHUNK: u64 = 20_000;
/// Fewest chunks of work, so that one that was preempted is one of many.
const CHUNKS_MIN: u64 = 500;
const AT_LEAST: u32 = 3;
/// A reader takes so much by one call.
const READ: usize = 1 << 16;

/// Uses the CPU for so long, as a program does that computes.
fn compute(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {}
}

/// Answers a request by 1 KB when it has computed for so long.
pub fn serve_fetch(mut socket: TcpStream, load: Duration) -> Result<()> {
    let message = [0x5a; MESSAGE];
    while socket.read(&mut [0])? > 0 {
        compute(load);
        socket.write_all(&message)?;
    }
    Ok(())
}

/// From a request to its answer.
pub fn measure_fetch(mut socket: TcpStream, time: Duration) -> Result<Value> {
    let (began, mut count) = (Instant::now(), 0);
    while count < AT_LEAST || began.elapsed() < time {
        socket.write_all(&[0])?;
        socket.read_exact(&mut [0; MESSAGE])?;
        count += 1;
    }
    Ok(json!({ "us": began.elapsed().as_secs_f64() * 1e6 / f64::from(count) }))
}

/// The share of the time between a message and its answer that this side computes.
pub fn measure_overlap(mut socket: TcpStream, load: Duration, time: Duration) -> Result<Value> {
    socket.set_nonblocking(true)?;
    let mut message = [0x5a; MESSAGE];
    let (began, mut count) = (Instant::now(), 0);
    while count < AT_LEAST || began.elapsed() < time {
        ensure!(socket.write(&message)? == MESSAGE, "the socket takes no message");
        compute(load);
        ensure!(super::pingpong::receive(&mut socket, &mut message)?, "the server went away");
        count += 1;
    }
    let computed = load.as_secs_f64() * f64::from(count);
    Ok(json!({ "ratio": computed / began.elapsed().as_secs_f64() }))
}

fn work(chunks: u64) {
    let mut sum = 0.0;
    for _ in 0..chunks * CHUNK {
        sum = black_box(sum) * 0.999_999 + 1.0;
    }
    black_box(sum);
}

/// Computes by itself and then while forty clients send, whose messages a thread takes.
pub fn serve_crowd(listener: &TcpListener, first: TcpStream, time: Duration) -> Result<()> {
    let mut sockets = vec![first];
    while sockets.len() < CLIENTS {
        sockets.push(listener.accept()?.0);
    }
    let (began, mut chunks) = (Instant::now(), 0);
    while began.elapsed() < time || chunks < CHUNKS_MIN {
        work(1);
        chunks += 1;
    }
    let alone = began.elapsed();
    let (mut first, done) = (sockets[0].try_clone()?, AtomicBool::new(false));
    thread::scope(|scope| {
        let reader = scope.spawn(|| take(&mut sockets, &done));
        first.write_all(&[0])?;
        let began = Instant::now();
        work(chunks);
        let ratio = began.elapsed().as_secs_f64() / alone.as_secs_f64();
        first.write_all(&ratio.to_be_bytes())?;
        done.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow::anyhow!("the reader failed"))?
    })
}

/// Reads whatever comes until the clients go, which they do when it is done.
fn take(sockets: &mut Vec<TcpStream>, done: &AtomicBool) -> Result<()> {
    let (mut buffer, patience) = (vec![0; READ], Timespec { tv_sec: 0, tv_nsec: 100_000_000 });
    while !sockets.is_empty() {
        let mut polled: Vec<PollFd<'_>> =
            sockets.iter().map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        poll(&mut polled, Some(&patience))?;
        let ready: Vec<bool> = polled.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ready = ready.into_iter();
        let over = done.load(Ordering::Relaxed);
        sockets.retain_mut(|socket| {
            !ready.next().unwrap_or(false)
                || match socket.read(&mut buffer) {
                    Ok(count) => count > 0,
                    Err(error) => !over && error.kind() == ErrorKind::Interrupted,
                }
        });
    }
    Ok(())
}

/// Sends by forty connections in turn at the rate, until the server says what came of it.
pub fn measure_crowd(first: TcpStream, bytes: usize) -> Result<Value> {
    let address = first.peer_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < CLIENTS {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let mut answer = sockets[0].try_clone()?;
    answer.read_exact(&mut [0])?;
    let heard = thread::spawn(move || -> std::io::Result<f64> {
        let mut ratio = [0; 8];
        answer.read_exact(&mut ratio)?;
        Ok(f64::from_be_bytes(ratio))
    });
    let (message, each) = (vec![0x5a; bytes], bytes as f64 * 8.0 / RATE_BPS);
    let began = Instant::now();
    for turn in 0_u64.. {
        while began.elapsed().as_secs_f64() < turn as f64 * each {}
        if heard.is_finished() {
            break;
        }
        sockets[turn as usize % CLIENTS].write_all(&message)?;
    }
    let ratio = heard.join().map_err(|_| anyhow::anyhow!("nothing was heard"))??;
    Ok(json!({ "ratio": ratio }))
}

/// Connection setup: so many connections one after the other, all kept open.
pub fn measure_connect(first: TcpStream, count: usize) -> Result<Value> {
    let address = first.peer_addr()?;
    let (mut kept, began) = (Vec::new(), Instant::now());
    for _ in 0..count {
        let mut socket = TcpStream::connect(address)?;
        // Accepted, not only in a queue: a connection of verbs is no sooner there either.
        socket.read_exact(&mut [0])?;
        kept.push(socket);
    }
    let us = began.elapsed().as_secs_f64() * 1e6 / count as f64;
    drop((first, kept));
    Ok(json!({ "us": us }))
}

/// Accepts so many, and says so to each.
pub fn serve_connect(listener: &TcpListener, mut first: TcpStream, count: usize) -> Result<()> {
    let mut kept = Vec::new();
    for _ in 0..count {
        let mut socket = listener.accept()?.0;
        socket.write_all(&[0])?;
        kept.push(socket);
    }
    while first.read(&mut [0])? > 0 {}
    Ok(())
}
