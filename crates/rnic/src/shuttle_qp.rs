//! A queue pair bound to a Shuttle connection. How it ends is in `ending`, and what differs where
//! shared memory carries its segments in `by_lane`.

mod by_lane;
mod ending;

use std::collections::VecDeque;
use std::sync::Arc;

use weft_rdmap::{self as rdmap, StreamFault, TxPort};
use weft_shuttle::cc::Rtt;
use weft_shuttle::{
    ConnectionEnd, Credit, Identity, PeerRequest, Route, ShuttleConfig, ShuttleConnection,
    ShuttleMisuse, TimeWait,
};
use weft_verbs::Qp;
use weft_wire::capability::Capabilities;
use weft_wire::shuttle::{PathId, StreamId};

use crate::batch::{Batch, DatagramBurst, Written};
use crate::due::earliest;
use crate::event::{ConnEvent, Sending, WhenClosed};
use crate::lane::{LaneTraffic, lane_capabilities};
use crate::rnr::{RetryLimits, RetryTimers, patience_ns};
use crate::shuttle_ports::QpPorts;

pub use ending::give_up;

/// The stream that a queue pair has to itself.
const STREAM: StreamId = StreamId(0);
/// Bursts written in one call at most, so that no caller works for others without end.
const ROUNDS_MAX: usize = 16;

/// What a connection is made with.
pub struct Binding {
    /// How the connection is to be.
    pub config: ShuttleConfig,
    /// Its unguessable numbers.
    pub identity: Identity,
    /// Where it goes.
    pub route: Route,
    /// What a close in good order means.
    pub when_closed: WhenClosed,
}

/// A queue pair bound to a Shuttle connection.
///
/// Order of calls: [`ShuttleQp::connect`] or [`ShuttleQp::accept`]; then any of
/// [`ShuttleQp::receive`], [`ShuttleQp::handle_timeout`] and [`ShuttleQp::poll_transmit`], the
/// last after each of the others and after work was posted; [`ShuttleQp::poll_timeout`] says when
/// to call again. Times are nanoseconds of one clock.
pub struct ShuttleQp {
    qp: Arc<Qp>,
    rdmap: rdmap::RdmapStream,
    connection: ShuttleConnection,
    burst: DatagramBurst,
    when_closed: WhenClosed,
    /// What is yet to be told.
    events: VecDeque<ConnEvent>,
    /// What the peer said when it refused.
    refused: Vec<u8>,
    /// Reads and Atomics that the application wants outstanding, and that the peer serves.
    ord: u16,
    ord_max: u16,
    /// How the connection ended.
    end: Option<ConnectionEnd>,
    /// When the peer ended it in good order, with requests of this side perhaps under way.
    left_ns: Option<u64>,
    /// A message waits for a receive.
    held: bool,
    /// Message that has waited long enough for a receive: it fails as soon as the peer was told.
    given_up: Option<u32>,
    /// What this side waits for.
    retry_timers: RetryTimers,
    /// Segments go through shared memory, and only the rest by datagrams.
    lane: Option<LaneTraffic>,
    /// When the other end of that was closed.
    lane_lost_ns: Option<u64>,
    /// Since when a request of the peer is to be refused, and the count of segments up to the last
    /// response that comes before that.
    refused_since_ns: Option<u64>,
    refused_after: Option<u64>,
}

impl ShuttleQp {
    /// Asks the peer for a connection.
    ///
    /// # Errors
    /// If the configuration or the private data cannot be.
    pub fn connect(
        qp: Arc<Qp>,
        binding: Binding,
        private_data: &[u8],
        now_ns: u64,
    ) -> Result<Self, ShuttleMisuse> {
        let Binding { config, identity, route, when_closed } = binding;
        let depths = (config.ord, config.ird);
        let connection = ShuttleConnection::connect(now_ns, config, identity, route, private_data)?;
        Ok(Self::new(qp, connection, rdmap::Role::Initiator, depths, when_closed))
    }

