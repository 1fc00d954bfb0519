//! A Shuttle connection over UDP: datagrams in, datagrams out, and what follows from them.

mod absence;
mod admission;
mod lane_setup;
mod moderation;
mod multipath;
mod receiving;
mod relocation;

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use weft_fault::FaultDirection;
use weft_net::buffers::Buffer;
use weft_net::silence::Silence;
use weft_net::tcp::{self, Ready};
use weft_net::udp::UdpPort;
use weft_os::clock::{self, Moment, moment_at, ns_at};
use weft_os::fds;
use weft_rnic::shuttle::{ConnectionEnd, Refusal, Route};
use weft_rnic::wire::shuttle::PathId;
use weft_rnic::wire::shuttle::greeting::Greeting;
use weft_rnic::{Conn, ConnEvent, Established, Input, Sending, ShuttleQp, Written, earliest};
use weft_verbs::{QpFailure, QpState};

use absence::Absence;
pub(crate) use admission::{Doorkeeper, HelloAdmission};
use lane_setup::LaneSetup;
use moderation::{ModeratedPath, Moderation};
use multipath::leaving;
use receiving::ArrivalHabit;
use relocation::OwnAddress;

use super::cm_hook::CmHook;
use super::lane::LaneLink;
use super::phase::{Phase, PhaseChange};
use super::transport::{AckDue, Core, Ending, ReactorWatch, Step, Transport, todo};
use super::watcher::{Answer, Notices};
use crate::faults::LinkFaults;
use crate::time_wait;

/// Longest that an acknowledgement waits for the answer of a thread that sleeps between messages,
/// as long as for one that polls ([`crate::lease`]).
const DEFERRED_PAUSE: Duration = Duration::from_millis(1);
/// Timers are as late as this while a thread that sleeps between messages looks after the
/// connection: the next message brings its next step, and each timer would wake the reactor's
/// thread.
const SLEPT_PAUSE: Duration = Duration::from_millis(1);
/// Timers of a connection whose socket is full are looked at again after this.
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);
/// A connection that the peer has closed is looked at again after this.
const ENDED_PAUSE: Duration = Duration::from_millis(500);

/// The path that a connection begins with.
const FIRST_PATH: PathId = PathId(0);

/// The socket of a Shuttle connection, and what is known of its peer.
pub(super) struct ShuttleSocket {
    /// Until the connection is established, if the peer asks for it.
    pub doorkeeper: Option<Box<dyn Doorkeeper>>,
    pub hook: Option<CmHook>,
    port: Arc<UdpPort>,
    /// The socket of further paths, of this connection alone.
    further: Option<Arc<UdpPort>>,
    buffer: Option<Buffer>,
    /// How the handshake came to nothing, until the connection manager is told.
    failed: Option<Answer>,
    /// Datagrams that the socket has dropped, as far as the connection knows, and that of further
    /// paths.
    dropped: [u32; 2],
    /// Until when requests wait for a peer that has never answered.
    gives_up_at: Option<Moment>,
    /// When one that has never answered is mentioned, once the application wants to send.
    silence: Option<Silence>,
    /// Why the peer cannot have a connection, and from when on that is believed: others could have
    /// sent what it seems to have sent.
    doubt: Option<(Moment, Refusal)>,
    wire: Option<Box<LinkFaults<(Route, bool)>>>,
    /// The peer's host seems to have said that nobody is there, and nothing was heard since.
    absence: Option<Absence>,
    /// Where the peer was when it was last heard elsewhere.
    follows: Option<SocketAddr>,
    own_address: OwnAddress,
    /// The route that the socket is devoted to.
    own: Option<Route>,
    /// The shared memory beside it.
    lane: LaneSetup,
    /// Polls since the last look at the socket, with a lane.
    polls: u32,
    /// Datagrams were taken, and nothing was sent since.
    has_heard: bool,
    /// What was learnt of the path is kept.
    has_remembered: bool,
    /// What cannot be sent waits for room in the socket of further paths.
    is_further_full: bool,
    /// The last look at the socket has left nothing there.
    is_emptied: bool,
    arrivals: ArrivalHabit,
    /// When its bulk is taken; only where the kernel stamps what arrives, which it does on a long
    /// path.
    moderation: Option<Moderation>,
    /// The time that the connection was told last: no stamp of what arrives may be before it.
    told_at: Moment,
}

