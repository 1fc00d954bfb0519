//! A TCP connection: bytes in, bytes out, and what follows from them.
//!
//! MPA's frames follow TCP's segment size. Over loopback that doubles once the window is known, so
//! it is read again after each MiB.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weft_net::buffers::Buffer;
use weft_net::stream::ByteStream;
use weft_net::tcp::{self, Ready, Received};
use weft_os::clock::{self, Moment, moment_at, ns_at};
use weft_os::fds;
use weft_rnic::{Conn, ConnEvent, Input, MpaQp, Sending, earliest};
use weft_verbs::QpFailure;

use super::phase::{Phase, PhaseChange};
use super::transport::{AckDue, Core, Ending, ReactorWatch, Step, Transport, todo};
use super::watcher::{LinkWatcher, Notices};
use crate::connections::LINGER;
use crate::faults::LinkFaults;

/// Receives in one go at most, so that one connection does not starve the others.
const RECEIVES_MAX: usize = 4;
/// Payload sent between two looks at the segment size. TCP raises it once it knows the peer's
/// window: over loopback from 32 KiB to 64 KiB.
const SEGMENT_LOOK: u64 = 1 << 20;

/// How often in the time that a peer may be silent it is looked whether it is.
const SILENCE_LOOKS: u32 = 4;

/// What is known of the peer's acknowledgements.
#[derive(Clone, Copy, Debug)]
enum PeerAcks {
    /// Nothing is owed.
    None,
    /// Since then something was perhaps not acknowledged, and when that is looked at.
    Owed { since: Moment, look_at: Moment },
    /// A peer that says nothing and takes nothing is waited for, as TCP does by itself.
    Tolerated,
}

/// The byte stream of an MPA connection.
pub(super) struct TcpSocket {
    stream: ByteStream,
    buffer: Option<Buffer>,
    /// When so much payload is sent, the segment size is looked at again.
    next_segment_look: u64,
    watcher: Option<Arc<dyn LinkWatcher>>,
    acks: PeerAcks,
    /// Until when the peer may take to read what is left of a connection that has ended, and then
    /// to close as well.
    lingers_until: Option<Moment>,
    wire: Option<Box<LinkFaults<()>>>,
}

/// The queue pair, for what only MPA has.
fn mpa_of(core: &mut Core) -> Option<&mut MpaQp> {
    match &mut core.conn {
        Some(Conn::Mpa(mpa)) => Some(mpa),
        _ => None,
    }
}

impl TcpSocket {
    pub fn new(stream: ByteStream, watcher: Arc<dyn LinkWatcher>) -> Self {
        Self {
            stream,
            buffer: None,
            next_segment_look: SEGMENT_LOOK,
            watcher: Some(watcher),
            acks: PeerAcks::None,
            lingers_until: None,
            wire: None,
        }
    }

    /// Waits for a silent peer as TCP does by itself.
    pub fn tolerate_silence(&mut self) {
        self.acks = PeerAcks::Tolerated;
        tcp::never_give_up(self.stream.fd());
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        self.stream.ready()
    }

    /// A peer whose host is silent for too long has gone. One that only does not read may be
    /// stopped: its host says so, and it is waited for.
    fn look_for_silence(&mut self, core: &mut Core, now: Moment) {
        let limit = core.host.settings().stall_after;
        let PeerAcks::Owed { since, look_at } = self.acks else { return };
        if look_at > now {
            return;
        }
        self.acks = PeerAcks::None;
        if let Some(silence) = tcp::silence(self.stream.fd()) {
            if silence >= limit && now.saturating_duration_since(since) >= limit {
                return self.closed(core);
            }
            self.acks = PeerAcks::Owed { since, look_at: now + limit / SILENCE_LOOKS };
        }
    }

