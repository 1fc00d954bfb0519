//! The application's end of a connection: one socket of a connected `AF_UNIX` pair.
//!
//! The application has one socket of the pair, at the descriptor of its TCP socket; this library
//! has the other. What the application writes is read here and sent by SDP; what comes by SDP is
//! written here. So the kernel itself does all that an application can do with a descriptor: poll
//! it, edge-triggered or not, duplicate it, pass it to a child, read it by `sendfile` or io_uring.
//!
//! Only the making of connections is intercepted. The price is one copy and one switch of threads
//! per side.
//!
//! Invariant: bytes are taken from the far end only when all earlier ones have been written here,
//! so that what an application does not read stays with its sender.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use weft_os::fds::HighFd;
use weft_reactor::{Interest, Pollable};

use crate::memory::MemoryParts;
use crate::names::SocketEnds;
use crate::sys::{self, Inode};
use crate::watched_fd::WatchedFd;

/// Sizes in bytes of the writes that fill a socket; each is used until one does not fit.
const JAM_BYTES: [usize; 3] = [1 << 16, 1 << 10, 1];

/// A read of the application's output.
#[derive(Debug, PartialEq, Eq)]
pub enum AppRead {
    /// No data is there; try again when the socket is readable.
    Nothing,
    /// This many bytes were read.
    Bytes(usize),
    /// One urgent byte (`MSG_OOB`), read apart from the others.
    Urgent(u8),
    /// The end of its stream.
    End,
    /// It has closed its socket with unread data.
    Reset,
}

/// This library's end of a pair.
pub struct AppSocket {
    /// Its descriptor; the reactor reports when the application has written or reads.
    pub fd: WatchedFd,
    /// The application's socket, and the descriptor where it was put.
    other: Inode,
    at: RawFd,
    /// Bytes that the socket had no room for, and how many of them are written.
    rest: Vec<u8>,
    written: usize,
    /// The socket had no room for all of what it was offered.
    is_full: bool,
    urgent: Option<u8>,
    /// Filler bytes that keep the application from writing, and the size of its send buffer then.
    jam: usize,
    jammed_room: Option<c_int>,
    /// Nobody reads: what is written is dropped.
    is_shut: bool,
    /// The last byte that the application's socket has sent is [`AppSocket::leave_sentinel`]'s.
    has_sentinel: bool,
}

impl AppSocket {
    /// Makes a pair: the application's socket, to be put at the descriptor `at`, and this library's
    /// end, whose events go to `source`.
    ///
    /// # Errors
    /// Without descriptors or memory, or if no name is free.
    pub fn pair(
        ends: &SocketEnds,
        at: RawFd,
        source: Arc<dyn Pollable>,
    ) -> io::Result<(OwnedFd, Self)> {
        let (theirs, ours) = sys::stream_pair()?;
        let raw = theirs.as_raw_fd();
        sys::set_room(ours.as_raw_fd());
        sys::name_after(raw, ends)?;
        let other = sys::inode(raw).ok_or(ErrorKind::NotFound)?;
        let fd = WatchedFd::new(HighFd::new(ours), Interest::NONE, source);
        let socket = Self {
            fd,
            other,
            at,
            rest: Vec::new(),
            written: 0,
            is_full: false,
            urgent: None,
            jam: 0,
            jammed_room: None,
            is_shut: false,
            has_sentinel: false,
        };
        Ok((theirs, socket))
    }

    /// The inode of the application's socket.
    pub fn other(&self) -> Inode {
        self.other
    }

    fn raw(&self) -> RawFd {
        self.fd.raw()
    }

    /// Fills the application's socket, so that it is not writable while the connection is made.
    pub fn jam(&mut self, theirs: &OwnedFd) {
        self.jammed_room = sys::room(theirs.as_raw_fd());
        for bytes in JAM_BYTES {
            let filler = vec![0; bytes];
            while let Ok(count) = sys::send(theirs.as_raw_fd(), &filler, 0) {
                self.jam += count;
            }
        }
    }

    /// Makes the application's socket writable.
    pub fn clear_jam(&mut self, scratch: &mut [u8]) {
        while self.jam > 0 {
            let most = self.jam.min(scratch.len());
            let Ok(count @ 1..) = sys::receive(self.raw(), &mut scratch[..most], 0) else { return };
            self.jam -= count;
        }
        // Not before, since the jam has to fill it; and not if the application has chosen a size.
        let is_theirs = sys::inode(self.at) == Some(self.other);
        if is_theirs && self.jammed_room.is_some_and(|room| sys::room(self.at) == Some(room)) {
            sys::set_room(self.at);
        }
    }

