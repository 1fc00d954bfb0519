//! A Shuttle connection over UDP: datagrams in, datagrams out, and what follows from them.

mod absence;
mod admission;

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use absence::{Absence, DOUBT};
pub(crate) use admission::{Admission, Doorkeeper};
use admission::{Stage, turn_away};
use weft_fault::Way;
use weft_net::buffers::Buffer;
use weft_net::silence::Silence;
use weft_net::tcp;
use weft_net::udp::{BUNDLE_OCTETS, Port};
use weft_os::clock::{self, instant_at, ns_at};
use weft_reactor::{Interest, Source, Token};
use weft_rnic::shuttle::{End, Refusal, Route};
use weft_rnic::wire::capability::Capabilities;
use weft_rnic::wire::shuttle::greeting::Greeting;
use weft_rnic::{Established, Event, RetryLimits, Sending, ShuttleQp, Written};
use weft_verbs::{Qp, QpState, Wake};

use crate::device_kind::Personality;
use crate::drive::cm_hook::CmHook;
use crate::drive::{Answer, Drive, Notices, Turn, todo};
use crate::engine::Engine;
use crate::faults::Wire;
use crate::tally::Work;
use crate::time_wait;

/// Bundles received in one go at most, so that one connection does not starve the others.
const RECEIVES_MAX: usize = 16;
/// Timers of a connection whose socket is full are looked at again after this.
const BLOCKED_PAUSE: Duration = Duration::from_millis(1);
/// A connection that the peer has closed is looked at again after this.
const ENDED_PAUSE: Duration = Duration::from_millis(500);

/// A connection and its socket.
pub(crate) struct DatagramDrive {
    stage: Stage,
    /// Until the connection is established, if the peer asks for it.
    doorkeeper: Option<Box<dyn Doorkeeper>>,
    qp: Arc<Qp>,
    port: Arc<Port>,
    token: Option<Token>,
    buffer: Option<Buffer>,
    /// Is woken when a receive is posted that a message waits for.
    waker: Weak<dyn Wake>,
    /// It will be.
    waits: bool,
    established: bool,
    /// How the handshake came to nothing, until the connection manager is told.
    failed: Option<Answer>,
    watched: Interest,
    turn: Turn,
    /// Something was received that nothing has been concluded from yet.
    has_news: bool,
    /// What is to be said of it waits for the next call of the thread that polls.
    has_unsaid: bool,
    /// Datagrams that the socket has dropped, as far as the connection knows.
    dropped: u32,
    /// When something is to be done although nothing arrives.
    due: Option<Instant>,
    /// When somebody looked after the connection last.
    looked: Instant,
    /// Reads and Atomics that the program wants outstanding, and how long its requests wait for a
    /// silent peer, once it has said so.
    requester: Option<(u16, RetryLimits)>,
    /// Until when they wait for one that has never answered.
    gives_up_at: Option<Instant>,
    /// When one that has never answered is mentioned, once the application wants to send.
    silence: Option<Silence>,
    /// Why the peer cannot have a connection, and from when on that is believed: others could have
    /// sent what it seems to have sent.
    doubt: Option<(Instant, Refusal)>,
    closed: bool,
    wire: Option<Box<Wire<(Route, bool)>>>,
    hook: Option<CmHook>,
    /// The peer's host seems to have said that nobody is there, and nothing was heard since.
    absence: Option<Absence>,
    /// Where the peer was when it was last heard elsewhere.
    follows: Option<SocketAddr>,
    /// The route that the socket is devoted to.
    own: Option<Route>,
}

impl DatagramDrive {
    /// Waits for the peer to ask; `doorkeeper` knows it.
    pub fn awaiting(
        qp: Arc<Qp>,
        doorkeeper: Box<dyn Doorkeeper>,
        port: Arc<Port>,
        waker: Weak<dyn Wake>,
    ) -> Self {
        let mut drive = Self::new(qp, Stage::Awaited, port, waker);
        drive.doorkeeper = Some(doorkeeper);
        drive
    }

    /// Takes over a connection that was asked for or granted.
    pub fn bound(shuttle: ShuttleQp, port: Arc<Port>, waker: Weak<dyn Wake>) -> Self {
        let qp = Arc::clone(shuttle.qp());
        Self::new(qp, Stage::Bound(Box::new(shuttle)), port, waker)
    }