/// The queue pair, for what only Shuttle has; none until the peer has asked for the connection.
fn shuttle_of(core: &Core) -> Option<&ShuttleQp> {
    match &core.conn {
        Some(Conn::Shuttle(shuttle)) => Some(shuttle),
        _ => None,
    }
}

/// The same, to change.
fn shuttle_of_mut(core: &mut Core) -> Option<&mut ShuttleQp> {
    match &mut core.conn {
        Some(Conn::Shuttle(shuttle)) => Some(shuttle),
        _ => None,
    }
}

impl ShuttleSocket {
    pub fn new(port: Arc<UdpPort>) -> Self {
        Self {
            doorkeeper: None,
            hook: None,
            further: port.take_further(),
            port,
            buffer: None,
            failed: None,
            dropped: [0; 2],
            gives_up_at: None,
            silence: None,
            doubt: None,
            wire: None,
            absence: None,
            follows: None,
            own_address: OwnAddress::default(),
            own: None,
            lane: LaneSetup::None,
            polls: 0,
            has_heard: false,
            has_remembered: false,
            is_further_full: false,
            is_emptied: true,
            arrivals: ArrivalHabit::default(),
            moderation: None,
            told_at: clock::now(),
        }
    }

    /// Has the connection, which was just asked for or granted, try to get a lane.
    pub fn seek_lane(&mut self, core: &Core) {
        if let Some(shuttle) = shuttle_of(core) {
            self.lane = LaneSetup::begin(&core.host, shuttle);
        }
    }

