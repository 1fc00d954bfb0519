//! Connections in the hands of whoever drives them: what arrives, what leaves, and what follows.
//!
//! A [`Driver`] is a connection ([`weft_rnic::Conn`]) with its socket: [`tcp`], or UDP for Shuttle
//! ([`shuttle`]) and for unreliable datagrams ([`ud`]); loopback has none. Between two processes of
//! one host shared memory ([`lane`]) takes the place of TCP, or carries what the queue pair of a
//! Shuttle connection sends.
//!
//! What every connection does goes through `Transport` and [`weft_rnic::Conn`]. The kind matters
//! where a connection is made, and in three calls of those who know which kind they have:
//! [`Driver::wait_for_recv_forever`] (SDP over TCP), [`Driver::handle_foreign_datagram`] and
//! [`Driver::rebind`] (the connection manager over Shuttle). As methods of `Transport` these would
//! be empty for the other kinds. [`tcp`] and [`shuttle`] each have a private function that gives
//! their own kind of queue pair, for what only it has: TCP's segment size and half-closed state;
//! Shuttle's handshake, path and times of silence.
//!
//! Order of calls: [`Driver::register`] once; then [`Driver::work`] with what there is to do, then
//! [`Driver::finish_step`], whose [`Notices`] are told in their order, once the lock is gone.

mod brief;
pub(crate) mod cm_hook;
mod lane;
mod phase;
mod report;
mod schedule;
pub(crate) mod shuttle;
mod tcp;
mod transport;
mod ud;
mod watcher;

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use weft_net::stream::MpaCarrier;
use weft_net::tcp::{Ready, ready};
use weft_net::udp::UdpPort;
use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::{PollSet, Pollable};
use weft_rnic::shuttle::Route;
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::{Conn, Input, LoopbackQp, MpaQp, RetryLimits, ShuttleQp, Written};
use weft_verbs::{Qp, QpState};

pub(crate) use brief::Brief;
use cm_hook::CmHook;
use lane::LaneSocket;
use phase::{Phase, PhaseChange};
pub(crate) use schedule::Schedule;
use shuttle::{Doorkeeper, ShuttleSocket};
use tcp::TcpSocket;
use transport::{AckDue, Core, Ending, Step, Transport};
pub(crate) use transport::{Woken, todo};
use ud::UdSocket;
pub(crate) use watcher::Notices;
pub use watcher::{Answer, LinkWatcher};

use crate::device_kind::DeviceKind;
use crate::events::note_metrics;
use crate::host::Host;
use crate::tally::{DeviceWork, Tally};

/// A connection and its socket.
pub(crate) struct Driver {
    core: Core,
    socket: AnySocket,
    /// What of its work is in the tally.
    counted: DeviceWork,
}

enum AnySocket {
    Tcp(Box<TcpSocket>),
    Lane(Box<LaneSocket>),
    Shuttle(Box<ShuttleSocket>),
    Ud(Box<UdSocket>),
    /// A queue pair that is its own peer.
    None,
}

impl AnySocket {
    fn get(&self) -> Option<&dyn Transport> {
        match self {
            Self::Tcp(socket) => Some(&**socket),
            Self::Lane(socket) => Some(&**socket),
            Self::Shuttle(socket) => Some(&**socket),
            Self::Ud(socket) => Some(&**socket),
            Self::None => None,
        }
    }

    /// What it is ready for.
    fn ready(&self) -> Ready {
        match self {
            Self::Tcp(socket) => socket.ready(),
            Self::Lane(socket) => socket.ready(),
            Self::Shuttle(socket) => socket.ready(),
            Self::Ud(socket) => ready(socket.fd()),
            Self::None => Ready::default(),
        }
    }

    fn get_mut(&mut self) -> Option<&mut dyn Transport> {
        match self {
            Self::Tcp(socket) => Some(&mut **socket),
            Self::Lane(socket) => Some(&mut **socket),
            Self::Shuttle(socket) => Some(&mut **socket),
            Self::Ud(socket) => Some(&mut **socket),
            Self::None => None,
        }
    }
}