    /// As [`DatagramDrive::bound`], for the connection manager.
    pub fn managed(
        shuttle: Box<ShuttleQp>,
        port: Arc<Port>,
        waker: Weak<dyn Wake>,
        hook: CmHook,
    ) -> Self {
        let qp = Arc::clone(shuttle.qp());
        let mut drive = Self::new(qp, Stage::Bound(shuttle), port, waker);
        if !hook.is_guest() {
            drive.begin_silence();
        }
        drive.hook = Some(hook);
        drive
    }

    fn new(qp: Arc<Qp>, stage: Stage, port: Arc<Port>, waker: Weak<dyn Wake>) -> Self {
        Self {
            stage,
            doorkeeper: None,
            qp,
            port,
            token: None,
            buffer: None,
            waker,
            waits: false,
            established: false,
            failed: None,
            watched: Interest::READ,
            turn: Turn::default(),
            has_news: false,
            has_unsaid: false,
            dropped: 0,
            due: None,
            looked: clock::now(),
            requester: None,
            gives_up_at: None,
            silence: None,
            doubt: None,
            closed: false,
            wire: None,
            hook: None,
            absence: None,
            follows: None,
            own: None,
        }
    }

    /// Receives what is there; whether something was. The time is taken after each call: a process
    /// that had to wait for a processor before it would else believe in round trips shorter than
    /// the path's.
    fn receive(&mut self) -> bool {
        let mut received = self.wire.is_some() && self.take_late(clock::now());
        for _ in 0..RECEIVES_MAX {
            let buffer = self.buffer.get_or_insert_with(Buffer::take);
            let room = &mut buffer.room()[..BUNDLE_OCTETS];
            let Some(bundle) = self.port.receive(room, self.own.as_ref()) else { break };
            let now = clock::now();
            received = true;
            // Zero where the kernel has nothing to say.
            let dropped = bundle.dropped.max(self.dropped).wrapping_sub(self.dropped);
            self.dropped += dropped;
            if let (Stage::Bound(shuttle), 1..) = (&mut self.stage, dropped) {
                shuttle.note_dropped(dropped);
            }
            self.absence = None;
            for datagram in room[..bundle.octets].chunks_mut(bundle.each) {
                let from = (bundle.route, bundle.marked);
                if let Some(wire) = &mut self.wire
                    && !wire.passes(now, from, datagram)
                {
                    continue;
                }
                if let Some(hook) = &self.hook
                    && hook.is_strange(ns_at(now), bundle.route, datagram)
                {
                    continue;
                }
                let (stage, doorkeeper) = (&mut self.stage, &mut self.doorkeeper);
                let refusal = stage.take(doorkeeper, self.requester, ns_at(now), from, datagram);
                if let Some(why) = refusal {
                    turn_away(&self.port, &bundle.route, why, datagram);
                    self.doubt.get_or_insert((now + DOUBT, why));
                }
            }
        }
        if !self.turn.leased
            && let Some(buffer) = self.buffer.take()
        {
            buffer.put();
        }
        received
    }

    /// A peer that comes from another address has the socket to itself once it is known to be
    /// there.
    fn follow(&mut self) {
        let Stage::Bound(shuttle) = &self.stage else { return };
        let remote = shuttle.connection().route().remote;
        if self.hook.as_ref().is_some_and(CmHook::is_guest) && self.follows != Some(remote) {
            // Where the system refuses, the peer goes on to be heard elsewhere.
            let _connected = self.port.connect(remote);
            self.follows = Some(remote);
        }
    }

    /// Takes what was late and is due; whether something was.
    fn take_late(&mut self, now: Instant) -> bool {
        let mut received = false;
        while let Some(wire) = &mut self.wire
            && let Some((mut datagram, from)) = wire.line.pop(now)
        {
            received = true;
            let (stage, doorkeeper) = (&mut self.stage, &mut self.doorkeeper);
            let refusal = stage.take(doorkeeper, self.requester, ns_at(now), from, &mut datagram);
            if let Some(why) = refusal {
                turn_away(&self.port, &from.0, why, &datagram);
                self.doubt.get_or_insert((now + DOUBT, why));
            }
        }
        received
    }

