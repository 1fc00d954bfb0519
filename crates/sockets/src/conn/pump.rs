//! How octets get from one end of a connection to the other.
//!
//! Invariant: what is taken from one end is with the other, or kept in one bounded place between
//! them, before more is taken.

use std::io::ErrorKind;

use weft_reactor::Interest;
use weft_reactor::warm::Warm;
use weft_sdp::{Connection, Style};

use crate::app_socket::{Near, Said};
use crate::conn::{Companion, Inner, Way};
use crate::stream::Stream;
use crate::sys;

/// Octets moved at once.
const SCRATCH_OCTETS: usize = 256 << 10;
/// The same where memory is short.
const LEAST_OCTETS: usize = 4 << 10;
/// Turns at a connection before the others have theirs.
const TURNS: usize = 8;

/// Room for octets on their way.
static SCRATCH: Warm = Warm::new(SCRATCH_OCTETS, 1);

/// What the kernel's TCP did not take yet, and how it ended.
#[derive(Default)]
pub struct Plain {
    rest: Vec<u8>,
    /// The program's half has ended, and so has the kernel's.
    shut: bool,
    /// The peer is gone.
    pub failed: bool,
}

impl Inner {
    /// Moves what there is to move; whether there may be more.
    pub fn pump(&mut self) -> bool {
        let mut scratch = SCRATCH.take(LEAST_OCTETS);
        let mut more = true;
        for _ in 0..TURNS {
            more = self.turn(&mut scratch);
            if !more {
                break;
            }
        }
        SCRATCH.put(scratch);
        self.watch();
        more
    }

    /// Whether `count` octets can be sent behind everything that the program has written: there is
    /// room for all of them, and nothing waits before them. A stream of calls is not for this: two
    /// threads move it sooner than one.
    pub fn may_say(&mut self, count: usize) -> bool {
        let open = self.way == Way::Sdp && self.dial.is_none() && !self.ended;
        let is_streaming = self.stream.as_ref().is_none_or(Stream::is_flying);
        open && !is_streaming
            && self.far_room() >= count
            && self.near.as_ref().is_some_and(Near::is_silent)
    }

    /// Sends `octets`, which [`Inner::may_say`] allowed.
    pub fn say(&mut self, octets: &[u8]) -> bool {
        let Some(stream) = &mut self.stream else { return false };
        let Some((connection, verbs)) = stream.parts() else { return false };
        let sent = connection.send(verbs, octets).is_ok();
        stream.ring();
        self.watch();
        sent
    }

    /// The program may write: the connection is made.
    pub fn clear_jam(&mut self) {
        let mut scratch = SCRATCH.take(LEAST_OCTETS);
        if let Some(near) = &mut self.near {
            near.clear_jam(&mut scratch);
        }
        SCRATCH.put(scratch);
    }

    fn turn(&mut self, scratch: &mut [u8]) -> bool {
        let settled = self.settle();
        if self.way == Way::Open {
            let over = |(connection, _): (&mut Connection, _)| connection.is_over();
            if self.is_unclaimed() && self.stream.as_mut().and_then(Stream::parts).is_some_and(over)
            {
                self.limit_unclaimed();
            }
            return settled;
        }
        if self.way == Way::Tcp {
            // First: what it makes room for may be the last that the program has said.
            self.flush_plain();
        }
        let pulled = self.pull(scratch);
        let pushed = self.push(scratch);
        if let Some(stream) = &self.stream {
            stream.ring();
        }
        settled || pulled || pushed
    }