/// How a connection over Shuttle comes about.
pub(crate) enum Beginning {
    /// The queue pair asks, or has granted it.
    Bound(Box<ShuttleQp>),
    /// The peer is to ask, whom the doorkeeper knows.
    Awaited(Box<dyn Doorkeeper>),
    /// As [`Beginning::Bound`], for the connection manager. Who has asked is mentioned when it is
    /// silent, if that is `mentioned`.
    Managed { shuttle: Box<ShuttleQp>, hook: CmHook, mentioned: bool },
}

impl Driver {
    fn new(core: Core, socket: AnySocket) -> Self {
        Self { core, socket, counted: DeviceWork::default() }
    }

    /// A connection that was set up by MPA.
    pub fn mpa(
        host: &Arc<Host>,
        woken: Woken,
        mpa: MpaQp,
        carrier: MpaCarrier,
        watcher: Arc<dyn LinkWatcher>,
    ) -> Self {
        let mut conn = Conn::Mpa(Box::new(mpa));
        let (socket, lanes) = match carrier {
            MpaCarrier::Tcp(stream) => {
                (AnySocket::Tcp(Box::new(TcpSocket::new(stream, watcher))), 0)
            }
            MpaCarrier::Lane { lane, peer } => {
                conn.use_lane();
                (AnySocket::Lane(Box::new(LaneSocket::new(lane, (peer, host), watcher))), 1)
            }
        };
        let conn = (Some(conn), Phase::Connecting);
        let mut core = Core::new(Arc::clone(host), woken, conn);
        (core.connections, core.lanes) = (1, lanes);
        Self::new(core, socket)
    }

    /// A connection over Shuttle at `port`.
    pub fn shuttle(
        host: &Arc<Host>,
        woken: Woken,
        port: Arc<UdpPort>,
        beginning: Beginning,
    ) -> Self {
        let mut socket = ShuttleSocket::new(port);
        let mut silent = false;
        let conn = match beginning {
            Beginning::Bound(shuttle) => Some(Conn::Shuttle(shuttle)),
            Beginning::Awaited(doorkeeper) => {
                socket.doorkeeper = Some(doorkeeper);
                None
            }
            Beginning::Managed { shuttle, hook, mentioned } => {
                silent = mentioned && !hook.is_guest();
                socket.hook = Some(hook);
                Some(Conn::Shuttle(shuttle))
            }
        };
        let conn = (conn, Phase::Connecting);
        let core = Core::new(Arc::clone(host), woken, conn);
        if silent {
            socket.begin_silence(&core);
        }
        socket.seek_lane(&core);
        Self::new(core, AnySocket::Shuttle(Box::new(socket)))
    }

    /// Unreliable datagrams at `port`. With a `group` it only receives, what comes to that.
    pub fn ud(host: &Arc<Host>, woken: Woken, port: Arc<UdpPort>, group: Option<IpAddr>) -> Self {
        let (conn, socket) = ud::open(host, Arc::clone(&woken.qp), port, group);
        let conn = (Some(Conn::Datagram(Box::new(conn))), Phase::Open);
        let mut core = Core::new(Arc::clone(host), woken, conn);
        core.is_secondary = group.is_some();
        Self::new(core, AnySocket::Ud(Box::new(socket)))
    }

    /// A queue pair that is its own peer, and serves `ird` Reads and Atomics at once.
    pub fn loopback(host: &Arc<Host>, woken: Woken, ird: u16) -> Self {
        let loopback = LoopbackQp::new(Arc::clone(&woken.qp), ird);
        let conn = (Some(Conn::Loopback(Box::new(loopback))), Phase::Open);
        let mut core = Core::new(Arc::clone(host), woken, conn);
        core.connections = 2;
        Self::new(core, AnySocket::None)
    }