    /// A message without a receive is offered again for each that is posted.
    fn offer_held(&mut self, now: Instant) {
        let Stage::Bound(shuttle) = &mut self.stage else { return };
        while shuttle.is_held() && !self.waits {
            if self.qp.await_recv(Weak::clone(&self.waker)) {
                shuttle.handle_posted(ns_at(now));
            } else {
                self.waits = true;
            }
        }
    }

    fn transmit(&mut self) {
        let Stage::Bound(shuttle) = &mut self.stage else { return };
        let clock_ns = || ns_at(clock::now());
        let own = self.own.as_ref();
        let outcome = match &mut self.wire {
            None => shuttle.poll_transmit(clock_ns, |burst| self.port.send(burst, own)),
            Some(wire) => shuttle.poll_transmit(clock_ns, |burst| match burst.lengths.first() {
                Some(length) if wire.loses(Way::Out) => Written::Octets((*length).into()),
                _ => self.port.send_first(burst, own),
            }),
        };
        self.turn.blocked = outcome != Sending::Done;
    }

    /// Takes what has come about on the connection.
    fn take_events(&mut self) {
        while let Stage::Bound(shuttle) = &mut self.stage
            && let Some(event) = shuttle.poll_event()
        {
            match event {
                Event::Established(established) => self.greet(&established),
                Event::Ended { end, private_data } if !self.established => {
                    self.failed = Some(match end {
                        End::Rejected(reason) => Answer::Refused { reason, private_data },
                        end => Answer::None(end),
                    });
                }
                _ => {}
            }
        }
    }

    /// The peer's answer says how much it can hold.
    fn greet(&mut self, established: &Established) {
        let Stage::Bound(shuttle) = &mut self.stage else { return };
        self.established = true;
        self.silence = None;
        self.doorkeeper = None;
        log::debug!(
            "queue pair {:#x} is connected to {}",
            self.qp.num(),
            shuttle.connection().route().remote
        );
        if let Some(hook) = &mut self.hook {
            hook.granted(established.clone());
        }
        if let Some(greeting) = Greeting::parse(&established.private_data) {
            shuttle.connection_mut().set_peer_room(u64::from(greeting.room_octets) / 2);
        }
        shuttle.limit_ord(established.ord);
        // A peer on this machine does not move to another address.
        let route = shuttle.connection().route();
        if route.local.ip() == route.remote.ip() && self.port.devote(&route) {
            self.own = Some(route);
        }
    }

    /// Tells the connection manager what has come of the connection.
    fn report(&mut self, now: Instant, notices: &mut Notices) {
        if self.port.was_refused() && self.hook.is_some() {
            self.handle_refusal(now);
        }
        self.take_events();
        let (Some(hook), Stage::Bound(shuttle)) = (&mut self.hook, &self.stage) else {
            return;
        };
        if let Some(answer) = self.failed.take() {
            hook.answer(answer);
        }
        hook.tell(self.closed || shuttle.end().is_some(), notices);
    }

    fn close(&mut self, now: Instant) {
        match &mut self.stage {
            Stage::Bound(shuttle) => shuttle.close(ns_at(now)),
            Stage::Awaited => self.closed = true,
        }
    }

    /// Nothing here needs a connection that the peer has closed; whether it can go. The peer may
    /// not have the answer to its Close: that stays, and the socket where nobody else hears it ask.
    fn leave(&mut self, now: Instant) -> bool {
        let Stage::Bound(shuttle) = &self.stage else { return true };
        let Some(owed) = shuttle.time_wait() else { return shuttle.is_over(ns_at(now)) };
        let until_ns = owed.forget_ns();
        crate::Host::get().local().time_waits.keep(owed);
        if !self.hook.as_ref().is_some_and(CmHook::is_guest) {
            if let Some(token) = self.token.take() {
                Engine::get().remove(token);
            }
            time_wait::keep_socket(crate::Host::get(), Arc::clone(&self.port), self.own, until_ns);
        }
        true
    }

    fn watch(&mut self) {
        let interest = if self.turn.leased {
            Interest::NONE
        } else {
            Interest { read: true, write: self.turn.blocked }
        };
        if interest != self.watched
            && let Some(token) = self.token
        {
            self.watched = interest;
            Engine::get().modify(token, interest);
        }
    }

