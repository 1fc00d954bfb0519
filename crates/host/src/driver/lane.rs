//! Connections by shared memory: a lane in place of a TCP connection ([`LaneSocket`]), or beside
//! the UDP socket of a Shuttle connection ([`LaneLink`]).

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weft_net::lane::{AckWake, ShmLane};
use weft_net::tcp::Ready;
use weft_os::clock::{self, Moment, moment_at, ns_at};
use weft_rnic::{Conn, ConnEvent, Input, SegmentLane, Sending, earliest};
use weft_verbs::QpState;

use super::phase::{Phase, PhaseChange};
use super::transport::{Core, Ending, ReactorWatch, Step, Transport, todo};
use super::watcher::{LinkWatcher, Notices};
use crate::ProgressMode;
use crate::connections::LINGER;
use crate::host::Host;

/// So many bytes, or segments, at once are bulk, of which more follows in a moment.
const BULK_BYTES: u64 = 8 << 10;
const BULK_SEGMENTS: u64 = 16;
/// Looks of the reactor for more of it before it sleeps, some 20 us in all: to sleep and to be
/// woken takes as long as copying what came meanwhile.
const BULK_LOOKS: u32 = 2000;
/// Times in a row that it does so, after which other connections have their turn.
const BULK_TURNS: u32 = 32;

/// Bytes that are sent at a time to a reader that keeps up, after which other connections have
/// their turn, and what has arrived.
const SEND_TURN_BYTES: u64 = 1 << 20;

/// Looks of the reactor for the next Read after it has answered one, some 5 us in all.
const READ_LOOKS: u32 = 500;
/// Reads that are answered in a row, after which other connections have their turn.
const READ_TURNS: u32 = 16;

/// What a connection does with its lane, whatever else it has.
pub(super) struct LaneLink {
    pub(super) lane: Box<ShmLane>,
    /// More could be sent at once, after others had their turn.
    has_more: bool,
    /// There was no room for something.
    is_full: bool,
}

impl LaneLink {
    pub fn new(mut lane: Box<ShmLane>, host: &Host) -> Self {
        if !host.permits_loans() {
            lane.forbid_loans();
        }
        Self { lane, has_more: false, is_full: false }
    }