    /// Has the socket watched for `source`, by the reactor or as one of `set`, as long as there is
    /// one.
    pub fn register(&mut self, source: Arc<dyn Pollable>, set: Option<&Arc<PollSet>>) {
        if let Some(socket) = self.socket.get().filter(|_| self.core.phase.has_socket()) {
            self.core.register(socket.fd(), source, set);
        }
    }

    /// Puts the faults that are planned for the queue pair `number` before its socket.
    pub fn inject_faults(&mut self, number: u32) {
        if let Some(socket) = self.socket.get_mut() {
            socket.inject_faults(&self.core, number);
        }
    }

    /// Writes what the connection is like into the trace, if there is one and it is due.
    pub fn note_metrics(&mut self, now: Moment) {
        if self.core.host.events().trace().is_none() || !self.core.metrics.is_due(now) {
            return;
        }
        let report = self.report(self.core.host.devices().name(self.core.device));
        if let Some(trace) = self.core.host.events().trace() {
            note_metrics(trace, &report);
        }
    }

    /// Has packets captured, if they are to be, of the queue pair that has this `number` in the
    /// process. A stream of MPA is captured from its first frame on, before it is the driver's.
    pub fn set_tap(&mut self, number: u32) {
        self.core.set_tap(number);
    }

    /// Who does what below the verbs, once there is a connection.
    pub fn capabilities(&self) -> Option<Capabilities> {
        let conn = self.core.conn.as_ref().filter(|_| self.core.phase.has_socket());
        conn.map(Conn::capabilities)
    }

    /// What its device looks like.
    pub fn kind(&self) -> DeviceKind {
        self.core.device.kind
    }