    /// Grants what the peer asked for.
    ///
    /// # Errors
    /// If the configuration or the private data cannot be, or nothing is common to both ends.
    pub fn accept(
        qp: Arc<Qp>,
        binding: Binding,
        request: &mut PeerRequest,
        private_data: &[u8],
        now_ns: u64,
    ) -> Result<Self, ShuttleMisuse> {
        let Binding { config, identity, route, when_closed } = binding;
        let depths = (config.ord.min(request.ird()), config.ird.min(request.ord()));
        let connection =
            ShuttleConnection::accept(now_ns, config, identity, route, request, private_data)?;
        Ok(Self::new(qp, connection, rdmap::Role::Responder, depths, when_closed))
    }

    /// Binds the queue pair to a connection that was granted, with so many Reads and Atomics
    /// outstanding, and served.
    pub fn granted(
        qp: Arc<Qp>,
        connection: ShuttleConnection,
        depths: (u16, u16),
        when_closed: WhenClosed,
    ) -> Self {
        Self::new(qp, connection, rdmap::Role::Responder, depths, when_closed)
    }

    fn new(
        qp: Arc<Qp>,
        connection: ShuttleConnection,
        role: rdmap::Role,
        (ord, ird): (u16, u16),
        when_closed: WhenClosed,
    ) -> Self {
        let config = rdmap::StreamConfig {
            lower: rdmap::LlpKind::Shuttle,
            role,
            rtr: None,
            ird,
            ord,
            confirm: false,
            seed: connection.seed(),
        };
        Self {
            qp,
            rdmap: rdmap::RdmapStream::new(config),
            connection,
            burst: DatagramBurst::default(),
            when_closed,
            events: VecDeque::new(),
            refused: Vec::new(),
            ord,
            ord_max: u16::MAX,
            end: None,
            left_ns: None,
            held: false,
            given_up: None,
            retry_timers: RetryTimers::default(),
            lane: None,
            lane_lost_ns: None,
            refused_since_ns: None,
            refused_after: None,
        }
    }

    /// Whether a request of the peer is refused once those before it are answered.
    pub fn is_refusing(&self) -> bool {
        self.rdmap.is_refusing()
    }

    /// Whether it only carries segments: nothing has failed or is to be told, and no message waits
    /// for a receive at either end.
    pub fn is_flowing(&self) -> bool {
        !self.is_dead()
            && !self.held
            && self.rdmap.rnr().is_none()
            && !self.rdmap.is_refusing()
            && self.end.is_none()
            && self.events.is_empty()
    }

    /// Whether there may be something to send.
    pub fn may_send(&self) -> bool {
        !self.rdmap.is_quiet() || self.qp.sq().has_pending()
    }

    /// The queue pair.
    pub fn qp(&self) -> &Arc<Qp> {
        &self.qp
    }

    /// Makes the connection another queue pair's. Nothing was posted or sent yet.
    pub fn rebind(&mut self, qp: Arc<Qp>) {
        self.qp = qp;
    }

    /// The connection, to look at.
    pub fn connection(&self) -> &ShuttleConnection {
        &self.connection
    }

    /// The connection, to tune.
    pub fn connection_mut(&mut self) -> &mut ShuttleConnection {
        &mut self.connection
    }

    /// Who does what below the verbs on this connection.
    pub fn capabilities(&self) -> Capabilities {
        match self.lane {
            Some(_) => lane_capabilities(),
            None => self.connection.capabilities(),
        }
    }

    /// Counters.
    pub fn stats(&self) -> rdmap::StreamStats {
        self.rdmap.stats()
    }

    /// Says how many Reads and Atomics the application wants outstanding, where it says so late.
    pub fn set_ord(&mut self, ord: u16) {
        self.ord = ord;
        self.rdmap.set_ord(ord.min(self.ord_max));
    }

