//! Many connections of one application in one epoll instance, which both sides poll.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{Timespec, epoll};
use serde_json::{Value, json};

use super::{MESSAGE, pingpong};

/// First byte of the message after which the server ends.
const LAST: u8 = 1;
const MORE: u8 = 0;
/// Events that one call takes.
const EVENTS: usize = 16;

/// Connected streams and the epoll instance that watches them.
struct Crowd {
    sockets: Vec<TcpStream>,
    epoll: rustix::fd::OwnedFd,
    /// Connections that have something to read.
    ready: Vec<usize>,
}

impl Crowd {
    fn new(sockets: Vec<TcpStream>) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (index, socket) in sockets.iter().enumerate() {
            socket.set_nonblocking(true)?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&epoll, socket, data, epoll::EventFlags::IN)?;
        }
        Ok(Self { sockets, epoll, ready: Vec::new() })
    }

    /// Polls until a message has arrived on one of them: the connection, and its first byte.
    fn receive(&mut self) -> Result<(usize, u8)> {
        while self.ready.is_empty() {
            let mut events = Vec::with_capacity(EVENTS);
            let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&at_once))?;
            self.ready.extend(events.iter().map(|event| event.data.u64() as usize));
        }
        let index = self.ready.pop().context("a connection is ready")?;
        let mut message = [0; MESSAGE];
        let whole = pingpong::receive(&mut self.sockets[index], &mut message)?;
        ensure!(whole, "the other side went away");
        Ok((index, message[0]))
    }

    fn send(&mut self, index: usize, what: u8) -> Result<()> {
        let mut message = [0x5a; MESSAGE];
        message[0] = what;
        Ok(self.sockets[index].write_all(&message)?)
    }
}

/// Sends back what comes on each of `count` connections, until a message is the last one.
pub fn serve(listener: &TcpListener, first: TcpStream, count: usize) -> Result<()> {
    let mut sockets = vec![first];
    while sockets.len() < count {
        let socket = listener.accept()?.0;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let mut crowd = Crowd::new(sockets)?;
    loop {
        let (index, what) = crowd.receive()?;
        crowd.send(index, what)?;
        if what == LAST {
            return Ok(());
        }
    }
}

/// Ping-pong on one of `count` connections, or on all of them at once.
pub fn measure(first: TcpStream, count: usize, all: bool, time: Duration) -> Result<Value> {
    let address = first.peer_addr()?;
    let mut sockets = vec![first];
    while sockets.len() < count {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        sockets.push(socket);
    }
    let mut crowd = Crowd::new(sockets)?;
    let report = if all { on_all(&mut crowd, time)? } else { on_one(&mut crowd, time)? };
    crowd.send(0, LAST)?;
    // The server closes all connections when it has answered this one, which is the one to look at.
    pingpong::receive(&mut crowd.sockets[0], &mut [0; MESSAGE])?;
    Ok(report)
}

fn on_one(crowd: &mut Crowd, time: Duration) -> Result<Value> {
    let index = crowd.sockets.len() / 2;
    pingpong::round_trips(time, usize::MAX, &mut || {
        crowd.send(index, MORE)?;
        crowd.receive().map(drop)
    })
}

fn on_all(crowd: &mut Crowd, time: Duration) -> Result<Value> {
    let count = crowd.sockets.len();
    (0..count).try_for_each(|index| crowd.send(index, MORE))?;
    let (began, mut done) = (Instant::now(), 0_u64);
    while began.elapsed() < time {
        let (index, _) = crowd.receive()?;
        crowd.send(index, MORE)?;
        done += 1;
    }
    let per_second = done as f64 / began.elapsed().as_secs_f64();
    (0..count).try_for_each(|_| crowd.receive().map(drop))?;
    Ok(json!({ "per_second": per_second }))
}
