//! One stream of the event loop: its descriptors, and what waits for them.
//!
//! Invariant: the peer of a socket sees the end of a direction only after its last byte. A socket
//! that is closed earlier is reset, also by the end of this process.
//!
//! Order: [`reset_when_closed`] and [`socket_fds`] for a connection; the rest is the loop's.

use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::net::sockopt::set_socket_linger;
use weft_session::window::SendWindow;

use crate::window::{STREAM_FIRST, STREAM_MAX, StreamReceive};

/// The two descriptors of a stream: read from one, write to the other.
#[derive(Default)]
pub struct StreamFds {
    /// What is read and sent.
    pub input: Option<OwnedFd>,
    /// Where what comes is written.
    pub output: Option<OwnedFd>,
    /// Whether both are one socket, whose directions end by a shutdown. Until both have ended, to
    /// close it resets it.
    pub is_socket: bool,
}

pub(crate) struct LoopStream {
    pub fds: StreamFds,
    pub send: SendWindow,
    pub receive: StreamReceive,
    /// Came, and is not written yet.
    pub waiting: VecDeque<Vec<u8>>,
    /// Bytes of the first of them that are written.
    written: usize,
    pub has_end: bool,
    /// Why nothing can be written any more.
    pub failure: Option<Errno>,
    /// Not connected yet: what comes waits.
    pub is_connecting: bool,
    watches_input: bool,
    watches_output: bool,
}

impl LoopStream {
    /// Without descriptors it is not connected yet.
    pub fn new(fds: Option<StreamFds>) -> Self {
        Self {
            is_connecting: fds.is_none(),
            fds: fds.unwrap_or_default(),
            send: SendWindow::new(STREAM_FIRST, STREAM_MAX),
            receive: StreamReceive::default(),
            waiting: VecDeque::new(),
            written: 0,
            has_end: false,
            failure: None,
            watches_input: false,
            watches_output: false,
        }
    }

    /// Whether both directions have ended or failed.
    pub fn is_over(&self) -> bool {
        self.fds.input.is_none() && self.fds.output.is_none()
    }

    /// Whether a write has shown that the peer has reset the connection before it ended its
    /// direction: what is read has no end then, though the kernel gives one. A write after a proper
    /// end fails with `EPIPE`.
    pub fn is_reset(&self) -> bool {
        self.failure.is_some_and(|errno| errno != Errno::PIPE)
    }

    /// Writes of what waits first; `None` if there is nothing or nowhere to write.
    pub fn write_first(&self) -> Option<Result<usize, Errno>> {
        let rest = &self.waiting.front()?[self.written..];
        match &self.fds.output {
            Some(output) => Some(rustix::io::write(output, rest)),
            // It is dropped. The other end gets room for more, because it may send all that it has
            // before it takes the answer.
            None => self.failure.map(|_| Ok(rest.len())),
        }
    }

    /// Bytes of what waits first are written.
    pub fn wrote(&mut self, count: usize) {
        self.written += count;
        if self.waiting.front().is_some_and(|first| self.written == first.len()) {
            (_, self.written) = (self.waiting.pop_front(), 0);
        }
    }

    /// Ends the direction that is read, all of which is.
    pub fn end_input(&mut self, epoll: &OwnedFd) {
        let Some(input) = self.fds.input.take() else { return };
        if std::mem::take(&mut self.watches_input) {
            // The descriptor goes now, and takes the watch with it where it has no duplicate.
            let _ = epoll::delete(epoll, &input);
        }
        self.deliver_if_over(&input);
    }

    /// Ends the direction that is written, all of which is.
    pub fn end_output(&mut self, epoll: &OwnedFd) {
        let Some(output) = self.take_output(epoll) else { return };
        if self.fds.is_socket {
            // One whose peer is gone already says so by its other direction.
            let _ = rustix::net::shutdown(&output, Shutdown::Write);
            self.deliver_if_over(&output);
        }
    }

    /// Nothing can be written any more. What the peer wrote before can still be read.
    pub fn fail_output(&mut self, epoll: &OwnedFd, why: Errno) {
        self.failure = Some(why);
        drop(self.take_output(epoll));
    }

    /// The descriptor that is written, which is not watched any more.
    pub fn take_output(&mut self, epoll: &OwnedFd) -> Option<OwnedFd> {
        let output = self.fds.output.take()?;
        if std::mem::take(&mut self.watches_output) {
            // It goes now, and takes the watch with it where it has no duplicate.
            let _ = epoll::delete(epoll, &output);
        }
        Some(output)
    }

    /// Undoes [`reset_when_closed`], which drops what the kernel has not sent yet, before the last
    /// descriptor of a socket is closed whose directions have both ended.
    fn deliver_if_over(&self, last: &OwnedFd) {
        if self.fds.is_socket && self.is_over() && self.failure.is_none() {
            // It fails for no socket that took the opposite.
            let _ = set_socket_linger(last, None);
        }
    }

    /// Watches what stream `id` waits for.
    ///
    /// # Errors
    /// The system refuses.
    pub fn watch(&mut self, epoll: &OwnedFd, id: u64) -> Result<()> {
        let wants_input = self.fds.input.is_some() && self.send.room() > 0;
        let wants_output = self.fds.output.is_some() && !self.waiting.is_empty();
        let (in_flag, out_flag) = (epoll::EventFlags::IN, epoll::EventFlags::OUT);
        let input = (&self.fds.input, wants_input, &mut self.watches_input, id << 1, in_flag);
        watch(epoll, input)?;
        let token = id << 1 | 1;
        watch(epoll, (&self.fds.output, wants_output, &mut self.watches_output, token, out_flag))
    }
}

type WatchRequest<'a> = (&'a Option<OwnedFd>, bool, &'a mut bool, u64, epoll::EventFlags);

fn watch(epoll: &OwnedFd, (fd, wanted, is_watched, token, flags): WatchRequest<'_>) -> Result<()> {
    let Some(fd) = fd else { return Ok(()) };
    if wanted == *is_watched {
        return Ok(());
    }
    let changed = match wanted {
        true => epoll::add(epoll, fd, epoll::EventData::new_u64(token), flags),
        false => epoll::delete(epoll, fd),
    };
    changed.map_err(io::Error::from).context("watching a descriptor")?;
    *is_watched = wanted;
    Ok(())
}

/// Has the kernel reset a connection when it is closed, also by the end of this process: its peer
/// must not take what has come until then for all.
///
/// # Errors
/// The system refuses.
pub fn reset_when_closed(connection: TcpStream) -> io::Result<TcpStream> {
    set_socket_linger(&connection, Some(Duration::ZERO))?;
    Ok(connection)
}

/// The descriptors of a connection that [`reset_when_closed`] was called for. They are two, so that
/// each has its own watch.
///
/// # Errors
/// No descriptor is left.
pub fn socket_fds(connection: TcpStream) -> io::Result<StreamFds> {
    connection.set_nonblocking(true)?;
    connection.set_nodelay(true)?;
    let output = connection.as_fd().try_clone_to_owned()?;
    Ok(StreamFds { input: Some(connection.into()), output: Some(output), is_socket: true })
}
