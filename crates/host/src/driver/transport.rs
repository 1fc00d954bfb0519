//! What lies between a driver and its socket: [`Core`] is what every connection has, whatever its
//! kind, a [`Transport`] what is the socket's own.
//!
//! Order of calls in a step: [`Transport::receive`], [`Transport::advance`],
//! [`Transport::transmit`], [`Transport::finish_step`].

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Weak};
use std::time::Duration;

use weft_net::tcp::Ready;
use weft_os::clock::{self, Moment, ns_at};
use weft_reactor::{Interest, PollSet, Pollable, Token};
use weft_rnic::{Conn, ConnEvent, Input, RetryLimits, StreamStats};
use weft_verbs::{Qp, Wake};

use super::phase::Phase;
use super::schedule::Schedule;
use super::watcher::Notices;
use crate::device_kind::DeviceId;
use crate::diagnostics;
use crate::events::MetricsClock;
use crate::faults::LinkFaults;
use crate::host::Host;
use crate::look_habit::LookHabit;
use crate::tally::DeviceWork;
use crate::tap::tap_of;

/// What there is to do on a connection.
pub(crate) mod todo {
    /// Something is to be sent.
    pub const SEND: u8 = 1;
    /// Something may have arrived.
    pub const RECEIVE: u8 = 2;
    /// A timer may be due.
    pub const TIME: u8 = 4;
    /// The socket has room again.
    pub const WRITABLE: u8 = 8;
    /// A receive was posted that a message waits for.
    pub const POSTED: u8 = 16;
}

/// What a step is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Bits of [`mod@todo`].
    pub work: u8,
    /// When it began.
    pub now: Moment,
    /// The reactor has reported the socket as readable, or may have.
    pub is_readable: bool,
    /// Something that the connection has waited for is due.
    pub due: bool,
    /// Nobody ran for so long who was to do what was due: the process was stopped.
    pub stopped: Option<Duration>,
}

impl Step {
    pub fn has(&self, work: u8) -> bool {
        self.work & work != 0
    }
}

/// How a connection is ended from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// In good order: what is posted goes out as far as the socket takes it at once.
    Orderly,
    /// Without waiting for the peer.
    Abandoned,
    /// Without taking what has arrived: the queue pair is destroyed.
    Retired,
    /// By a fault on purpose: the peer has vanished, as far as this side can tell.
    PeerLost,
}

/// What the reactor is to watch for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReactorWatch {
    /// What arrives is of use.
    pub read: bool,
    /// It waits, although it is of use, until the timer.
    pub moderated: bool,
    /// Room to send is waited for.
    pub write: bool,
    /// The same in what is watched beside the socket.
    pub write_beside: bool,
    /// It is to call at this time.
    pub timer: Option<Moment>,
}

/// A socket, and what only connections over such sockets know.
pub(super) trait Transport: Send {
    /// The socket.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Puts the faults that are planned for the queue pair `number` between it and its socket.
    fn inject_faults(&mut self, core: &Core, number: u32);
    /// Gives the connection what was received and has waited, then what has arrived; whether
    /// anything was there.
    fn receive(&mut self, core: &mut Core, step: &Step) -> bool;
    /// Does what is due, and what follows from the connection's events.
    fn advance(&mut self, core: &mut Core, step: &Step);
    /// Sends what there is to send.
    fn transmit(&mut self, core: &mut Core, step: &Step);
    /// Ends the connection.
    fn end(&mut self, core: &mut Core, how: Ending);
    /// Draws the conclusions of a step: what to tell, and what to watch for.
    fn finish_step(&mut self, core: &mut Core, now: Moment, notices: &mut Notices) -> ReactorWatch;
    /// Sees to it that what was completed reaches the peer although the process ends, until then at
    /// most; whether the peer has everything, and knows of the end.
    fn flush_at_exit(&mut self, core: &mut Core, until: Moment) -> bool;
}

/// Whether a message of the peer waits for a receive here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecvWait {
    None,
    /// The queue pair wakes the connection when one is posted.
    Armed,
}