    /// The bell of its lane.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        match &self.lane {
            LaneSetup::Open(link) => Some(link.bell()),
            _ => None,
        }
    }

    /// Its lane.
    pub(super) fn link_mut(&mut self) -> Option<&mut LaneLink> {
        self.lane.link()
    }

    /// Its lane, as long as there is nothing else to see to: a poll is not to look at the socket as
    /// well, which a thread that only `sends` does not count, and nothing is known of the peer that
    /// is to be heeded.
    pub(super) fn plain_link(&mut self, sends: bool) -> Option<&mut LaneLink> {
        let is_plain = !self.has_heard
            && self.failed.is_none()
            && self.silence.is_none()
            && self.doubt.is_none()
            && self.absence.is_none()
            && self.wire.is_none()
            && self.moderation.is_none();
        if is_plain && (sends || self.counts_poll()) { self.lane.link() } else { None }
    }

    /// What it is ready for.
    pub fn ready(&self) -> Ready {
        match &self.lane {
            LaneSetup::Open(link) => link.ready(),
            _ => self.socket_ready(),
        }
    }

    fn send(&mut self, core: &mut Core) {
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        let clock_ns = || ns_at(clock::now());
        let own = self.own.as_ref();
        let (port, further, wire) = (&*self.port, self.further.as_ref(), &mut self.wire);
        let mut leaves_by = port;
        let outcome = shuttle.poll_transmit(clock_ns, |burst| {
            leaves_by = leaving(port, further, burst);
            let Some(wire) = wire else { return leaves_by.send(burst, own) };
            match burst.lengths.first() {
                Some(length) if wire.loses(FaultDirection::Out) => {
                    Written::Octets((*length).into())
                }
                _ => leaves_by.send_first(burst, own),
            }
        });
        core.schedule.blocked = outcome != Sending::Done;
        self.is_further_full = core.schedule.blocked && !std::ptr::eq(leaves_by, port);
        if self.moderation.is_some() {
            self.told_at = clock::now();
        }
    }

    /// When the reactor looks at the socket, if it does not watch it.
    fn next_look(&mut self, core: &Core) -> Option<Moment> {
        let shuttle = shuttle_of(core)?;
        let rtt = shuttle.connection().rtt(FIRST_PATH)?;
        // With a lane nothing is measured but the handshake, and no bulk comes by datagrams.
        let min_rtt_ns = if self.lane.link().is_some() { 0 } else { rtt.min_ns };
        let is_reactors = !core.schedule.leased && !core.schedule.slept_for && !core.is_in_group();
        let (port, further) = (&self.port, self.further.as_ref());
        let begin = || {
            port.stamp_arrivals();
            further.inspect(|further| further.stamp_arrivals());
        };
        let moderation = Moderation::of_path(&mut self.moderation, min_rtt_ns, begin)?;
        let now = clock::now();
        self.told_at = now;
        if !is_reactors || core.phase != Phase::Open {
            moderation.end();
            return None;
        }
        let path = ModeratedPath {
            rtt_ns: rtt.smoothed_ns,
            room_bytes: port.room_octets(),
            received_bytes: shuttle.stats().octets_in,
        };
        let next = moderation.next_look(now, &path)?;
        Some(if self.is_emptied { next } else { moderation.look_again(now) })
    }

    /// If the handshake is over: goes on by the lane that it brought, if it did.
    fn complete_lane(&mut self, core: &mut Core) {
        let host = Arc::clone(&core.host);
        if let Some(shuttle) = shuttle_of_mut(core)
            && shuttle.connection().is_open()
        {
            self.lane.complete(shuttle, &host);
            core.lanes = self.lane.link().is_some().into();
        }
    }

    /// Takes what has come about on the connection.
    fn take_events(&mut self, core: &mut Core) {
        if core.phase == Phase::Connecting {
            self.complete_lane(core);
        }
        let peer = shuttle_of(core).map(|shuttle| shuttle.connection().route().remote);
        while let Some(event) = core.poll_event(|| peer) {
            match event {
                ConnEvent::Established(established) => self.greet(core, &established),
                ConnEvent::Ended { end, private_data } if core.phase == Phase::Connecting => {
                    self.failed = Some(match end {
                        ConnectionEnd::Rejected(reason) => Answer::Refused { reason, private_data },
                        end => Answer::None(end),
                    });
                }
                ConnEvent::PathFound { .. }
                | ConnEvent::Ended { .. }
                | ConnEvent::Dropped(_)
                | ConnEvent::Notice { .. } => {}
            }
        }
    }

    /// The peer's answer says how much it can hold.
    fn greet(&mut self, core: &mut Core, established: &Established) {
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        let route = shuttle.connection().route();
        if let Some(greeting) = Greeting::parse(&established.private_data) {
            shuttle.connection_mut().set_peer_room(u64::from(greeting.room_octets) / 2);
        }
        shuttle.limit_ord(established.ord);
        core.phase = core.phase.after(PhaseChange::Established);
        core.connections = 1;
        self.silence = None;
        self.doorkeeper = None;
        if let Some(hook) = &mut self.hook {
            hook.granted(established.clone());
        }
        self.open_paths(core);
        // A peer on this machine does not move to another address.
        if route.is_within_host() && self.port.devote(&route) {
            self.own = Some(route);
        }
    }

    /// Tells the connection manager what has come of the connection.
    fn report(&mut self, core: &mut Core, now: Moment, notices: &mut Notices) {
        if self.port.was_refused() && self.hook.is_some() {
            self.handle_refusal(core, now);
        }
        self.take_events(core);
        let (Some(hook), Some(shuttle)) = (&mut self.hook, shuttle_of(core)) else { return };
        if let Some(answer) = self.failed.take() {
            hook.answer(answer);
        }
        hook.tell(core.phase == Phase::Closed || shuttle.end().is_some(), notices);
    }

    fn close(&mut self, core: &mut Core, now: Moment) {
        match core.conn {
            Some(_) => {
                self.remember_path(core);
                core.handle(Input::Close, ns_at(now));
            }
            None => core.phase = core.phase.after(PhaseChange::Gone),
        }
    }

    /// Keeps what the connection has learnt of its path, once, for later ones.
    fn remember_path(&mut self, core: &Core) {
        let (Some(paths), Some(shuttle)) = (core.host.known_paths(), shuttle_of(core)) else {
            return;
        };
        let connection = shuttle.connection();
        // The peer may have closed it first.
        let is_good = connection.is_open() || matches!(shuttle.end(), Some(ConnectionEnd::Peer(_)));
        let saved = connection.saved(FIRST_PATH).filter(|_| is_good);
        if let Some(saved) = saved
            && !std::mem::replace(&mut self.has_remembered, true)
        {
            let remote = connection.route().remote.ip().to_canonical();
            paths.remember(remote, saved, shuttle.stats().octets_out);
        }
    }

    /// Nothing here needs a connection that the peer has closed; whether it can go. The peer may
    /// not have the answer to its Close: that stays, and the socket where nobody else hears it ask.
    fn leave(&mut self, core: &mut Core, now: Moment) -> bool {
        self.remember_path(core);
        let Some(shuttle) = shuttle_of(core) else { return true };
        let Some(owed) = shuttle.time_wait() else { return shuttle.is_over(ns_at(now)) };
        let until_ns = owed.forget_ns();
        core.host.local().time_waits.keep(owed);
        if !self.is_guest() {
            if let Some(token) = core.token.take() {
                core.host.reactor().remove(token);
            }
            time_wait::keep_socket(&core.host, Arc::clone(&self.port), self.own, until_ns);
        }
        if let Some(further) = self.further.take() {
            core.ignore_beside();
            time_wait::keep_socket(&core.host, further, None, until_ns);
        }
        true
    }

    /// When something is due.
    fn due(&self, core: &Core, now: Moment) -> Option<Moment> {
        let own = match shuttle_of(core) {
            Some(shuttle) if shuttle.end().is_some() => {
                let pause = shuttle.is_dead().then(|| now + ENDED_PAUSE);
                pause.or(shuttle.orphans_due_ns().map(moment_at))
            }
            Some(shuttle) => shuttle.poll_timeout().map(moment_at),
            None => None,
        };
        let late = self.wire.as_ref().and_then(|wire| wire.next_due());
        let doubt = self.doubt.filter(|_| core.qp.state() != QpState::Err);
        let believed = doubt.map(|(believed, _)| believed);
        let silence = self.silence.as_ref().and_then(Silence::due);
        let asks_at = self.absence.map(|absence| absence.asks_at);
        let address = self.address_due(core);
        earliest([own, self.gives_up_at, late, believed, silence, asks_at, address])
    }

    /// The process was stopped: what it has waited for was not there to be heard either.
    fn note_stop(&mut self, stopped: Duration) {
        // The peer's host will say again that nobody is there.
        self.absence = None;
        let doubt = self.doubt.as_mut().map(|(believed, _)| believed);
        self.gives_up_at.iter_mut().chain(doubt).for_each(|at| *at += stopped);
    }

    fn disconnect(&mut self, core: &mut Core) {
        // What has arrived by now is taken before, as an adapter would have: its sender may not
        // care for it any more, but would be told that it failed.
        self.receive_bundles(core);
        if let Some(link) = self.lane.link() {
            link.receive(core, clock::now());
            link.send(core, clock::now());
            link.acknowledge(core);
        }
        self.close(core, clock::now());
        core.schedule.blocked = false;
        self.send(core);
    }
}