    /// Receives what is there; whether something was.
    fn receive_bytes(&mut self, core: &mut Core, now: Moment) -> bool {
        if core.is_held() {
            if self.stream.is_broken() {
                self.left(core, now);
            }
            return false;
        }
        if self.wire.is_some() {
            return self.receive_by_wire(core, now);
        }
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            let room = buffer.room().len();
            match self.stream.receive(buffer.room()) {
                Received::Nothing => break,
                Received::Closed => {
                    self.left(core, now);
                    break;
                }
                Received::Unanswered => {
                    core.qp.failure().note(QpFailure::Unreachable);
                    self.left(core, now);
                    break;
                }
                Received::Octets(octets) => {
                    received = true;
                    buffer.fill(octets);
                    self.deliver(core, now);
                    if octets < room || core.is_held() {
                        break;
                    }
                }
            }
        }
        if !core.keeps_buffer()
            && let Some(empty) = self.buffer.take_if(|b| b.is_empty())
        {
            empty.put();
        }
        received
    }

    /// The same, over a wire that does something to what arrives.
    fn receive_by_wire(&mut self, core: &mut Core, now: Moment) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let mut scratch = Buffer::take();
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            if wire.closed || wire.line.is_full() {
                break;
            }
            let room = scratch.room();
            match self.stream.receive(room) {
                Received::Nothing => break,
                Received::Closed | Received::Unanswered => wire.closed = true,
                Received::Octets(octets) => {
                    received = true;
                    let mut piece = room[..octets].to_vec();
                    wire.spoil(&mut piece);
                    let due = now + wire.lateness().unwrap_or_default();
                    wire.line.push(due, piece, ());
                }
            }
        }
        scratch.put();
        self.deliver_late(core, now) | received
    }

    /// Gives the connection what is due; whether something was.
    fn deliver_late(&mut self, core: &mut Core, now: Moment) -> bool {
        let mut received = false;
        while !core.is_held()
            && let Some(wire) = &mut self.wire
            && let Some((piece, ())) = wire.line.pop(now)
        {
            received = true;
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            // A buffer has room for what was received at once, behind a frame.
            buffer.room()[..piece.len()].copy_from_slice(&piece);
            buffer.fill(piece.len());
            self.deliver(core, now);
        }
        if self.wire.as_ref().is_some_and(|wire| wire.closed && wire.line.is_empty()) {
            self.left(core, now);
        }
        received
    }

    /// Gives the connection what was received. A message that waits for a receive stays in the
    /// buffer, and what follows it with TCP, whose window then holds the peer back.
    fn deliver(&mut self, core: &mut Core, now: Moment) {
        let Some(buffer) = &mut self.buffer else { return };
        loop {
            let consumed = core.handle(Input::Bytes(buffer.bytes()), ns_at(now));
            buffer.consume(consumed);
            if !core.is_held() || !core.await_recv() {
                return;
            }
        }
    }

    fn send(&mut self, core: &mut Core, now: Moment) {
        let Some(mpa) = mpa_of(core) else { return };
        let before = mpa.stats().segments_out;
        let outcome = mpa.poll_transmit(|out| self.stream.send(out));
        let sent = mpa.stats();
        if sent.octets_out >= self.next_segment_look {
            self.next_segment_look = sent.octets_out + SEGMENT_LOOK;
            mpa.set_emss(self.stream.segment_bytes());
        }
        // A Read Request has no payload, and is owed an acknowledgement as well.
        if sent.segments_out != before && matches!(self.acks, PeerAcks::None) {
            let look_at = now + core.host.settings().stall_after / SILENCE_LOOKS;
            self.acks = PeerAcks::Owed { since: now, look_at };
        }
        match outcome {
            Sending::Done => core.schedule.blocked = false,
            Sending::More | Sending::Blocked => core.schedule.blocked = true,
            Sending::Failed => {
                // What the peer said before it went, a Terminate above all, is still to be read.
                while core.phase.has_socket() && self.receive_bytes(core, now) {}
                self.left(core, now);
            }
        }
    }

    /// The peer has ended the connection.
    fn left(&mut self, core: &mut Core, now: Moment) {
        if core.phase == Phase::Closed {
            return;
        }
        core.handle(Input::PeerGone, ns_at(now));
        if core.conn.as_ref().is_none_or(Conn::is_dead) {
            return self.closed(core);
        }
        core.phase = core.phase.after(PhaseChange::PeerLeft);
        core.schedule.blocked = false;
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
    }

    fn closed(&mut self, core: &mut Core) {
        self.close(core);
        core.phase = core.phase.after(PhaseChange::Gone);
        core.schedule.blocked = false;
    }

    /// What was received and not consumed is of no use to a closed connection.
    fn close(&mut self, core: &mut Core) {
        core.handle(Input::Close, 0);
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
    }

    /// Closes this half once all is written of a connection that has ended, or gives up the rest in
    /// time: a peer that does not read, but whose host answers, might keep it for ever.
    fn part(&mut self, core: &mut Core, now: Moment) {
        let stall_after = core.host.settings().stall_after;
        let Some(mpa) = mpa_of(core).filter(|mpa| mpa.is_dead()) else { return };
        if mpa.is_finished() {
            self.stream.shutdown_write();
            core.phase = core.phase.after(PhaseChange::Finished);
            self.lingers_until = Some(now + LINGER);
        } else {
            self.lingers_until.get_or_insert(now + stall_after);
        }
    }

    fn disconnect(&mut self, core: &mut Core) {
        match core.phase {
            Phase::Connecting | Phase::Open => {
                self.send(core, clock::now());
                self.close(core);
            }
            Phase::Left => self.closed(core),
            Phase::Lingering | Phase::Closed => {}
        }
        // What is framed might wait for a peer that does not read for as long as that likes.
        let finished = mpa_of(core).is_none_or(|mpa| mpa.is_finished());
        if matches!(self.acks, PeerAcks::Tolerated) && !finished {
            core.phase = core.phase.after(PhaseChange::Gone);
        }
    }
}