    /// What becomes readable for a side that sleeps.
    pub fn bell(&self) -> BorrowedFd<'_> {
        self.lane.bell()
    }

    /// Whether there is something to take, without a system call.
    pub fn has_news(&mut self) -> bool {
        self.lane.has_news()
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        Ready { read: self.lane.has_arrivals(), write: true }
    }

    /// Takes what has arrived; whether anything was new.
    pub fn receive(&mut self, core: &mut Core, now: Moment) -> bool {
        let mut any = false;
        for _ in 0..BULK_TURNS {
            let before = core.stats();
            any |= self.receive_once(core, now);
            let after = core.stats();
            // Who is to hear of completions waits for the end of this step.
            let is_many = after.segments_in - before.segments_in >= BULK_SEGMENTS;
            let is_bulk = after.octets_in - before.octets_in >= BULK_BYTES
                || is_many && !core.has_completions();
            // What waits for a receive holds back all that could come.
            let is_over = core.schedule.leased || !is_bulk || core.is_held();
            if is_over || !self.await_more() {
                break;
            }
        }
        any
    }

    /// Waits a moment for the peer, which is at work on bulk; whether it has done something.
    fn await_more(&mut self) -> bool {
        (0..BULK_LOOKS).any(|_| {
            std::hint::spin_loop();
            self.lane.has_arrivals() || self.lane.has_acks()
        })
    }

    /// The same until there is room for more of it; a peer that sends bulk itself may wait for that
    /// to be taken.
    fn await_room(&mut self) -> bool {
        (0..BULK_LOOKS).any(|_| {
            std::hint::spin_loop();
            self.lane.has_room() || self.lane.has_arrivals()
        })
    }

    /// Takes what has arrived, and what a receive that was posted meanwhile lets in; whether
    /// anything was new.
    pub(super) fn receive_once(&mut self, core: &mut Core, now: Moment) -> bool {
        let mut any = false;
        loop {
            let Some(conn) = &mut core.conn else { return any };
            any |= conn.receive_from(&mut *self.lane, ns_at(now));
            // A receive may have been posted just before.
            if !core.is_held() || !core.await_recv() {
                return any;
            }
        }
    }

    /// Takes what the bell says, before anything else is; whether it said something: then a whole
    /// step follows, at the end of which this side says again that it sleeps.
    pub fn heed_bell(&mut self, step: &Step) -> bool {
        self.lane.heed_bell(step.is_readable)
    }

    /// Whether the peer has ended the connection, and everything that it wrote was taken.
    pub fn is_over(&self) -> bool {
        self.lane.is_finished()
    }

    /// Whether the peer has let go of the lane, whatever waits for a receive in it.
    pub fn is_abandoned(&self) -> bool {
        self.lane.is_abandoned()
    }

    /// Whether this side has let go of it.
    pub fn is_broken_off(&self) -> bool {
        self.lane.is_broken_off()
    }

    /// Sends what there is to send; `false` if the lane is of no use any more.
    pub fn send(&mut self, core: &mut Core, now: Moment) -> bool {
        core.schedule.blocked = false;
        let Some(conn) = &mut core.conn else { return true };
        let first = conn.stats().octets_out;
        loop {
            let before = conn.stats().octets_out;
            let outcome = conn.transmit_to(&mut *self.lane, ns_at(now));
            let sent = conn.stats().octets_out;
            (self.has_more, self.is_full) = (outcome == Sending::More, outcome == Sending::Blocked);
            if outcome == Sending::Failed {
                return false;
            }
            let waits = self.is_full && sent - before >= BULK_BYTES && !core.schedule.leased;
            if !waits || !self.await_room() {
                return true;
            }
            if sent - first >= SEND_TURN_BYTES {
                self.has_more = true;
                return true;
            }
        }
    }

    /// Tells the peer whether this side sleeps or polls; whether there is something to do at once,
    /// of which nobody would tell the reactor.
    pub fn rest(&mut self, core: &mut Core) -> bool {
        if core.schedule.leased || !core.phase.has_socket() {
            self.lane.wake();
            return self.has_more;
        }
        if self.answer_reads(core) {
            return true;
        }
        // Who polls only a few connections finds the acknowledgements itself, unless the reactor is
        // to. The peer rings for who may sleep, for who waits until the send queue is drained, for
        // requests that may not leave before, and for one of many connections: a poll looks at
        // those that have news.
        let drains = core.qp.state() == QpState::Sqd;
        let waits = drains || core.qp.sq().has_pending();
        let polls = core.host.settings().progress != ProgressMode::Engine;
        let needs_bell = !polls || core.qp.send_cq().has_channel() || core.is_in_group() || waits;
        let awaited = core.conn.as_ref().filter(|_| needs_bell);
        let awaited = awaited.and_then(|conn| conn.awaited_acks(drains));
        let is_refusing = core.conn.as_ref().is_some_and(Conn::is_refusing);
        let for_acks = match awaited {
            _ if self.is_full || is_refusing => AckWake::Next,
            None => AckWake::Never,
            Some(count) => AckWake::Requests(count),
        };
        // Of an end behind a request that is refused there is no other news.
        self.lane.sleep(for_acks) || self.has_more || is_refusing && self.lane.is_ended()
    }

    /// Answers Reads that follow each other closely, without a turn of the reactor between them;
    /// whether a whole step has to follow.
    fn answer_reads(&mut self, core: &mut Core) -> bool {
        let (mut any, mut now) = (false, clock::now());
        for _ in 0..READ_TURNS {
            if !self.await_read(core) {
                break;
            }
            any = true;
            // The application waits for the end of this step, to hear of completions.
            if !core.phase.is_open() || core.qp.recv_cq().has_entries() {
                break;
            }
            self.receive_once(core, now);
            if !self.send(core, now) {
                break;
            }
            // Not before the answer, which would be later by as long as that takes.
            now = clock::now();
        }
        any
    }

    /// Looks for the next Read of a peer whose last one was just answered, if that is likely to
    /// come: to sleep and to be woken takes longer. Whether something is there.
    fn await_read(&mut self, core: &mut Core) -> bool {
        let responses = core.stats().responses_out;
        if !core.read_habit.guesses(responses) {
            return false;
        }
        // The acknowledgement of the last answer, which comes first, is no Read.
        let is_right = (0..READ_LOOKS).any(|_| {
            std::hint::spin_loop();
            self.lane.has_arrivals()
        });
        core.read_habit.note(is_right);
        is_right
    }

    /// Waits up to a millisecond for the peer.
    pub fn wait(&mut self) {
        self.lane.wait();
        self.lane.heed_bell(true);
    }

    /// The process ends: gives the peer time to read what is lent to it, which ends with it.
    pub fn await_borrower(&mut self, core: &mut Core, until: Moment) {
        while core.conn.as_ref().is_some_and(Conn::is_lending)
            && !self.is_over()
            && !self.is_abandoned()
            && clock::now() < until
        {
            self.wait();
            self.receive_once(core, clock::now());
        }
    }

    /// Acknowledges what was placed, before the connection ends.
    pub fn acknowledge(&mut self, core: &mut Core) {
        if let Some(conn) = &mut core.conn {
            conn.acknowledge_to(&mut *self.lane);
        }
    }

    /// Ends the sending half.
    pub fn finish(&self) {
        self.lane.shutdown_write();
    }

    /// Ends both.
    pub fn shutdown(&self) {
        self.lane.shutdown();
    }
}

/// A lane in place of a TCP connection.
pub(super) struct LaneSocket {
    link: LaneLink,
    /// The peer's address in the TCP connection.
    pub(super) peer: Option<SocketAddr>,
    watcher: Option<Arc<dyn LinkWatcher>>,
    /// Until when the peer may take to end it as well, once this half has ended.
    lingers_until: Option<Moment>,
}