    /// Says how long requests wait for a peer that is silent; until then it is for ever.
    pub fn set_retry_limits(&mut self, limits: RetryLimits) {
        self.retry_timers.limits = limits;
    }

    /// Says how many the peer serves at a time.
    pub fn limit_ord(&mut self, ord_max: u16) {
        self.ord_max = ord_max;
        self.rdmap.set_ord(self.ord.min(ord_max));
    }

    /// What has come about: how the handshake ended, and that the connection is over.
    pub fn poll_event(&mut self) -> Option<ConnEvent> {
        self.events.pop_front()
    }

    /// Whether a message waits for a receive. The caller has [`ShuttleQp::handle_posted`] called
    /// when one is posted.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// How the connection ended, if it did.
    pub fn end(&self) -> Option<ConnectionEnd> {
        self.end
    }

    /// Whether nothing is left to say, to a peer that asks again either.
    pub fn is_over(&self, now_ns: u64) -> bool {
        // A queue pair that stays as it is has to learn of each request that it is in vain.
        let needed = self.when_closed == WhenClosed::Stay && !self.is_dead();
        self.end.is_some() && !needed && self.connection.is_forgettable(now_ns)
    }

    /// What is owed to a peer that has closed the connection and was answered, once nothing else
    /// needs the connection: whoever keeps it may drop the rest.
    pub fn time_wait(&self) -> Option<TimeWait> {
        self.connection.time_wait().filter(|_| self.is_dead())
    }

    /// Whether the stream has failed or was closed.
    pub fn is_dead(&self) -> bool {
        self.rdmap.is_dead()
    }

    /// Takes a datagram; `marked` if the network marked it as congested. It may be opened in place.
    pub fn receive(&mut self, now_ns: u64, route: Route, marked: bool, datagram: &mut [u8]) {
        let mut ports = QpPorts::mute(&mut self.rdmap, &self.qp, self.lane.is_some());
        let outcome = self.connection.handle_datagram(now_ns, route, marked, datagram, &mut ports);
        let heard = ports.heard;
        self.held |= heard.held;
        if heard.written {
            self.qp.written();
        }
        if let Err((_, fault)) = outcome {
            self.fail(now_ns, fault);
        }
        if self.held {
            self.tell_credit(now_ns);
        }
        self.retry_timers.note_rnr_wait(now_ns, self.rdmap.rnr());
        self.refuse_when_answered(now_ns);
        self.take_events(now_ns);
    }

    /// This host has dropped `count` datagrams of the peer, for want of room.
    pub fn note_dropped(&mut self, count: u32) {
        self.connection.note_dropped(count.into());
    }

    /// Offers what waits for a receive again, now that some were posted. What waits in a lane is
    /// offered by [`ShuttleQp::receive_from`] as long as there is that lane: here it has gone.
    pub fn handle_posted(&mut self, now_ns: u64) {
        if self.lane.is_some() || self.end.is_some() {
            self.held = false;
            return;
        }
        let mut ports = QpPorts::mute(&mut self.rdmap, &self.qp, false);
        let outcome = self.connection.retry(now_ns, STREAM, &mut ports);
        let heard = ports.heard;
        self.held = heard.held;
        if heard.written {
            self.qp.written();
        }
        if let Err(fault) = outcome {
            self.fail(now_ns, fault);
        }
        self.tell_credit(now_ns);
    }

    /// Tells the peer whether one of its messages waits for a receive, and for how long it should.
    fn tell_credit(&mut self, now_ns: u64) {
        let wait_us = self.qp.attrs().rnr_wait_us();
        let credit = self.held.then(|| Credit { limit: self.rdmap.credit(), wait_us });
        // A connection that is not open has nobody to tell.
        let _ = self.connection.set_credit(now_ns, STREAM, credit);
    }