/// What is owed to the peer for what was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AckDue {
    /// Nothing, or it has left.
    None,
    /// Something was received that nothing has followed from yet.
    Pending,
    /// An acknowledgement waits for the next call of the thread that polls, to leave with it.
    Deferred,
}

/// A queue pair that a connection is for.
pub(crate) struct Woken {
    pub qp: Arc<Qp>,
    /// Is woken when a receive is posted that a message of its peer waits for.
    pub waker: Weak<dyn Wake>,
    /// Which device it belongs to.
    pub device: DeviceId,
}

/// What every connection has.
pub(super) struct Core {
    pub host: Arc<Host>,
    pub device: DeviceId,
    pub qp: Arc<Qp>,
    /// The connection; none until the peer has asked for it.
    pub conn: Option<Conn>,
    pub phase: Phase,
    pub schedule: Schedule,
    pub token: Option<Token>,
    /// What is watched beside the socket: the bell of a lane, or the socket of further paths.
    pub beside: Option<Token>,
    beside_watched: Interest,
    pub reply: AckDue,
    pub read_habit: LookHabit,
    /// When something is to be done although nothing arrives.
    pub due: Option<Moment>,
    /// Reads and Atomics that the application wants outstanding, and how long its requests wait
    /// for a silent peer, once it has said so.
    pub requester: Option<(u16, RetryLimits)>,
    /// Connections that the tally counts for it.
    pub connections: u64,
    /// The queue pair's requests are another connection's.
    pub is_secondary: bool,
    /// Of these, those by shared memory.
    pub lanes: u64,
    /// Is woken when a receive is posted that a message waits for.
    waker: Weak<dyn Wake>,
    recv_wait: RecvWait,
    /// What arrives is of use.
    reads: bool,
    watched: Interest,
    /// In which the socket is watched with others, by whoever polls or the reactor.
    set: Option<Arc<PollSet>>,
    /// Which of the process's queue pairs it is.
    number: u32,
    /// When what it is like is written into the trace.
    pub metrics: MetricsClock,
    /// When somebody looked after the connection last.
    looked: Moment,
    /// For how long nobody did who should have, until a step takes note.
    stopped: Option<Duration>,
}

impl Core {
    pub fn new(
        host: Arc<Host>,
        Woken { qp, waker, device }: Woken,
        (conn, phase): (Option<Conn>, Phase),
    ) -> Self {
        Self {
            host,
            device,
            qp,
            conn,
            phase,
            schedule: Schedule::default(),
            token: None,
            beside: None,
            beside_watched: Interest::NONE,
            reply: AckDue::None,
            read_habit: LookHabit::new(),
            due: None,
            requester: None,
            connections: 0,
            is_secondary: false,
            lanes: 0,
            waker,
            recv_wait: RecvWait::None,
            reads: true,
            watched: Interest::READ,
            set: None,
            number: 0,
            metrics: MetricsClock::default(),
            looked: clock::now(),
            stopped: None,
        }
    }

    /// What is planned between the queue pair `number` of the process and its socket.
    pub fn link_faults<T>(&self, number: u32) -> Option<Box<LinkFaults<T>>> {
        LinkFaults::of(self.host.faults().map(Arc::as_ref), number, self.qp.num(), self.device)
    }

    /// What has come of the connection to `peer` lately, which is told to who watches.
    pub fn poll_event(&mut self, peer: impl FnOnce() -> Option<SocketAddr>) -> Option<ConnEvent> {
        let event = self.conn.as_mut().and_then(Conn::poll_event)?;
        let by = if self.lanes > 0 { " by shared memory" } else { "" };
        diagnostics::tell(self.host.devices().name(self.device), &self.qp, &event, (peer, by));
        Some(event)
    }

    /// Tells the connection what happens; gives the bytes consumed.
    pub fn handle(&mut self, input: Input<'_>, now_ns: u64) -> usize {
        self.conn.as_mut().map_or(0, |conn| conn.handle(input, now_ns))
    }

    /// Whether a message waits for a receive.
    pub fn is_held(&self) -> bool {
        self.conn.as_ref().is_some_and(Conn::is_held)
    }

