//! The program's end of a connection: one socket of a connected pair of `AF_UNIX`.
//!
//! The program has one socket of the pair at the number where its TCP socket was, this library the
//! other. What the program writes is read here and sent by SDP; what comes by SDP is written here.
//! So all that a program can do with a descriptor (poll it, edge-triggered or not, duplicate it,
//! hand it to a child, read it by `sendfile` or io_uring) is done by the kernel.
//!
//! Invariant: octets are taken from the far end only when all that were taken before have been
//! written here, so that what a program does not read stays with its sender.

use std::ffi::c_int;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use weft_io::engine::Engine;
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Source, Token};

use crate::memory::Parts;
use crate::names::Ends;
use crate::sys::{self, Inode};

/// Tries to find a name that is free.
const NAME_TRIES: u32 = 8;
/// Octets of a jam that are written at once, fewer each time one does not fit.
const JAM: [usize; 3] = [1 << 16, 1 << 10, 1];

/// What the program has to say.
#[derive(Debug, PartialEq, Eq)]
pub enum Said {
    /// Nothing for now.
    Nothing,
    /// So many octets.
    Octets(usize),
    /// An urgent octet.
    Urgent(u8),
    /// It will send no more.
    End,
    /// It has closed the connection without reading all that is there.
    Reset,
}

/// Our end of a pair.
pub struct Near {
    fd: HighFd,
    /// The program's socket, and the number where it was put.
    other: Inode,
    at: RawFd,
    token: Option<Token>,
    interest: Interest,
    /// Octets for the program that it has no room for yet, and how many of them are gone.
    rest: Vec<u8>,
    written: usize,
    /// It had no room for all of what it was offered.
    full: bool,
    urgent: Option<u8>,
    /// Octets that the program did not write, which keep it from writing, and what room its socket
    /// had then.
    jam: usize,
    jammed_room: Option<c_int>,
    /// The program reads no more.
    pub deaf: bool,
}

impl Near {
    /// A pair: the program's end, to be put at the number `at`, and ours, which `source` is called
    /// for.
    pub fn pair(ends: &Ends, at: RawFd, source: Arc<dyn Source>) -> io::Result<(OwnedFd, Self)> {
        let (theirs, ours) = sys::stream_pair()?;
        let raw = theirs.as_raw_fd();
        sys::set_room(ours.as_raw_fd());
        let mut tries = NAME_TRIES;
        while let Err(error) = sys::bind_name(raw, &ends.name(sys::random())) {
            tries -= 1;
            if tries == 0 || error.kind() != ErrorKind::AddrInUse {
                return Err(error);
            }
        }
        let other = sys::inode(raw).ok_or(ErrorKind::NotFound)?;
        let fd = HighFd::new(ours);
        let interest = Interest::NONE;
        let token = Some(Engine::get().add(fd.as_fd(), interest, source));
        let near = Self {
            fd,
            other,
            at,
            token,
            interest,
            rest: Vec::new(),
            written: 0,
            full: false,
            urgent: None,
            jam: 0,
            jammed_room: None,
            deaf: false,
        };
        Ok((theirs, near))
    }

    /// The socket that the program has.
    pub fn other(&self) -> Inode {
        self.other
    }

    fn raw(&self) -> RawFd {
        self.fd.as_fd().as_raw_fd()
    }

    /// Keeps the program's end from being written to, as that of a connection which is being made.
    pub fn jam(&mut self, theirs: &OwnedFd) {
        self.jammed_room = sys::room(theirs.as_raw_fd());
        for octets in JAM {
            let filler = vec![0; octets];
            while let Ok(count) = sys::send(theirs.as_raw_fd(), &filler, 0) {
                self.jam += count;
            }
        }
    }

    /// Lets the program write.
    pub fn clear_jam(&mut self, scratch: &mut [u8]) {
        while self.jam > 0 {
            let most = self.jam.min(scratch.len());
            let Ok(count @ 1..) = sys::receive(self.raw(), &mut scratch[..most], 0) else { return };
            self.jam -= count;
        }
        // Not before, for a jam has to fill it; and not if the program has chosen another.
        let is_theirs = sys::inode(self.at) == Some(self.other);
        if is_theirs && self.jammed_room.is_some_and(|room| sys::room(self.at) == Some(room)) {
            sys::set_room(self.at);
        }
    }