    fn set_timer(&mut self, now: Instant, this: &Weak<dyn Source>) {
        let shuttle = match &self.stage {
            Stage::Bound(shuttle) if shuttle.end().is_some() => {
                let pause = shuttle.is_dead().then(|| now + ENDED_PAUSE);
                pause.or(shuttle.orphans_due_ns().map(instant_at))
            }
            Stage::Bound(shuttle) => shuttle.poll_timeout().map(instant_at),
            Stage::Awaited => None,
        };
        let late = self.wire.as_ref().and_then(|wire| wire.next_due());
        let doubt = self.doubt.filter(|_| self.qp.state() != QpState::Err);
        let believed = doubt.map(|(believed, _)| believed);
        let silence = self.silence.as_ref().and_then(Silence::due);
        let asks_at = self.absence.map(|absence| absence.asks_at);
        let others = [self.gives_up_at, late, believed, silence, asks_at];
        self.due = shuttle.into_iter().chain(others.into_iter().flatten()).min();
        // A thread that polls looks at the clock as well.
        let Some(mut due) = self.due.filter(|_| !self.turn.leased) else { return };
        // What cannot be sent stays due; the socket tells when it can.
        if self.turn.blocked {
            due = due.max(now + BLOCKED_PAUSE);
        }
        self.turn.set_timer(due, this);
    }

    /// Whether what was received has nothing left to do but to be acknowledged, and the thread that
    /// polls is about to see it complete something.
    fn may_wait(&self) -> bool {
        let Turn { leased, patient, .. } = self.turn;
        leased && patient && (self.qp.recv_cq().has_entries() || self.qp.send_cq().has_entries())
    }