    /// When [`ShuttleQp::handle_timeout`] and then [`ShuttleQp::poll_transmit`] are due.
    pub fn poll_timeout(&self) -> Option<u64> {
        let ack_due_ns = self.lane.as_ref().and_then(LaneTraffic::ack_due_ns);
        earliest([
            self.silence_due_ns(),
            self.rnr_due_ns(),
            self.orphans_due_ns(),
            self.refusal_due_ns(),
            ack_due_ns,
            self.connection.poll_timeout(),
        ])
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now_ns: u64) {
        self.connection.handle_timeout(now_ns);
        if self.silence_due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.give_up(now_ns);
        }
        if let Some(short) = self.rdmap.rnr()
            && self.rnr_due_ns().is_some_and(|at_ns| at_ns <= now_ns)
        {
            self.given_up = Some(short.seq);
            // The peer is told first: a receive that is posted then is not for this message. By a
            // lane it is taken back.
            if !self.has_lane() {
                self.connection.close(now_ns, 0);
            }
        }
        if self.refusal_due_ns().is_some_and(|at_ns| at_ns <= now_ns) {
            self.refuse(now_ns);
        }
        self.look_for_orphans(now_ns);
        self.take_events(now_ns);
    }

    /// Nobody ran at this end for the last `for_ns`: its process was stopped. To be called before
    /// anything else that follows the stop.
    pub fn handle_stop(&mut self, for_ns: u64) {
        self.connection.handle_stop(for_ns);
        self.retry_timers.handle_stop(for_ns);
    }

    /// Whether segments still go by a lane.
    fn has_lane(&self) -> bool {
        self.lane.is_some() && self.lane_lost_ns.is_none()
    }

    fn rtt(&self) -> Option<Rtt> {
        self.connection.rtt(PathId(0))
    }

    /// Whether a message waits for a receive of the peer.
    pub fn awaits_peer_recv(&self) -> bool {
        self.rdmap.rnr().is_some()
    }

    /// When the peer counts as gone, or out of reach for what waits for it.
    fn silence_due_ns(&self) -> Option<u64> {
        let open = self.connection.is_open() && !self.rdmap.is_dead();
        // A peer without a receive takes nothing, and says so.
        let since_ns = match self.rdmap.rnr() {
            Some(_) => self.connection.heard_ns(),
            None => self.connection.waits_since_ns(STREAM),
        };
        let since_ns = match (&self.lane, self.lane_lost_ns) {
            (None, _) => since_ns,
            // Of a peer on this host the kernel tells whether it is there.
            (Some(_), None) => return None,
            (Some(_), Some(lost_ns)) => lost_ns.max(since_ns),
        };
        self.retry_timers.silence_due_ns(since_ns, self.rtt()).filter(|_| open)
    }

    /// When a message of this side has waited long enough for a receive.
    fn rnr_due_ns(&self) -> Option<u64> {
        let waits = !self.rdmap.is_dead() && self.given_up.is_none();
        let short = self.rdmap.rnr().filter(|_| waits)?;
        self.retry_timers.rnr_due_ns(short, &self.qp.attrs(), self.rtt())
    }

    /// When a request is refused although the peer, which is silent, may not have the responses to
    /// those before.
    fn refusal_due_ns(&self) -> Option<u64> {
        let since_ns = self.refused_since_ns.filter(|_| self.rdmap.is_refusing())?;
        Some(since_ns.max(self.connection.heard_ns()) + patience_ns(self.rtt()))
    }

    /// When [`ShuttleQp::handle_timeout`] fails the requests that the peer has left behind.
    pub fn orphans_due_ns(&self) -> Option<u64> {
        let left_ns = self.left_ns.filter(|_| !self.rdmap.is_dead())?;
        self.retry_timers.orphans_due_ns(left_ns)
    }

    /// Gives what may leave now to `write`, burst by burst, each until it is written. What is left
    /// of one when nothing more is taken stays, and is the first of the next call; what it names of
    /// memory that has gone meanwhile is lost, as on the way.
    ///
    /// `clock_ns` tells the time for each burst: were one dated back to the first, the path would
    /// seem to take longer whenever this process waits for a processor.
    pub fn poll_transmit(
        &mut self,
        mut clock_ns: impl FnMut() -> u64,
        mut write: impl FnMut(&Batch<'_>) -> Written,
    ) -> Sending {
        let mut now_ns = clock_ns();
        self.retry_timers.note_work(now_ns, self.qp.sq().awaits_peer());
        self.connection.set_awaited(!self.qp.sq().is_idle());
        let mut outcome = Sending::More;
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                now_ns = clock_ns();
            }
            let end = self.transmit_burst(now_ns, &mut write);
            // What waited for the queue pair's own work comes next.
            let settled = self.rdmap.settle(&self.qp);
            if let Some(end) = end.filter(|end| !settled || *end != Sending::Done) {
                outcome = end;
                break;
            }
        }
        let given_up = if self.has_lane() { None } else { self.given_up.take() };
        let fault = given_up.map(|seq| StreamFault::NoReceive { seq });
        if let Some(fault) = fault.or_else(|| self.rdmap.take_fault(&self.qp)) {
            self.fail(now_ns, fault);
            return Sending::More;
        }
        self.refuse_when_answered(now_ns);
        self.look_for_orphans(now_ns);
        outcome
    }

    fn transmit_burst(
        &mut self,
        now_ns: u64,
        write: &mut impl FnMut(&Batch<'_>) -> Written,
    ) -> Option<Sending> {
        let regions = self.qp.regions().reader();
        if !self.burst.waits(regions.generation()) {
            self.burst.restart();
            let mut ports = QpPorts::mute(&mut self.rdmap, &self.qp, self.lane.is_some());
            ports.regions = Some(&regions);
            let out = &mut self.burst.transmit;
            if !self.connection.poll_transmit(now_ns, &mut ports, &regions, out) {
                return Some(Sending::Done);
            }
            if regions.found_gone() {
                drop(regions);
                return self.find_gone(now_ns);
            }
            if self.rdmap.is_cut_off() {
                drop(regions);
                self.burst.restart();
                return (!self.asks_instead(now_ns)).then_some(Sending::Done);
            }
        }
        loop {
            match write(&self.burst.batch()) {
                Written::Octets(octets) if self.burst.advance(octets) => {}
                Written::Blocked => {
                    self.burst.keep(regions.generation());
                    return Some(Sending::Blocked);
                }
                Written::Gone => {
                    drop(regions);
                    return self.find_gone(now_ns);
                }
                // A datagram that the system refuses is lost like any other.
                Written::Octets(_) | Written::Failed => {
                    self.burst.restart();
                    return self.burst.transmit.is_last.then_some(Sending::Done);
                }
            }
        }
    }

    /// Memory of a request is not there any more: nothing of the burst leaves, the request fails.
    fn find_gone(&mut self, now_ns: u64) -> Option<Sending> {
        self.burst.restart();
        if self.asks_instead(now_ns) {
            return None;
        }
        let (sq, regions) = (self.qp.sq(), self.qp.regions().reader());
        let port = TxPort::new(&mut self.rdmap, &self.qp, sq, Some(&regions));
        let fault = port.fault_of_gone();
        self.rdmap.set_fault(fault);
        Some(Sending::Done)
    }

    /// Has the peer asked whether it has a response that would be sent again, where nothing but
    /// the memory of such responses is gone. The application may know that it has been read.
    fn asks_instead(&mut self, now_ns: u64) -> bool {
        let (sq, regions) = (self.qp.sq(), self.qp.regions().reader());
        let may_have =
            TxPort::new(&mut self.rdmap, &self.qp, sq, Some(&regions)).misses_sent_responses_only();
        let asks = may_have && self.connection.ask_instead(now_ns, STREAM);
        if asks {
            self.rdmap.forget_cut_off();
        }
        asks
    }
}