impl Transport for ShuttleSocket {
    fn fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }

    fn inject_faults(&mut self, core: &Core, number: u32) {
        self.wire = core.link_faults(number);
    }

    fn receive(&mut self, core: &mut Core, step: &Step) -> bool {
        if let Some(stopped) = step.stopped {
            self.note_stop(stopped);
        }
        // A peer that has given up a message without a receive says so before its application may
        // tell: one that is posted now is not for that message any more.
        let is_held = core.is_held();
        let mut received = is_held && self.receive_bundles(core);
        received |= self.receive_lane(core, step);
        let looks = self.moderation.as_ref().is_some_and(|own| own.is_due(step.now));
        // What is about to be taken for lost may be acknowledged by what waits in the socket.
        let looks = looks || step.due && self.lane.link().is_none();
        let looks = looks || step.has(todo::RECEIVE) || step.stopped.is_some();
        if looks && !is_held && self.is_due_for_socket(core, step) {
            let is_all_due = step.due || step.stopped.is_some();
            received |= match is_all_due {
                true => self.receive_bundles(core),
                false => self.receive_soon_again(core),
            };
        }
        // Whether there is a lane is to be known before anything is sent.
        self.take_events(core);
        if step.due && self.wire.is_some() {
            received |= self.take_late(core, step.now);
        }
        received
    }

    fn advance(&mut self, core: &mut Core, step: &Step) {
        if step.due {
            let now = clock::now();
            // The process may have been stopped since the step began.
            core.note_stop(now);
            core.handle(Input::Timeout, ns_at(now));
        }
        self.await_peer(core);
        if self.lane.link().is_none() {
            core.offer_held(step.now);
        }
        self.take_events(core);
        self.heed_refusal(core, step.now);
        self.look_after_absence(core, step.now);
        self.look_after_retries(core, step.now);
        self.look_after_silence(core, step.now);
    }

    fn transmit(&mut self, core: &mut Core, step: &Step) {
        if let Some(link) = self.lane.link() {
            if !link.send(core, step.now) {
                core.handle(Input::PeerGone, ns_at(step.now));
            }
        } else if core.may_defer_reply() {
            core.reply = AckDue::Deferred;
            return;
        }
        let is_open = shuttle_of(core).is_some_and(|shuttle| shuttle.connection().is_open());
        if self.lane.link().is_none() || step.due || self.has_heard || !is_open {
            self.has_heard = false;
            self.send(core);
        }
    }

    fn end(&mut self, core: &mut Core, how: Ending) {
        // Who ends it does not wait for the peer any longer.
        self.silence = None;
        match how {
            Ending::Orderly | Ending::Abandoned => self.disconnect(core),
            Ending::Retired => {
                self.close(core, clock::now());
                core.schedule.blocked = false;
                self.send(core);
            }
            Ending::PeerLost => {
                if let Some(wire) = &mut self.wire {
                    wire.cut();
                }
            }
        }
    }

    fn finish_step(&mut self, core: &mut Core, now: Moment, notices: &mut Notices) -> ReactorWatch {
        self.report(core, now, notices);
        self.look_after_address(core, now);
        let end = match shuttle_of(core) {
            // Until the queue pair has failed, its requests are to hear that nobody is there.
            Some(shuttle) if shuttle.is_dead() => shuttle.end(),
            _ => None,
        };
        let gone = match end {
            None => false,
            Some(ConnectionEnd::Peer(_)) => core.phase == Phase::Closed || self.leave(core, now),
            Some(_) => true,
        };
        if gone {
            core.phase = core.phase.after(PhaseChange::Gone);
        }
        if core.phase == Phase::Closed {
            self.report(core, now, notices);
        }
        let at_once = self.lane.link().is_some_and(|link| link.rest(core)).then_some(now);
        core.due = self.due(core, now).into_iter().chain(at_once).min();
        // A thread that polls looks at the clock as well. What cannot be sent stays due; the socket
        // tells when it can.
        let timer = core.due.filter(|_| !core.schedule.leased);
        let is_paced = || shuttle_of(core).is_some_and(|shuttle| shuttle.connection().is_paced());
        let pause = match core.schedule.blocked {
            true => BLOCKED_PAUSE,
            false if core.reply == AckDue::Deferred => DEFERRED_PAUSE,
            false if core.schedule.slept_for && !is_paced() => SLEPT_PAUSE,
            false => Duration::ZERO,
        };
        let write = core.schedule.blocked && !self.is_further_full;
        let looks_at = self.next_look(core);
        let timer = timer.map(|due| due.max(now + pause)).into_iter().chain(looks_at).min();
        let write_beside = self.is_further_full;
        ReactorWatch { read: true, moderated: looks_at.is_some(), write, write_beside, timer }
    }

    /// A Close is repeated until it is answered: only then the peer has all acknowledgements.
    fn flush_at_exit(&mut self, core: &mut Core, until: Moment) -> bool {
        if let Some(link) = self.lane.link() {
            link.await_borrower(core, until);
        }
        self.disconnect(core);
        self.told_at = clock::now();
        if core.qp.failure().get() == Some(QpFailure::Unreachable) {
            // The peer is known not to answer.
            return true;
        }
        let is_over = |core: &Core| {
            let ended = shuttle_of(core).is_none_or(|shuttle| shuttle.end().is_some());
            ended || core.phase == Phase::Closed
        };
        while !is_over(core) && clock::now() < until && !fds::are_lost() {
            tcp::wait(self.port.as_fd(), false);
            let (work, now) = (todo::RECEIVE | todo::TIME | todo::WRITABLE, clock::now());
            core.note_stop(now);
            let stopped = core.take_stop();
            let step = Step { work, now, is_readable: true, due: true, stopped };
            self.receive(core, &step);
            self.advance(core, &step);
            self.send(core);
        }
        is_over(core)
    }
}