    /// Whether there is a receive for what waits for one; else the connection is woken for the next
    /// that is posted.
    pub fn await_recv(&mut self) -> bool {
        if self.recv_wait == RecvWait::None && !self.qp.await_recv(Weak::clone(&self.waker)) {
            self.recv_wait = RecvWait::Armed;
        }
        self.recv_wait == RecvWait::None
    }

    /// Whether something waits for a receive, and nobody has posted one since.
    pub fn waits_for_recv(&self) -> bool {
        self.recv_wait == RecvWait::Armed
    }

    /// Receives were posted.
    pub fn handle_posted(&mut self) {
        self.recv_wait = RecvWait::None;
    }

    /// Offers what waits for a receive again, as long as there are some.
    pub fn offer_held(&mut self, now: Moment) {
        while self.is_held() && self.await_recv() {
            self.handle(Input::Posted, ns_at(now));
        }
    }

    /// Whether something is due.
    pub fn is_due(&self, now: Moment) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// Finds out whether nobody ran who was to do what was due: neither the peer nor the
    /// application had that time, and what came meanwhile comes first.
    pub fn note_stop(&mut self, now: Moment) {
        let since = self.due.map(|due| due.max(self.looked));
        let Some(stopped) = since.and_then(|since| clock::stopped_since(since, now)) else {
            return;
        };
        self.looked = now;
        self.handle(Input::Stopped { for_ns: stopped.as_nanos() as u64 }, ns_at(now));
        *self.stopped.get_or_insert_default() += stopped;
    }

    /// Whether [`Core::note_stop`] has found something since the last step.
    pub fn has_stopped(&self) -> bool {
        self.stopped.is_some()
    }

    /// What [`Core::note_stop`] has found since the last step.
    pub fn take_stop(&mut self) -> Option<Duration> {
        self.stopped.take()
    }

    /// Whether there is a socket, and what arrives there is of use.
    pub fn takes_arrivals(&self) -> bool {
        self.reads && self.phase.has_socket()
    }

    /// Whether what was received has nothing left to do but to be acknowledged, and the application
    /// is about to see it complete something: the acknowledgement may leave with what it sends.
    pub fn may_defer_reply(&self) -> bool {
        let looked_after = self.schedule.leased || self.schedule.slept_for;
        self.reply == AckDue::Pending
            && looked_after
            && self.schedule.patient
            && self.has_completions()
    }

    /// Whether there is a completion to poll.
    pub fn has_completions(&self) -> bool {
        self.qp.recv_cq().has_entries() || self.qp.send_cq().has_entries()
    }

    /// What a polling thread should do. Only of a socket that was full it is asked whether it is
    /// ready; what is due is found by receiving.
    pub fn look(&self, now: Moment, ready: impl FnOnce() -> Ready) -> u8 {
        let receive = if self.reads { todo::RECEIVE } else { 0 };
        if !self.phase.has_socket() {
            return 0;
        }
        if !self.schedule.blocked {
            return receive;
        }
        let ready = ready();
        let receive = if ready.read || self.is_due(now) { receive } else { 0 };
        receive | if ready.write { todo::SEND | todo::WRITABLE } else { 0 }
    }

    /// Whether the buffer stays with the connection for the next poll. Of many that are polled
    /// together each would have one.
    pub fn keeps_buffer(&self) -> bool {
        self.schedule.leased && self.set.is_none()
    }

    /// Has `fd` watched for `source`, by the reactor or as one of `set`.
    pub fn register(
        &mut self,
        fd: BorrowedFd<'_>,
        source: Arc<dyn Pollable>,
        set: Option<&Arc<PollSet>>,
    ) {
        self.ignore_socket();
        let reactor = self.host.reactor();
        self.token = Some(reactor.add_to(set, fd, Interest::READ, source));
        (self.watched, self.set) = (Interest::READ, set.cloned());
        // It is watched anew where the socket is.
        self.ignore_beside();
    }

    /// Has the socket watched that its descriptor names from now on.
    pub fn renew_socket(&self) {
        if let Some(token) = self.token {
            self.host.reactor().renew(token, self.watched);
        }
    }