    /// What the program says next, which `take` receives from the descriptor.
    pub fn hear(&mut self, take: impl FnOnce(RawFd) -> io::Result<usize>) -> Said {
        // The mark stays where the urgent octet was until something behind it is read.
        let mut octet = [0];
        if sys::is_at_mark(self.raw())
            && let Ok(1) = sys::receive(self.raw(), &mut octet, libc::MSG_OOB)
        {
            return Said::Urgent(octet[0]);
        }
        match take(self.raw()) {
            Ok(0) => Said::End,
            Ok(count) => Said::Octets(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Said::Nothing,
            Err(error) if error.kind() == ErrorKind::Interrupted => Said::Nothing,
            Err(_) => Said::Reset,
        }
    }

    /// Whether the program has nothing to say for now.
    pub fn is_silent(&self) -> bool {
        sys::poll_now(self.raw(), libc::POLLIN | libc::POLLPRI | libc::POLLRDHUP) == 0
    }

    /// Whether all that was told or offered is with the program.
    pub fn is_told(&self) -> bool {
        self.rest.len() == self.written && self.urgent.is_none() && !self.full
    }

    /// Writes for the program those of `parts` that there is room for; how many octets.
    pub fn offer(&mut self, mut parts: Parts<'_>) -> usize {
        if self.deaf {
            return parts.octets();
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
                self.deaf = true;
                parts.octets()
            }
        };
        self.full = count < parts.octets();
        count
    }

    /// Writes `octets` for the program, and keeps what there is no room for.
    pub fn tell(&mut self, octets: &[u8]) {
        self.rest.clear();
        self.written = 0;
        let count = if self.deaf { octets.len() } else { self.write(octets) };
        self.rest.extend_from_slice(&octets[count..]);
    }

    /// The same with an urgent octet.
    pub fn tell_urgent(&mut self, octet: u8) {
        self.urgent = Some(octet);
        self.tell_rest();
    }

    /// Writes what was kept, as far as there is room; whether there was any. What was offered may
    /// be offered again.
    pub fn tell_rest(&mut self) -> bool {
        self.full = false;
        let before = self.written;
        if self.written < self.rest.len() {
            let rest = std::mem::take(&mut self.rest);
            self.written += self.write(&rest[self.written..]);
            self.rest = rest;
            if self.deaf {
                self.written = self.rest.len();
            }
        }
        if self.rest.len() == self.written
            && let Some(octet) = self.urgent
        {
            let sent = sys::send(self.raw(), &[octet], libc::MSG_OOB);
            let full = sent.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            if !full || self.deaf {
                self.urgent = None;
                return true;
            }
        }
        self.written > before
    }

    fn write(&mut self, octets: &[u8]) -> usize {
        let mut written = 0;
        while written < octets.len() {
            match sys::send(self.raw(), &octets[written..], 0) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Nobody reads any more.
                Err(_) => {
                    self.deaf = true;
                    return octets.len();
                }
            }
        }
        written
    }

    /// Tells the program that no more will come.
    pub fn tell_end(&self) {
        sys::shut(self.raw(), libc::SHUT_WR);
    }

    /// Whether nobody has the program's end any more, or it was shut down both ways.
    pub fn is_left(&self) -> bool {
        sys::poll_now(self.raw(), 0) & libc::POLLHUP != 0
    }

    /// Watches for what is wanted.
    pub fn watch(&mut self, interest: Interest) {
        if let Some(token) = self.token
            && self.interest != interest
        {
            self.interest = interest;
            Engine::get().modify(token, interest);
        }
    }

    /// Whether it is watched.
    pub fn is_watched(&self) -> bool {
        self.token.is_some()
    }

    /// Watches no more.
    pub fn ignore(&mut self) {
        if let Some(token) = self.token.take() {
            Engine::get().remove(token);
        }
    }

    /// Has the program find that the connection was reset: its kernel says so if we go and leave
    /// something unread, so there must be something.
    pub fn reset(self) {
        for fd in self.holders() {
            // A number may have got another meaning meanwhile; a second descriptor has not.
            let Ok(theirs) = sys::borrow(&fd).try_clone_to_owned() else { continue };
            let raw = theirs.as_raw_fd();
            if sys::inode(raw) == Some(self.other) && sys::send(raw, &[0], 0).is_ok() {
                break;
            }
        }
    }

    /// Where this process has the program's end.
    pub fn holders(&self) -> Vec<RawFd> {
        if sys::inode(self.at) == Some(self.other) && !self.may_be_elsewhere() {
            return vec![self.at];
        }
        sys::find(self.other)
    }

    /// Whether another number of this process may lead to it too. It is not worth finding out
    /// before the connection is in use.
    fn may_be_elsewhere(&self) -> bool {
        self.jam == 0
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.ignore();
    }
}