    /// Its queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.core.qp
    }

    /// Who drives it.
    pub fn schedule(&mut self) -> &mut Schedule {
        &mut self.core.schedule
    }

    /// Whether a polling thread drives it.
    pub fn is_leased(&self) -> bool {
        self.core.schedule.leased
    }

    /// Says what the application has set for its requests: how many Reads and Atomics may be
    /// outstanding, and how long a request waits for a peer that does not answer.
    pub fn set_requester(&mut self, ord: u16, limits: RetryLimits) {
        self.core.requester = Some((ord, limits));
        if let Some(conn) = &mut self.core.conn {
            conn.set_requester(ord, limits);
        }
    }

    /// Has messages wait for their receives without end; over TCP or in its place.
    pub fn wait_for_recv_forever(&mut self) {
        if let Some(Conn::Mpa(mpa)) = &mut self.core.conn {
            mpa.wait_for_recv_forever();
        }
        if let AnySocket::Tcp(socket) = &mut self.socket {
            socket.tolerate_silence();
        }
    }

    /// Whether its socket is watched with those of others.
    #[cfg(test)]
    pub fn is_in_group(&self) -> bool {
        self.core.is_in_group()
    }

    /// Whether nothing is left of the connection.
    pub fn is_over(&self) -> bool {
        self.core.phase == Phase::Closed
    }

    /// What a polling thread should do.
    pub fn look(&self, now: Moment) -> u8 {
        if matches!(self.socket, AnySocket::None) {
            return 0;
        }
        self.core.look(now, || self.socket.ready())
    }

    /// Whether something has arrived that could be received, and nobody has.
    pub fn has_arrivals(&self) -> bool {
        self.core.takes_arrivals() && self.socket.ready().read
    }

    /// Whether an acknowledgement waits for the next call of the thread that polls.
    pub fn has_deferred_reply(&self) -> bool {
        self.core.reply == AckDue::Deferred
    }

    /// When something is to be done although nothing arrives.
    pub fn due(&self) -> Option<Moment> {
        self.core.due
    }

    /// Whether shared memory carries its data.
    pub fn has_lane(&self) -> bool {
        self.core.lanes > 0
    }

    /// Takes a datagram that reached another socket than its own; over Shuttle.
    pub fn handle_foreign_datagram(&mut self, from: (Route, bool), datagram: &mut [u8]) {
        if let AnySocket::Shuttle(socket) = &mut self.socket {
            socket.handle_foreign_datagram(&mut self.core, from, datagram);
        }
    }

    /// Does what `work` says.
    pub fn work(&mut self, work: u8, now: Moment) {
        let core = &mut self.core;
        if work & todo::POSTED != 0 {
            core.handle_posted();
        }
        match self.socket.get_mut() {
            Some(socket) => run(core, socket, work, now),
            None => reflect(core, now),
        }
    }

    /// Receives, for a thread that polls, which knows or not that the socket is readable; whether
    /// there was nothing, so that nothing follows from it either. The buffer stays with a
    /// connection that is polled.
    pub fn finds_nothing(&mut self, is_readable: bool, now: Moment) -> bool {
        let core = &mut self.core;
        let due = core.is_due(now);
        if due {
            core.note_stop(now);
        }
        let step = Step { work: todo::RECEIVE, now, is_readable, due: false, stopped: None };
        let received = self.socket.get_mut().is_some_and(|socket| socket.receive(core, &step));
        if received && core.reply == AckDue::None {
            core.reply = AckDue::Pending;
        }
        core.reply == AckDue::None && !due && core.phase.has_socket()
    }

    /// Goes to another queue pair before anything was sent, to be registered anew; over Shuttle.
    pub fn rebind(&mut self, woken: Woken) {
        if let Some(Conn::Shuttle(shuttle)) = &mut self.core.conn {
            shuttle.rebind(Arc::clone(&woken.qp));
        }
        self.core.rebind(woken);
        // The connection is the same, and counted already.
        let DeviceWork { connections, lanes, .. } = self.counted;
        self.counted = DeviceWork { connections, lanes, ..DeviceWork::default() };
    }

    /// Ends the connection in good order.
    pub fn disconnect(&mut self) {
        self.end(Ending::Orderly);
    }

    /// Ends the connection without waiting for the peer.
    pub fn abandon(&mut self) {
        self.end(Ending::Abandoned);
        self.core.phase = self.core.phase.after(PhaseChange::Gone);
    }

    /// Ends the connection of a queue pair that is destroyed already: nothing more is placed or
    /// completes, not even what has arrived.
    pub fn retire(&mut self) {
        self.end(Ending::Retired);
        self.core.phase = self.core.phase.after(PhaseChange::Gone);
    }

    /// Whether its queue pair was reset, and so is without it. One over Shuttle may have its
    /// connection in RESET, as a stand-in has.
    pub fn was_reset(&self) -> bool {
        let is_mpa = matches!(self.core.conn, Some(Conn::Mpa(_)));
        is_mpa && self.qp().state() == QpState::Reset
    }

    /// Ends the connection if its queue pair has failed.
    pub fn follow_failure(&mut self) {
        let is_dead = self.core.conn.as_ref().is_some_and(Conn::is_dead);
        if self.qp().state() == QpState::Err && !is_dead {
            self.disconnect();
        }
    }

    /// Has the peer vanish, as far as this side can tell.
    pub fn lose_peer(&mut self) {
        self.end(Ending::PeerLost);
    }

    fn end(&mut self, how: Ending) {
        let core = &mut self.core;
        match self.socket.get_mut() {
            Some(socket) => socket.end(core, how),
            None => {
                if how == Ending::Orderly {
                    reflect(core, clock::now());
                }
                core.handle(Input::Close, ns_at(clock::now()));
            }
        }
    }

    /// Whether something is to be said of a peer that stays silent.
    #[cfg(test)]
    pub fn awaits_peer(&self) -> bool {
        matches!(&self.socket, AnySocket::Shuttle(socket) if socket.awaits_peer())
    }

    /// Adds what was done since the last call to the tally.
    pub fn note_work(&mut self, tally: &Tally) {
        tally.note_since(self.core.device, self.core.work_done(), &mut self.counted);
    }

    /// Draws the conclusions: what to tell, whom to watch for, when to wake.
    pub fn finish_step(&mut self, now: Moment, this: &Weak<dyn Pollable>) -> Notices {
        let (core, mut notices) = (&mut self.core, Notices::default());
        let Some(socket) = self.socket.get_mut() else {
            core.schedule.blocked = false;
            if core.conn.as_ref().is_some_and(Conn::is_dead) {
                core.phase = core.phase.after(PhaseChange::Gone);
            }
            return notices;
        };
        let watch = socket.finish_step(core, now, &mut notices);
        core.look_for_next_read(now);
        self.watch_beside(this);
        let core = &mut self.core;
        if core.phase.has_socket() {
            core.watch(now, watch, this);
        } else if let Some(token) = core.token.take() {
            // Under the lock: the next connection of the queue pair may have the same socket.
            core.host.reactor().remove(token);
        }
        notices
    }

    /// Has the reactor watch the bell of a lane beside the UDP socket, or the socket of further
    /// paths, as long as there is one.
    fn watch_beside(&mut self, this: &Weak<dyn Pollable>) {
        let core = &mut self.core;
        let beside = match &self.socket {
            AnySocket::Shuttle(socket) if core.phase.has_socket() => {
                socket.bell().or_else(|| socket.further())
            }
            _ => None,
        };
        match (beside, core.beside.is_some()) {
            (Some(beside), false) => {
                if let Some(source) = this.upgrade() {
                    core.register_beside(beside, source);
                }
            }
            (None, true) => core.ignore_beside(),
            _ => {}
        }
    }

    /// Region `key` is gone: a request fails that lends its memory to the peer.
    pub fn end_loans_of(&mut self, key: u32) {
        let link = match &mut self.socket {
            AnySocket::Lane(socket) => Some(socket.link_mut()),
            AnySocket::Shuttle(socket) => socket.link_mut(),
            AnySocket::Tcp(_) | AnySocket::Ud(_) | AnySocket::None => None,
        };
        if let (Some(link), Some(conn)) = (link, &mut self.core.conn) {
            conn.end_loans_of(key, &mut *link.lane, ns_at(clock::now()));
        }
    }

    /// Whether both ends of a connection hold it to be open.
    pub fn is_open(&self) -> bool {
        let connected = matches!(self.core.conn, Some(Conn::Mpa(_) | Conn::Shuttle(_)));
        connected && self.core.phase == Phase::Open
    }

    /// Sees to it that what was completed reaches the peer although the process ends, until then at
    /// most; whether the peer has everything, and knows of the end.
    pub fn flush_at_exit(&mut self, until: Moment) -> bool {
        let Some(socket) = self.socket.get_mut() else { return true };
        socket.flush_at_exit(&mut self.core, until)
    }
}