    /// Has the packets of its connection captured, and those of the one that it is to have.
    pub fn set_tap(&mut self, number: u32) {
        self.number = number;
        if let Some(conn) = &mut self.conn
            && !matches!(conn, Conn::Mpa(_))
            && let Some(tap) = tap_of(&self.host, self.device, &self.qp, number)
        {
            conn.set_tap(tap);
        }
    }

    /// The peer was granted the connection that it has asked for.
    pub fn begin(&mut self, conn: Conn) {
        self.conn = Some(conn);
        self.set_tap(self.number);
    }

    /// Whether it is one of many connections that are polled together.
    pub fn is_in_group(&self) -> bool {
        self.set.is_some()
    }

    /// Has `fd`, which is beside the socket, watched for `source` where that is.
    pub fn register_beside(&mut self, fd: BorrowedFd<'_>, source: Arc<dyn Pollable>) {
        let reactor = self.host.reactor();
        self.beside = Some(reactor.add_to(self.set.as_ref(), fd, Interest::READ, source));
        self.beside_watched = Interest::READ;
    }

    /// Has the reactor watch for what `watch` says, and call `this`.
    pub fn watch(&mut self, now: Moment, watch: ReactorWatch, this: &Weak<dyn Pollable>) {
        (self.looked, self.reads) = (now, watch.read);
        let polled = self.schedule.leased && self.set.is_none();
        let interest = match polled {
            true => Interest::NONE,
            false => Interest { read: watch.read && !watch.moderated, write: watch.write },
        };
        if interest != self.watched
            && let Some(token) = self.token
        {
            self.watched = interest;
            self.host.reactor().modify(token, interest);
        }
        let read = watch.read && !polled && !watch.moderated;
        let interest = Interest { read, write: watch.write_beside && !polled };
        if interest != self.beside_watched
            && let Some(beside) = self.beside
        {
            self.beside_watched = interest;
            self.host.reactor().modify(beside, interest);
        }
        if let Some(due) = watch.timer {
            self.schedule.set_timer(due, self.host.reactor(), this);
        }
    }

    /// Has the reactor's thread, if this is it, look for the next Read before it sleeps, if that is
    /// likely to come soon, at the end of a step that began at `began`. A lane is looked at by
    /// itself.
    pub fn look_for_next_read(&mut self, began: Moment) {
        if self.schedule.leased || self.lanes > 0 || !weft_reactor::runs_here() {
            return;
        }
        let responses = self.stats().responses_out;
        if let Some(until) = self.read_habit.look_until(responses, began) {
            weft_reactor::look_until(until);
        }
    }

    /// Has the reactor let go of the socket: what it is ready for is of no use any more.
    pub fn ignore_socket(&mut self) {
        if let Some(token) = self.token.take() {
            self.host.reactor().remove(token);
        }
    }

    /// Has the reactor let go of what is watched beside the socket.
    pub fn ignore_beside(&mut self) {
        if let Some(beside) = self.beside.take() {
            self.host.reactor().remove(beside);
        }
    }

    /// Goes to another queue pair before anything was sent, to be registered anew.
    pub fn rebind(&mut self, Woken { qp, waker, device }: Woken) {
        self.ignore_socket();
        self.ignore_beside();
        (self.qp, self.waker, self.device) = (qp, waker, device);
        self.recv_wait = RecvWait::None;
        (self.schedule, self.watched) = (Schedule::default(), Interest::READ);
    }

    /// The counters of the connection, if there is one.
    pub fn stats(&self) -> StreamStats {
        self.conn.as_ref().map_or_else(StreamStats::default, Conn::stats)
    }

    /// What was done on it so far.
    pub fn work_done(&self) -> DeviceWork {
        let Some(conn) = &self.conn else { return DeviceWork::default() };
        let operations = if self.is_secondary { 0 } else { self.qp.sq().succeeded() };
        let (stats, connections) = (conn.stats(), self.connections);
        let (octets_out, octets_in) = (stats.octets_out, stats.octets_in);
        let lanes = self.lanes;
        DeviceWork { contexts: 0, connections, lanes, operations, octets_out, octets_in }
    }
}