impl LaneSocket {
    pub fn new(
        lane: Box<ShmLane>,
        (peer, host): (Option<SocketAddr>, &Host),
        watcher: Arc<dyn LinkWatcher>,
    ) -> Self {
        Self { link: LaneLink::new(lane, host), peer, watcher: Some(watcher), lingers_until: None }
    }

    pub fn ready(&self) -> Ready {
        self.link.ready()
    }

    /// The lane.
    pub(super) fn link_mut(&mut self) -> &mut LaneLink {
        &mut self.link
    }

    /// The lane, as long as there is nothing else to see to.
    pub(super) fn plain_link(&mut self) -> Option<&mut LaneLink> {
        self.lingers_until.is_none().then_some(&mut self.link)
    }

    /// The peer has ended the connection.
    fn left(&mut self, core: &mut Core, now: Moment) {
        if core.phase == Phase::Closed {
            return;
        }
        core.handle(Input::PeerGone, ns_at(now));
        let change = match core.conn.as_ref().is_none_or(Conn::is_dead) {
            true => PhaseChange::Gone,
            false => PhaseChange::PeerLeft,
        };
        core.phase = core.phase.after(change);
    }

    fn is_finished(core: &Core) -> bool {
        matches!(&core.conn, Some(Conn::Mpa(mpa)) if mpa.is_finished())
    }

    fn disconnect(&mut self, core: &mut Core) {
        match core.phase {
            Phase::Connecting | Phase::Open => {
                self.link.send(core, clock::now());
                self.link.acknowledge(core);
                core.handle(Input::Close, 0);
            }
            Phase::Left => {
                // A receive may be in the hands of a message that will not end.
                core.handle(Input::Close, 0);
                core.phase = core.phase.after(PhaseChange::Gone);
            }
            Phase::Lingering | Phase::Closed => {}
        }
    }
}

impl Transport for LaneSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.link.bell()
    }

    /// Faults need a network: with some planned there are no lanes.
    fn inject_faults(&mut self, _: &Core, _: u32) {}

    fn receive(&mut self, core: &mut Core, step: &Step) -> bool {
        if core.phase == Phase::Left {
            self.left(core, step.now);
            return false;
        }
        let waits = step.due || step.has(todo::POSTED | todo::SEND);
        if !step.is_readable && !self.link.has_news() && !waits {
            return false;
        }
        let mut received = self.link.heed_bell(step);
        received |= self.link.receive(core, step.now);
        if self.link.is_over() {
            // What the peer placed just before it ended is complete.
            received |= self.link.receive(core, step.now);
            self.left(core, step.now);
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
        core.handle(Input::Timeout, ns_at(step.now));
    }

    fn transmit(&mut self, core: &mut Core, step: &Step) {
        if !self.link.send(core, step.now) {
            self.left(core, step.now);
        }
    }

    fn end(&mut self, core: &mut Core, how: Ending) {
        match how {
            Ending::Orderly | Ending::Abandoned => self.disconnect(core),
            Ending::Retired | Ending::PeerLost => {
                core.handle(Input::Close, 0);
                core.phase = core.phase.after(PhaseChange::Gone);
            }
        }
    }

    fn finish_step(&mut self, core: &mut Core, now: Moment, notices: &mut Notices) -> ReactorWatch {
        while let Some(event) = core.poll_event(|| self.peer) {
            match event {
                ConnEvent::Established(_) => {
                    core.phase = core.phase.after(PhaseChange::Established);
                    notices.established = self.watcher.clone();
                }
                ConnEvent::Ended { .. } => notices.disconnected = self.watcher.take(),
                ConnEvent::PathFound { .. } | ConnEvent::Dropped(_) | ConnEvent::Notice { .. } => {}
            }
        }
        if core.phase.is_open() && Self::is_finished(core) {
            self.link.finish();
            core.phase = core.phase.after(PhaseChange::Finished);
            self.lingers_until = Some(now + LINGER);
        }
        if !core.phase.has_socket() && core.token.is_some() {
            self.link.shutdown();
        }
        if core.phase.has_socket() && self.link.is_abandoned() {
            // What waits for a receive is still there, and only a receive helps it.
            core.ignore_socket();
        }
        let own = core.conn.as_ref().and_then(Conn::poll_timeout).map(moment_at);
        let at_once = self.link.rest(core).then_some(now);
        core.due = earliest([own, self.lingers_until, at_once]);
        // A thread that polls looks at the clock as well.
        let timer = core.due.filter(|_| !core.schedule.leased);
        ReactorWatch {
            read: true,
            moderated: false,
            write_beside: false,
            write: core.schedule.blocked,
            timer,
        }
    }

    /// The memory outlives this process: what is written there reaches the peer.
    fn flush_at_exit(&mut self, core: &mut Core, until: Moment) -> bool {
        if !core.phase.has_socket() {
            return true;
        }
        self.link.send(core, clock::now());
        self.link.await_borrower(core, until);
        core.handle(Input::Close, 0);
        loop {
            self.link.send(core, clock::now());
            if Self::is_finished(core) {
                self.link.finish();
                return true;
            }
            if clock::now() >= until || self.link.is_over() || self.link.is_abandoned() {
                return false;
            }
            self.link.wait();
        }
    }
}