impl Transport for TcpSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    fn inject_faults(&mut self, core: &Core, number: u32) {
        self.wire = core.link_faults(number);
    }

    fn receive(&mut self, core: &mut Core, step: &Step) -> bool {
        if core.phase == Phase::Left {
            self.left(core, step.now);
            return false;
        }
        let mut received = false;
        if (step.has(todo::POSTED) || step.due) && core.is_held() {
            self.deliver(core, step.now);
            received = true;
        }
        let late = step.due && self.wire.is_some();
        if step.has(todo::RECEIVE) || step.stopped.is_some() || late {
            received |= self.receive_bytes(core, step.now);
        }
        received
    }

    fn advance(&mut self, core: &mut Core, step: &Step) {
        if !step.due || !core.phase.has_socket() {
            return;
        }
        if self.lingers_until.is_some_and(|until| until <= step.now) {
            core.phase = core.phase.after(PhaseChange::Gone);
        }
        if let Some(mpa) = mpa_of(core)
            && mpa.is_about_to_speak()
            && !self.stream.is_delivered()
        {
            mpa.postpone_speaking(ns_at(step.now));
        }
        core.handle(Input::Timeout, ns_at(step.now));
        self.look_for_silence(core, step.now);
    }

    fn transmit(&mut self, core: &mut Core, step: &Step) {
        if core.may_defer_reply() {
            core.reply = AckDue::Deferred;
            return;
        }
        self.send(core, step.now);
    }

    fn end(&mut self, core: &mut Core, how: Ending) {
        match how {
            Ending::Orderly | Ending::Abandoned => self.disconnect(core),
            Ending::Retired | Ending::PeerLost => self.closed(core),
        }
    }

    fn finish_step(&mut self, core: &mut Core, now: Moment, notices: &mut Notices) -> ReactorWatch {
        while let Some(event) = core.poll_event(|| self.stream.peer()) {
            match event {
                ConnEvent::Established(_) => {
                    core.phase = core.phase.after(PhaseChange::Established);
                    notices.established = self.watcher.clone();
                }
                ConnEvent::Ended { .. } => notices.disconnected = self.watcher.take(),
                ConnEvent::PathFound { .. } | ConnEvent::Dropped(_) | ConnEvent::Notice { .. } => {}
            }
        }
        if core.phase.is_open() {
            self.part(core, now);
        }
        if !core.phase.has_socket() && core.token.is_some() {
            self.stream.shutdown();
        }
        let ended = self.wire.as_ref().is_some_and(|wire| wire.closed);
        let look_at = match self.acks {
            PeerAcks::Owed { look_at, .. } => Some(look_at),
            PeerAcks::None | PeerAcks::Tolerated => None,
        };
        // What is late is of no use before a message has its receive.
        let wire = self.wire.as_ref().filter(|_| !core.is_held());
        let late = wire.and_then(|wire| wire.next_due());
        let full = wire.is_some_and(|wire| wire.line.is_full());
        let own = core.conn.as_ref().and_then(Conn::poll_timeout).map(moment_at);
        core.due = earliest([own, self.lingers_until, late, look_at]);
        let read = !core.is_held() && !ended && !full;
        let write = core.schedule.blocked;
        ReactorWatch { read, moderated: false, write_beside: false, write, timer: core.due }
    }

    /// Everything framed is written, our half is closed, and what arrives is read until all is
    /// acknowledged. The kernel resets a connection that is closed with unread bytes, and a reset
    /// may overtake what is still on its way.
    fn flush_at_exit(&mut self, core: &mut Core, until: Moment) -> bool {
        if !core.phase.has_socket() {
            return true;
        }
        core.handle(Input::Close, 0);
        let mut scratch = Buffer::take();
        let mut closing = false;
        while clock::now() < until && !fds::are_lost() {
            if !closing {
                self.send(core, clock::now());
                let finished = mpa_of(core).is_none_or(|mpa| mpa.is_finished());
                closing = !core.phase.has_socket() || finished;
                if closing {
                    self.stream.shutdown_write();
                }
            }
            let received = self.stream.receive(scratch.room());
            let acknowledged = closing && self.stream.is_delivered();
            match received {
                Received::Closed | Received::Unanswered => return true,
                Received::Nothing if acknowledged => return true,
                Received::Nothing | Received::Octets(_) => {}
            }
            if received == Received::Nothing {
                self.stream.wait(!closing);
            }
        }
        false
    }
}