    /// Takes note of it if nobody ran who was to do what was due; whether it was so. It comes
    /// before anything that arrived meanwhile.
    fn note_stop(&mut self, now: Instant) -> bool {
        let since = self.due.map(|due| due.max(self.looked));
        let Some(stopped) = since.and_then(|since| clock::stopped_since(since, now)) else {
            return false;
        };
        self.looked = now;
        // The peer's host will say again that nobody is there.
        self.absence = None;
        if let Stage::Bound(shuttle) = &mut self.stage {
            shuttle.handle_stop(stopped.as_nanos() as u64);
        }
        let doubt = self.doubt.as_mut().map(|(believed, _)| believed);
        self.gives_up_at.iter_mut().chain(doubt).for_each(|at| *at += stopped);
        true
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

impl Drive for DatagramDrive {
    fn register(&mut self, source: Arc<dyn Source>) {
        self.token = Some(Engine::get().add(self.port.as_fd(), Interest::READ, source));
    }

    fn capabilities(&self) -> Option<Capabilities> {
        match &self.stage {
            Stage::Bound(shuttle) => Some(shuttle.capabilities()),
            _ => None,
        }
    }

    fn set_requester(&mut self, ord: u16, retry_limits: RetryLimits) {
        self.requester = Some((ord, retry_limits));
        if !self.established && self.silence.is_none() {
            self.begin_silence();
        }
        if let Stage::Bound(shuttle) = &mut self.stage {
            shuttle.set_ord(ord);
            shuttle.set_retry_limits(retry_limits);
        }
    }

    fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    fn spoil(&mut self, number: u32) {
        self.wire = Wire::of(crate::Host::get().faults(), number);
    }

    fn lose_peer(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.cut();
        }
    }

    fn work_done(&self) -> (Personality, Work) {
        let mut done = Work::default();
        if let Stage::Bound(shuttle) = &self.stage {
            let stats = shuttle.stats();
            done.connections = u64::from(self.established);
            (done.octets_out, done.octets_in) = (stats.octets_out, stats.octets_in);
            done.operations = self.qp.sq().succeeded();
        }
        (Personality::Roce, done)
    }

    fn turn(&mut self) -> &mut Turn {
        &mut self.turn
    }

    fn is_over(&self) -> bool {
        self.closed
    }

    fn look(&self) -> u8 {
        match () {
            () if self.closed => 0,
            () if !self.turn.blocked => todo::RECEIVE,
            () => {
                let ready = tcp::ready(self.port.as_fd());
                let send = if ready.write { todo::SEND | todo::WRITABLE } else { 0 };
                todo::RECEIVE | send
            }
        }
    }

    fn has_arrivals(&self) -> bool {
        tcp::ready(self.port.as_fd()).read
    }

    fn has_unsaid(&self) -> bool {
        self.has_unsaid
    }

    fn hear(&mut self, from: (Route, bool), datagram: &mut [u8]) {
        let (route, marked) = from;
        let now = clock::now();
        self.note_stop(now);
        self.absence = None;
        if let Some(wire) = &mut self.wire
            && !wire.passes(now, from, datagram)
        {
            return;
        }
        if let Stage::Bound(shuttle) = &mut self.stage {
            shuttle.receive(ns_at(now), route, marked, datagram);
            self.has_news = true;
            self.follow();
        }
    }

    fn work(&mut self, work: u8, now: Instant) {
        if self.closed {
            return;
        }
        let stopped = self.note_stop(now);
        let mut moved = std::mem::take(&mut self.has_news);
        moved |= (stopped || work & todo::RECEIVE != 0) && self.receive();
        let posted = work & todo::POSTED != 0;
        let due = work & todo::TIME != 0 || self.is_due(now);
        moved |= due && self.wire.is_some() && self.take_late(now);
        if due && let Stage::Bound(shuttle) = &mut self.stage {
            shuttle.handle_timeout(ns_at(clock::now()));
        }
        self.waits &= !posted;
        self.offer_held(now);
        self.take_events();
        self.heed_refusal(now);
        self.look_after_absence(now);
        let open = !self.turn.blocked || work & todo::WRITABLE != 0;
        let pressing = posted || due || work & todo::SEND != 0 || self.has_unsaid;
        self.has_unsaid = open && moved && !pressing && self.may_wait();
        if open && !self.has_unsaid && (moved || pressing) {
            self.transmit();
        }
        self.look_after_retries(now);
        if let Some(silence) = &mut self.silence {
            silence.look(now);
        }
    }

    /// The buffer stays with a connection that is polled.
    fn finds_nothing(&mut self, now: Instant) -> bool {
        let due = self.is_due(now);
        if due {
            self.note_stop(now);
        }
        let received = self.receive();
        self.has_news |= received;
        !received && !self.has_unsaid && !due && !self.closed
    }

    fn rebind(&mut self, qp: Arc<Qp>, waker: Weak<dyn Wake>) {
        if let Some(token) = self.token.take() {
            Engine::get().remove(token);
        }
        if let Stage::Bound(shuttle) = &mut self.stage {
            shuttle.rebind(Arc::clone(&qp));
        }
        (self.qp, self.waker, self.waits) = (qp, waker, false);
        (self.turn, self.watched) = (Turn::default(), Interest::READ);
    }

    /// What has arrived by now is taken before, as an adapter would have: its sender may not care
    /// for it any more, but would be told that it failed.
    fn disconnect(&mut self) {
        self.receive();
        let now = clock::now();
        self.close(now);
        self.turn.blocked = false;
        self.transmit();
    }

    fn abandon(&mut self) {
        self.disconnect();
        self.closed = true;
    }

    fn conclude(&mut self, now: Instant, this: &Weak<dyn Source>) -> Notices {
        let mut notices = Notices::default();
        self.looked = now;
        self.report(now, &mut notices);
        let end = match &self.stage {
            // Until the queue pair has failed, its requests are to hear that nobody is there.
            Stage::Bound(shuttle) if shuttle.is_dead() => shuttle.end(),
            _ => None,
        };
        self.closed = self.closed
            || match end {
                None => false,
                Some(End::Peer(_)) => self.leave(now),
                Some(_) => true,
            };
        if self.closed {
            self.report(now, &mut notices);
            notices.finished = self.token.take();
        } else {
            self.watch();
            self.set_timer(now, this);
        }
        notices
    }

    /// A Close is repeated until it is answered: only then the peer has all acknowledgements.
    fn flush_at_exit(&mut self, until: Instant) {
        self.disconnect();
        while !self.closed && clock::now() < until {
            let Stage::Bound(shuttle) = &self.stage else { return };
            if shuttle.end().is_some() {
                return;
            }
            tcp::wait(self.port.as_fd(), false);
            self.work(todo::RECEIVE | todo::TIME | todo::WRITABLE, clock::now());
        }
    }
}
