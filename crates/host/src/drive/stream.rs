//! A TCP connection: bytes in, bytes out, and what follows from them.

use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_net::buffers::Buffer;
use weft_net::tcp::{self, Received};
use weft_os::clock::{self, instant_at, ns_at};
use weft_os::fds::HighFd;
use weft_reactor::{Interest, Source, Token};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{Event, MpaQp, Sending};
use weft_verbs::{Qp, Wake};

use crate::Settings;
use crate::connections::LINGER;
use crate::device_kind::Personality;
use crate::drive::{Drive, LinkWatcher, Notices, Turn, todo};
use crate::engine::Engine;
use crate::faults::Wire;
use crate::tally::Work;

/// Receives in one go at most, so that one connection does not starve the others.
const RECEIVES_MAX: usize = 4;
/// Payload sent between two looks at the segment size. TCP raises it once it knows the peer's
/// window: over loopback from 32 KiB to 64 KiB.
const SEGMENT_LOOK: u64 = 1 << 20;

/// How often in the time that a peer may be silent it is looked whether it is.
const SILENCE_LOOKS: u32 = 4;

/// What is left of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    /// The peer has ended it, which the queue pair does not show while it has no request.
    Left,
    /// Our half is closed; what arrives is thrown away until the peer closes too.
    Lingering(Instant),
    Closed,
}

/// A connection and its socket.
pub(crate) struct StreamDrive {
    mpa: MpaQp,
    socket: HighFd,
    token: Option<Token>,
    buffer: Option<Buffer>,
    /// Is woken when a receive is posted that a message waits for.
    waker: Weak<dyn Wake>,
    watched: Interest,
    turn: Turn,
    /// Something was received that nothing has been concluded from yet.
    has_news: bool,
    /// When so much payload is sent, the segment size is looked at again.
    next_segment_look: u64,
    phase: Phase,
    watcher: Option<Arc<dyn LinkWatcher>>,
    /// A peer that says nothing and takes nothing is waited for, as TCP does by itself.
    waits_forever: bool,
    /// Since when something was perhaps not acknowledged, and when that is looked at.
    unacknowledged: Option<(Instant, Instant)>,
    /// When something is to be done although nothing arrives.
    due: Option<Instant>,
    wire: Option<Box<Wire<()>>>,
}

impl StreamDrive {
    /// Takes over `socket`.
    pub fn new(
        mpa: MpaQp,
        socket: HighFd,
        watcher: Arc<dyn LinkWatcher>,
        waker: Weak<dyn Wake>,
    ) -> Self {
        Self {
            mpa,
            socket,
            token: None,
            buffer: None,
            waker,
            watched: Interest::READ,
            turn: Turn::default(),
            has_news: false,
            next_segment_look: SEGMENT_LOOK,
            phase: Phase::Open,
            watcher: Some(watcher),
            waits_forever: false,
            unacknowledged: None,
            due: None,
            wire: None,
        }
    }

    fn worth_receiving(&self) -> u8 {
        if self.mpa.is_held() { 0 } else { todo::RECEIVE }
    }

    fn handle_time(&mut self, now: Instant) {
        if let Phase::Lingering(until) = self.phase
            && until <= now
        {
            self.phase = Phase::Closed;
        }
        if self.mpa.is_about_to_speak() && tcp::unacknowledged(self.socket.as_fd()) > 0 {
            self.mpa.postpone_speaking(ns_at(now));
        }
        self.mpa.handle_timeout(ns_at(now));
        self.look_for_silence(now);
    }

    /// A peer whose host is silent for too long has gone. One that only does not read may be
    /// stopped: its host says so, and it is waited for.
    fn look_for_silence(&mut self, now: Instant) {
        let limit = Settings::get().stall_after;
        let Some((since, _)) = self.unacknowledged.filter(|(_, look_at)| *look_at <= now) else {
            return;
        };
        self.unacknowledged = None;
        if let Some(silence) = tcp::silence(self.socket.as_fd()) {
            if silence >= limit && now.saturating_duration_since(since) >= limit {
                return self.closed();
            }
            self.unacknowledged = Some((since, now + limit / SILENCE_LOOKS));
        }
    }

    /// Nobody ran who was to do what was due: neither the peer nor the application had that time,
    /// and what came meanwhile comes first. Whether it was so.
    fn note_stop(&mut self, now: Instant) -> bool {
        let stopped = self.due.and_then(|due| clock::stopped_since(due, now));
        if let Some(stopped) = stopped {
            self.due = None;
            self.mpa.handle_stop(stopped.as_nanos() as u64);
        }
        stopped.is_some()
    }