    /// From the program to the far end.
    fn pull(&mut self, scratch: &mut [u8]) -> bool {
        let room = self.far_room().min(scratch.len());
        let Some(near) = &mut self.near else { return false };
        if !self.near_stirs || room == 0 && !self.ended {
            return false;
        }
        if self.ended {
            self.near_stirs = false;
            return near.is_left() && self.close_far();
        }
        let stream = self.stream.as_ref().filter(|_| self.way == Way::Sdp);
        let shared = stream.and_then(Stream::vacant);
        let shared = shared.filter(|parts| parts.octets() > 0);
        let is_shared = shared.is_some();
        let (said, room) = match shared {
            Some(mut parts) => (near.hear(|fd| parts.receive(fd)), parts.octets()),
            None => (near.hear(|fd| sys::receive(fd, &mut scratch[..room], 0)), room),
        };
        match said {
            Said::Nothing => {
                self.near_stirs = false;
                false
            }
            Said::Octets(count) => {
                // What is less than there is room for is all; the kernel says when there is more.
                self.near_stirs = count == room || !near.is_watched();
                match &mut self.stream {
                    Some(stream) if is_shared => stream.commit(count),
                    _ => self.send_far(&scratch[..count]),
                }
                true
            }
            Said::Urgent(octet) => {
                self.send_far_urgent(octet);
                true
            }
            Said::End if near.is_left() => self.close_far(),
            Said::End => {
                self.ended = true;
                self.shut_far();
                true
            }
            Said::Reset => {
                self.abort_far();
                self.leave();
                true
            }
        }
    }

    /// Octets that the far end takes.
    fn far_room(&mut self) -> usize {
        match self.way {
            Way::Open => 0,
            Way::Tcp => {
                if self.plain.rest.is_empty() {
                    SCRATCH_OCTETS
                } else {
                    0
                }
            }
            Way::Sdp => {
                let parts = self.stream.as_mut().and_then(Stream::parts);
                parts.map_or(0, |(connection, _)| connection.writable() as usize)
            }
        }
    }

    fn send_far(&mut self, octets: &[u8]) {
        if self.way == Way::Tcp {
            let sent = self.companion.as_ref().map(|tcp| sys::send(tcp.raw(), octets, 0));
            let count = match sent {
                Some(Ok(count)) => count,
                Some(Err(error)) if error.kind() == ErrorKind::WouldBlock => 0,
                _ => octets.len(),
            };
            self.plain.rest.extend_from_slice(&octets[count..]);
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            // There is room for all of it; a connection that has failed says so by itself.
            let _ = connection.send(verbs, octets);
        }
    }

    fn send_far_urgent(&mut self, octet: u8) {
        if self.way == Way::Tcp {
            if let Some(tcp) = &self.companion {
                // TCP's urgent data may be lost as well when much of it is sent.
                let _ = sys::send(tcp.raw(), &[octet], libc::MSG_OOB);
            }
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            // As above.
            let _ = connection.send_urgent(verbs, octet);
        }
    }

    fn shut_far(&mut self) {
        if self.way == Way::Tcp {
            self.flush_plain();
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            // As above.
            let _ = connection.shutdown(verbs);
        }
    }

    /// The program is gone; what it wrote still arrives.
    fn close_far(&mut self) -> bool {
        self.ended = true;
        if self.way == Way::Tcp {
            self.flush_plain();
        } else if self.abortive {
            self.abort_far();
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            connection.close(verbs);
        }
        self.leave();
        true
    }

