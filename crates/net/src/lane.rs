//! A byte stream between two processes of one host, by memory that both map.
//!
//! A lane takes the place of a TCP connection that is there already ([`rendezvous`]): bytes go
//! through two rings (`ring`), and a Unix socket carries what sleeping needs, one byte for a side
//! that sleeps (the bell), and the end of the peer's process.
//!
//! Invariant: what a [`ShmLane`] gives is what the peer wrote, in order, once; or it is closed. A
//! peer that dies or writes nonsense into the memory closes it.
//!
//! Order of calls: [`ShmLane::send`] and [`ShmLane::receive`] as for a socket, the latter when
//! [`ShmLane::poll`] says so. Who stops polling calls [`ShmLane::sleep`] before it waits for
//! [`ShmLane::bell`] to become readable, and [`ShmLane::wake`] when it polls again.

mod memory;
pub mod rendezvous;
mod ring;

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weft_os::fds::HighFd;
use weft_rnic::{Batch, Written};

use crate::tcp::{Ready, Received};
use memory::Mapping;
pub use memory::RING_BYTES;
use ring::{Corrupt, RingReader, RingWriter};

/// Empty receives of a side that polls between two looks at the bell, which costs a system call.
const POLLS_A_LOOK: u32 = 256;

/// Which end of a lane this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LaneEnd {
    /// The end that connected, and made the memory.
    Initiator,
    /// The other one.
    Responder,
}

/// One end of a lane.
pub struct ShmLane {
    bell: HighFd,
    writer: RingWriter,
    reader: RingReader,
    /// Empty receives since the last look at the bell.
    polls: u32,
    /// The peer has gone, or broken the rules.
    gone: bool,
}

impl ShmLane {
    fn new(bell: HighFd, mapping: &Arc<Mapping>, end: LaneEnd) -> Self {
        let (out, back) = match end {
            LaneEnd::Initiator => (0, 1),
            LaneEnd::Responder => (1, 0),
        };
        let (writer, reader) = (RingWriter::new(mapping, out), RingReader::new(mapping, back));
        Self { bell, writer, reader, polls: 0, gone: false }
    }

    /// What becomes readable when a side that sleeps has something to do, or the peer has gone.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Writes what is left of a batch if there is room for all of it, which has to be less than
    /// [`RING_BYTES`].
    pub fn send(&mut self, out: &Batch<'_>) -> Written {
        if self.gone {
            return Written::Failed;
        }
        let written = self.writer.write(out);
        match written {
            Written::Octets(_) if self.writer.publish() => self.ring(),
            Written::Failed => self.gone = true,
            _ => {}
        }
        written
    }

    /// Reads what is there.
    pub fn receive(&mut self, room: &mut [u8]) -> Received {
        match self.read(room) {
            Ok(0) if room.is_empty() => Received::Nothing,
            Ok(0) => self.look_at_bell(room),
            Ok(len) => Received::Octets(len),
            Err(Corrupt) => self.break_off(),
        }
    }

    /// Whether [`ShmLane::receive`] may bring something: there is something, or it is time to look
    /// whether the peer is there.
    pub fn poll(&mut self) -> bool {
        self.polls += 1;
        self.reader.sleeps() || self.polls >= POLLS_A_LOOK || self.ready().read
    }

    fn read(&mut self, room: &mut [u8]) -> Result<usize, Corrupt> {
        let len = self.reader.read(room)?;
        if len > 0 && self.reader.publish() {
            self.ring();
        }
        Ok(len)
    }

    /// Finds out why there is nothing, as often as that is worth a system call.
    fn look_at_bell(&mut self, room: &mut [u8]) -> Received {
        let ended = self.gone || self.reader.is_finished();
        if !ended && !self.reader.sleeps() && self.polls < POLLS_A_LOOK {
            return Received::Nothing;
        }
        self.polls = 0;
        self.gone |= !self.drain_bell();
        if !self.gone && !self.reader.is_finished() {
            return Received::Nothing;
        }
        // What the peer wrote before it went is there now, if it was not just before.
        match self.read(room) {
            Ok(0) => Received::Closed,
            Ok(len) => Received::Octets(len),
            Err(Corrupt) => self.break_off(),
        }
    }

    fn break_off(&mut self) -> Received {
        self.gone = true;
        self.shutdown();
        Received::Closed
    }

    /// Takes the bytes of the bell; whether the peer is still there.
    fn drain_bell(&self) -> bool {
        loop {
            match crate::tcp::receive(self.bell(), &mut [0; 16]) {
                Received::Octets(_) => {}
                Received::Nothing => return true,
                Received::Closed => return false,
            }
        }
    }

    /// A bell that is full rings already.
    fn ring(&self) {
        rendezvous::send_byte(self.bell());
    }

    /// Says that this side sleeps until there is something to read, or room if it is `blocked`;
    /// whether there is already, so that it should not.
    pub fn sleep(&mut self, blocked: bool) -> bool {
        self.reader.sleep();
        let readable = self.reader.available() != Ok(0) || self.reader.is_finished();
        readable || blocked && self.writer.sleep() != Ok(false)
    }

    /// Says that this side polls.
    pub fn wake(&mut self) {
        self.reader.wake();
    }

    /// What there is to do, without a system call.
    pub fn ready(&self) -> Ready {
        let read = self.gone || self.reader.available() != Ok(0) || self.reader.is_finished();
        Ready { read, write: self.gone || self.writer.has_room() != Ok(false) }
    }

    /// Waits up to a millisecond for the peer.
    pub fn wait(&mut self, blocked: bool) {
        if !self.sleep(blocked) {
            crate::tcp::wait(self.bell(), false);
        }
    }

    /// Ends the sending half: the peer sees the end after everything written before.
    pub fn shutdown_write(&mut self) {
        self.writer.finish();
        self.ring();
    }

    /// Ends both halves.
    pub fn shutdown(&self) {
        crate::tcp::shutdown(self.bell());
    }
}

#[cfg(test)]
mod tests;