    /// Receives what is there; whether something was.
    fn receive(&mut self, now: Instant) -> bool {
        if self.mpa.is_held() {
            if tcp::is_broken(self.socket.as_fd()) {
                self.left();
            }
            return false;
        }
        if self.wire.is_some() {
            return self.receive_by_wire(now);
        }
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            let room = buffer.room().len();
            match tcp::receive(self.socket.as_fd(), buffer.room()) {
                Received::Nothing => break,
                Received::Closed => {
                    self.left();
                    break;
                }
                Received::Octets(octets) => {
                    received = true;
                    buffer.fill(octets);
                    self.deliver(now);
                    if octets < room || self.mpa.is_held() {
                        break;
                    }
                }
            }
        }
        if !self.turn.leased
            && let Some(empty) = self.buffer.take_if(|b| b.is_empty())
        {
            empty.put();
        }
        received
    }

    /// The same, over a wire that does something to what arrives.
    fn receive_by_wire(&mut self, now: Instant) -> bool {
        let Some(wire) = &mut self.wire else { return false };
        let mut scratch = Buffer::take();
        let mut received = false;
        for _ in 0..RECEIVES_MAX {
            if wire.closed || wire.line.is_full() {
                break;
            }
            let room = scratch.room();
            match tcp::receive(self.socket.as_fd(), room) {
                Received::Nothing => break,
                Received::Closed => wire.closed = true,
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
        self.deliver_late(now) | received
    }

    /// Gives the mpa what is due; whether something was.
    fn deliver_late(&mut self, now: Instant) -> bool {
        let mut received = false;
        while !self.mpa.is_held()
            && let Some(wire) = &mut self.wire
            && let Some((piece, ())) = wire.line.pop(now)
        {
            received = true;
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            // A buffer has room for what was received at once, behind a frame.
            buffer.room()[..piece.len()].copy_from_slice(&piece);
            buffer.fill(piece.len());
            self.deliver(now);
        }
        if self.wire.as_ref().is_some_and(|wire| wire.closed && wire.line.is_empty()) {
            self.left();
        }
        received
    }

    /// Gives the mpa what was received. A message that waits for a receive stays in the
    /// buffer, and what follows it with TCP, whose window then holds the peer back.
    fn deliver(&mut self, now: Instant) {
        let Some(buffer) = &mut self.buffer else { return };
        loop {
            let consumed = self.mpa.receive(buffer.bytes(), ns_at(now));
            buffer.consume(consumed);
            let waits = self.mpa.is_held();
            if !waits || !self.mpa.qp().await_recv(Weak::clone(&self.waker)) {
                return;
            }
        }
    }

    fn transmit(&mut self, now: Instant) {
        let socket = self.socket.as_fd();
        let before = self.mpa.stats().octets_out;
        let outcome = self.mpa.poll_transmit(|out| tcp::send(socket, out));
        let sent = self.mpa.stats().octets_out;
        if sent != before && self.unacknowledged.is_none() && !self.waits_forever {
            let look_at = now + Settings::get().stall_after / SILENCE_LOOKS;
            self.unacknowledged = Some((now, look_at));
        }
        if sent >= self.next_segment_look {
            self.next_segment_look = sent + SEGMENT_LOOK;
            self.mpa.set_emss(tcp::segment_size(socket));
        }
        match outcome {
            Sending::Done => self.turn.blocked = false,
            Sending::More | Sending::Blocked => self.turn.blocked = true,
            Sending::Failed => {
                // What the peer said before it went, a Terminate above all, is still to be read.
                while !self.is_cut() && self.receive(now) {}
                self.left();
            }
        }
    }

    /// Whether there is no connection any more.
    fn is_cut(&self) -> bool {
        matches!(self.phase, Phase::Left | Phase::Closed)
    }

    /// The peer has ended the connection.
    fn left(&mut self) {
        if self.phase == Phase::Closed {
            return;
        }
        self.mpa.handle_closed();
        if self.mpa.is_dead() {
            return self.closed();
        }
        self.phase = Phase::Left;
        self.turn.blocked = false;
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
    }

    fn closed(&mut self) {
        self.close_endpoint();
        self.phase = Phase::Closed;
        self.turn.blocked = false;
    }

    /// What was received and not consumed is of no use to a closed mpa.
    fn close_endpoint(&mut self) {
        self.mpa.close();
        if let Some(buffer) = &mut self.buffer {
            buffer.clear();
        }
    }

    fn watch(&mut self) {
        let ended = self.wire.as_ref().is_some_and(|wire| wire.closed);
        let read = !self.mpa.is_held() && !ended;
        let interest = if self.turn.leased {
            Interest::NONE
        } else {
            Interest { read, write: self.turn.blocked }
        };
        if interest != self.watched
            && let Some(token) = self.token
        {
            self.watched = interest;
            Engine::get().modify(token, interest);
        }
    }

    fn set_timer(&mut self, this: &Weak<dyn Source>) {
        let lingering = match self.phase {
            Phase::Lingering(until) => Some(until),
            _ => None,
        };
        let late = self.wire.as_ref().and_then(|wire| wire.next_due());
        let look_at = self.unacknowledged.map(|(_, look_at)| look_at);
        let others = lingering.into_iter().chain(late).chain(look_at);
        self.due = self.mpa.poll_timeout().map(instant_at).into_iter().chain(others).min();
        if let Some(due) = self.due {
            self.turn.set_timer(due, this);
        }
    }
}

impl Drive for StreamDrive {
    fn register(&mut self, source: Arc<dyn Source>) {
        self.token = Some(Engine::get().add(self.socket.as_fd(), Interest::READ, source));
    }

    fn capabilities(&self) -> Option<Capabilities> {
        (!self.is_cut()).then(|| self.mpa.capabilities())
    }

    fn qp(&self) -> &Arc<Qp> {
        self.mpa.qp()
    }

    fn spoil(&mut self, number: u32) {
        self.wire = Wire::of(crate::Host::get().faults(), number);
    }

    fn wait_for_recv_forever(&mut self) {
        self.waits_forever = true;
        self.unacknowledged = None;
        self.mpa.wait_for_recv_forever();
        tcp::never_give_up(self.socket.as_fd());
    }

    fn lose_peer(&mut self) {
        self.closed();
    }

    fn work_done(&self) -> (Personality, Work) {
        let (stats, operations) = (self.mpa.stats(), self.mpa.qp().sq().succeeded());
        let (octets_out, octets_in) = (stats.octets_out, stats.octets_in);
        (
            Personality::Iwarp,
            Work { contexts: 0, connections: 1, operations, octets_out, octets_in },
        )
    }

    fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    fn is_over(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// A full socket is asked whether it has room for more than a few octets.
    fn look(&self) -> u8 {
        match self.phase {
            Phase::Closed | Phase::Left => 0,
            _ if !self.turn.blocked => self.worth_receiving(),
            _ => {
                let ready = tcp::ready(self.socket.as_fd());
                let receive = if ready.read { self.worth_receiving() } else { 0 };
                receive | if ready.write { todo::SEND | todo::WRITABLE } else { 0 }
            }
        }
    }

    fn has_arrivals(&self) -> bool {
        !self.is_cut() && tcp::ready(self.socket.as_fd()).read
    }

    fn work(&mut self, work: u8, now: Instant) {
        match self.phase {
            Phase::Closed => return,
            Phase::Left => return self.left(),
            Phase::Open | Phase::Lingering(_) => {}
        }
        let mut received = std::mem::take(&mut self.has_news);
        received |= self.note_stop(now) && self.receive(now);
        if work & todo::TIME != 0 {
            self.handle_time(now);
        }
        if work & (todo::POSTED | todo::TIME) != 0 && self.mpa.is_held() {
            self.deliver(now);
            received = true;
        }
        let late = work & todo::TIME != 0 && self.wire.is_some();
        received |= (work & todo::RECEIVE != 0 || late) && self.receive(now);
        let open = !self.is_cut() && (!self.turn.blocked || work & todo::WRITABLE != 0);
        if open && (received || work & todo::SEND != 0) {
            self.transmit(now);
        }
    }

    /// The buffer stays with a connection that is polled.
    fn finds_nothing(&mut self, now: Instant) -> bool {
        let received = self.receive(now);
        self.has_news |= received;
        !received && !self.is_cut()
    }

    fn disconnect(&mut self) {
        match self.phase {
            Phase::Open => {
                self.transmit(clock::now());
                self.close_endpoint();
            }
            Phase::Left => self.closed(),
            Phase::Lingering(_) | Phase::Closed => {}
        }
        // What is framed might wait for a peer that does not read for as long as that likes.
        if self.waits_forever && !self.mpa.is_finished() {
            self.phase = Phase::Closed;
        }
    }

    fn abandon(&mut self) {
        self.disconnect();
        self.phase = Phase::Closed;
    }

    fn conclude(&mut self, now: Instant, this: &Weak<dyn Source>) -> Notices {
        let mut notices = Notices::default();
        while let Some(event) = self.mpa.poll_event() {
            match event {
                Event::Established(_) => notices.established = self.watcher.clone(),
                Event::Ended { .. } => notices.disconnected = self.watcher.take(),
                Event::Dropped(_) | Event::Notice { .. } => {}
            }
        }
        if self.phase == Phase::Open && self.mpa.is_finished() {
            tcp::shutdown_write(self.socket.as_fd());
            self.phase = Phase::Lingering(now + LINGER);
        }
        if self.is_cut() {
            notices.finished = self.token.take();
            if notices.finished.is_some() {
                tcp::shutdown(self.socket.as_fd());
            }
        } else {
            self.watch();
            self.set_timer(this);
        }
        notices
    }

    /// Everything framed is written, our half is closed, and what arrives is read until all is
    /// acknowledged. The kernel resets a connection that is closed with unread octets, and a reset
    /// may overtake what is still on its way.
    fn flush_at_exit(&mut self, until: Instant) {
        if self.is_cut() {
            return;
        }
        self.mpa.close();
        let mut scratch = Buffer::take();
        let mut closing = false;
        while clock::now() < until {
            if !closing {
                self.transmit(clock::now());
                closing = self.is_cut() || self.mpa.is_finished();
                if closing {
                    tcp::shutdown_write(self.socket.as_fd());
                }
            }
            let received = tcp::receive(self.socket.as_fd(), scratch.room());
            let acknowledged = closing && tcp::unacknowledged(self.socket.as_fd()) == 0;
            if received == Received::Closed || acknowledged && received == Received::Nothing {
                break;
            }
            if received == Received::Nothing {
                tcp::wait(self.socket.as_fd(), !closing);
            }
        }
    }
}