/// A step of a connection that has a socket.
fn run(core: &mut Core, socket: &mut dyn Transport, work: u8, now: Moment) {
    if core.phase == Phase::Closed {
        return;
    }
    core.note_stop(now);
    let due = work & todo::TIME != 0 || core.is_due(now);
    let (is_readable, stopped) = (work & todo::RECEIVE != 0, core.take_stop());
    let step = Step { work, now, is_readable, due, stopped };
    let deferred = core.reply == AckDue::Deferred;
    let moved = core.reply == AckDue::Pending;
    core.reply = AckDue::None;
    let moved = socket.receive(core, &step) | moved;
    socket.advance(core, &step);
    let open = core.phase.has_socket() && (!core.schedule.blocked || step.has(todo::WRITABLE));
    let pressing = due || deferred || step.has(todo::POSTED | todo::SEND);
    if moved && !pressing {
        core.reply = AckDue::Pending;
    }
    if open && (moved || pressing) {
        socket.transmit(core, &step);
    }
    if core.reply == AckDue::Pending {
        core.reply = AckDue::None;
    }
}

/// A step of a queue pair that is its own peer: what is posted is done at once.
fn reflect(core: &mut Core, now: Moment) {
    if let Some(conn) = &mut core.conn {
        conn.poll_transmit(|| ns_at(now), |_| Written::Blocked);
    }
    core.offer_held(now);
}