    fn abort_far(&mut self) {
        self.ended = true;
        if let (Way::Tcp, Some(tcp)) = (self.way, &self.companion) {
            self.plain.rest.clear();
            // An end in order would come before the reset.
            self.plain.shut = true;
            sys::reset_at_close(tcp.raw());
        } else if let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) {
            connection.abort(verbs);
        }
    }

    /// From the far end to the program.
    fn push(&mut self, scratch: &mut [u8]) -> bool {
        let Some(near) = &mut self.near else { return false };
        if !near.is_told() {
            let moved = near.tell_rest();
            if moved || !near.is_told() {
                return moved;
            }
        }
        match self.way {
            Way::Open => false,
            Way::Tcp => self.push_plain(scratch),
            Way::Sdp => {
                let Some((connection, verbs)) = self.stream.as_mut().and_then(Stream::parts) else {
                    return false;
                };
                if connection.is_at_mark()
                    && let Some(octet) = connection.receive_urgent()
                {
                    near.tell_urgent(octet);
                    return true;
                }
                if connection.is_at_end() {
                    let first = !std::mem::replace(&mut self.told_end, true);
                    if first {
                        near.tell_end();
                    }
                    return first;
                }
                if connection.style() == Style::Enhanced {
                    return self.push_shared();
                }
                match connection.receive(verbs, scratch) {
                    Ok(0) | Err(_) => false,
                    Ok(count) => {
                        near.tell(&scratch[..count]);
                        true
                    }
                }
            }
        }
    }

    /// The same from where it has arrived.
    fn push_shared(&mut self) -> bool {
        let (Some(near), Some(stream)) = (&mut self.near, &mut self.stream) else { return false };
        let Some(parts) = stream.arrived().filter(|parts| parts.octets() > 0) else { return false };
        let count = near.offer(parts);
        stream.consume(count);
        count > 0 && near.is_told()
    }

    fn push_plain(&mut self, scratch: &mut [u8]) -> bool {
        let (Some(near), Some(tcp)) = (&mut self.near, &self.companion) else { return false };
        if self.told_end {
            return false;
        }
        // A read stops in front of an urgent octet, which is alone then.
        let urgent = sys::is_at_mark(tcp.raw());
        let most = if urgent { 1 } else { scratch.len() };
        match sys::receive(tcp.raw(), &mut scratch[..most], 0) {
            Ok(1) if urgent => {
                near.tell_urgent(scratch[0]);
                true
            }
            Ok(0) => {
                self.told_end = true;
                near.tell_end();
                true
            }
            Ok(count) => {
                near.tell(&scratch[..count]);
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => false,
            Err(error) if error.kind() == ErrorKind::Interrupted => true,
            Err(_) => {
                (self.plain.failed, self.told_end, self.ended) = (true, true, true);
                false
            }
        }
    }

    /// Has the kernel's TCP take what it would not take before, and the end behind it.
    fn flush_plain(&mut self) {
        let Some(tcp) = &self.companion else { return };
        while !self.plain.rest.is_empty() {
            match sys::send(tcp.raw(), &self.plain.rest, 0) {
                Ok(count) => drop(self.plain.rest.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.plain.rest.clear(),
            }
        }
        if self.ended && !self.plain.shut {
            self.plain.shut = true;
            sys::shut(tcp.raw(), libc::SHUT_WR);
        }
    }

    /// Whether a connection that went by TCP after all is done with.
    pub fn is_plain_over(&self) -> bool {
        let sent = self.plain.rest.is_empty() && self.ended;
        let told = self.left || self.told_end && self.near.as_ref().is_none_or(Near::is_told);
        sent && told
    }

    /// Watches for what the next turn needs.
    fn watch(&mut self) {
        let room = self.far_room() > 0;
        let (way, ended, told_end) = (self.way, self.ended, self.told_end);
        let mut told = true;
        if let Some(near) = &mut self.near {
            told = near.is_told();
            let read = room && !ended;
            if !read && !ended && near.is_left() {
                // What is to be done once there is room is known, and the kernel would say nothing
                // else. It was only looked for octets before.
                near.ignore();
                self.near_stirs = true;
            } else {
                near.watch(Interest { read, write: !told });
            }
        }
        if let (Way::Tcp, Some(tcp)) = (way, &mut self.companion) {
            tcp.watch(Interest { read: told && !told_end, write: !self.plain.rest.is_empty() });
        }
    }
}

impl Companion {
    /// Whether TCP is connected, or has failed.
    pub fn verdict(&self) -> Option<bool> {
        let events = sys::poll_now(self.raw(), libc::POLLOUT);
        let failed = events & (libc::POLLERR | libc::POLLHUP) != 0;
        (events != 0).then_some(!failed)
    }
}