    /// Reads what the application has written, by `take` from the descriptor.
    pub fn read(&mut self, take: impl FnOnce(RawFd) -> io::Result<usize>) -> AppRead {
        // The mark stays at the urgent byte until a byte behind it is read.
        let mut byte = [0];
        if sys::is_at_mark(self.raw()) {
            if self.has_sentinel && sys::unread(self.raw()) == 1 {
                return if self.has_ended() { AppRead::End } else { AppRead::Nothing };
            }
            let is_urgent = !std::mem::take(&mut self.has_sentinel);
            if let (Ok(1), true) = (sys::receive(self.raw(), &mut byte, libc::MSG_OOB), is_urgent) {
                return AppRead::Urgent(byte[0]);
            }
        }
        match take(self.raw()) {
            Ok(0) => AppRead::End,
            Ok(count) => AppRead::Bytes(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => AppRead::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => AppRead::Nothing,
            Err(_) => AppRead::Reset,
        }
    }

    /// The application is about to end its half by `theirs`, a descriptor of its socket, by which
    /// nothing can be written then, not even for [`AppSocket::reset`]. So a byte is left in this
    /// end that is never read. It is urgent, which tells it from a byte that another thread writes
    /// meanwhile, and is left out where an urgent byte of the application waits.
    pub fn leave_sentinel(&mut self, theirs: RawFd) {
        let urgent = sys::receive(self.raw(), &mut [0], libc::MSG_OOB | libc::MSG_PEEK);
        self.has_sentinel |= urgent.is_err() && sys::send(theirs, &[0], libc::MSG_OOB).is_ok();
    }

    /// Takes that byte out, so that this end can be closed in order.
    fn drop_sentinel(&mut self) {
        if std::mem::take(&mut self.has_sentinel) {
            let _taken = sys::receive(self.raw(), &mut [0], libc::MSG_OOB);
            if sys::unread(self.raw()) == 0 {
                // What is left of it in the queue would count as unread.
                let _nothing = sys::receive(self.raw(), &mut [0], 0);
            }
        }
    }

    /// Whether the application sends no more.
    fn has_ended(&self) -> bool {
        sys::poll_now(self.raw(), libc::POLLRDHUP) & libc::POLLRDHUP != 0
    }

    /// Whether there is nothing to read for now.
    pub fn is_silent(&self) -> bool {
        sys::poll_now(self.raw(), libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP) == 0
    }

    /// Whether all that was written or offered is in the application's socket.
    pub fn is_flushed(&self) -> bool {
        self.rest.len() == self.written && self.urgent.is_none() && !self.is_full
    }

    /// Writes as much of `parts` as there is room for; returns the number of bytes.
    pub fn offer(&mut self, mut parts: MemoryParts<'_>) -> usize {
        if self.is_shut {
            return parts.bytes();
        }
        let count = match parts.send(self.raw()) {
            Ok(count) => count,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                0
            }
            // Nobody reads any more.
            Err(_) => {
                self.is_shut = true;
                parts.bytes()
            }
        };
        self.is_full = count < parts.bytes();
        count
    }

    /// Writes `bytes`, and keeps what there is no room for.
    pub fn write(&mut self, bytes: &[u8]) {
        self.rest.clear();
        self.written = 0;
        let count = if self.is_shut { bytes.len() } else { self.try_write(bytes) };
        self.rest.extend_from_slice(&bytes[count..]);
    }

    /// Writes an urgent byte (`MSG_OOB`).
    pub fn write_urgent(&mut self, byte: u8) {
        self.urgent = Some(byte);
        self.write_rest();
    }

    /// Writes what was kept, as far as there is room; whether any was written. What was offered may
    /// be offered again.
    pub fn write_rest(&mut self) -> bool {
        self.is_full = false;
        let before = self.written;
        if self.written < self.rest.len() {
            let rest = std::mem::take(&mut self.rest);
            self.written += self.try_write(&rest[self.written..]);
            self.rest = rest;
            if self.is_shut {
                self.written = self.rest.len();
            }
        }
        if self.rest.len() == self.written
            && let Some(byte) = self.urgent
        {
            let sent = sys::send(self.raw(), &[byte], libc::MSG_OOB);
            let is_full = sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if !is_full || self.is_shut {
                self.urgent = None;
                return true;
            }
        }
        self.written > before
    }

    fn try_write(&mut self, bytes: &[u8]) -> usize {
        let mut written = 0;
        while written < bytes.len() {
            match sys::send(self.raw(), &bytes[written..], 0) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nobody reads any more.
                Err(_) => {
                    self.is_shut = true;
                    return bytes.len();
                }
            }
        }
        written
    }

    /// Writes the end of the stream.
    pub fn write_end(&mut self) {
        self.drop_sentinel();
        sys::shut(self.raw(), libc::SHUT_WR);
    }

    /// Whether every descriptor of the application's socket is closed, or both halves are shut.
    pub fn is_left(&self) -> bool {
        sys::poll_now(self.raw(), 0) & libc::POLLHUP != 0
    }

    /// Makes the application find a reset: the kernel reports one if this end is closed with unread
    /// data, so there must be some.
    pub fn reset(mut self) {
        if std::mem::take(&mut self.has_sentinel) {
            return;
        }
        for fd in self.holders() {
            // The descriptor may be reused meanwhile; a duplicate is not.
            let Ok(theirs) = sys::borrow(&fd).try_clone_to_owned() else { continue };
            let raw = theirs.as_raw_fd();
            if sys::inode(raw) == Some(self.other) && sys::send(raw, &[0], 0).is_ok() {
                break;
            }
        }
    }

    /// The descriptors of this process that lead to the application's socket.
    pub fn holders(&self) -> Vec<RawFd> {
        if sys::inode(self.at) == Some(self.other) && !self.may_be_elsewhere() {
            return vec![self.at];
        }
        sys::find(self.other)
    }

    /// Whether another descriptor of this process may lead to it too: not looked for before the
    /// connection is in use.
    fn may_be_elsewhere(&self) -> bool {
        self.jam == 0
    }
}

impl Drop for AppSocket {
    fn drop(&mut self) {
        self.drop_sentinel();
    }
}
