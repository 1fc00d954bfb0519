//! A connection: its state, its commands, its timers. What it sends is in `tx`, what it receives
//! in `rx`, how it begins in `handshake`, what it tells of itself in `status`.

mod flights;
mod handshake;
mod rx;
mod status;
mod time_wait;
mod timer;
mod tx;

use std::collections::VecDeque;

pub use handshake::Request;
pub use status::Stats;
pub use time_wait::TimeWait;
pub use tx::Transmit;
use weft_wire::llp::{Gather, UlpduSink, UlpduSource};
use weft_wire::shuttle::hello::{Limits, Modules};
use weft_wire::shuttle::{ConnectionId, PathId, StreamId};

use crate::config::{Config, Identity, MAX_PATHS};
use crate::error::{End, Misuse};
use crate::noise::Agreement;
use crate::pacer::Cap;
use crate::path::{Path, Route};
use crate::protect::Guard;
use crate::recovery::AckOutcome;
use crate::stream::set::StreamSet;
use crate::stream::table::Table;
use crate::stream::{Credit, Placement, Profile, Repair, StreamState};

/// The streams' ends above the seam. The connection borrows one at a time, for one burst or one
/// segment.
pub trait Ports {
    /// What a segment that must not be placed turns into.
    type Fault;
    /// Where the segments of a stream come from.
    type Source<'a>: UlpduSource
    where
        Self: 'a;
    /// Where they go.
    type Sink<'a>: UlpduSink<Fault = Self::Fault>
    where
        Self: 'a;
    /// The source of `stream`; `None` if nobody sends on it.
    fn source(&mut self, stream: StreamId) -> Option<Self::Source<'_>>;
    /// The sink of `stream`; what arrives for a stream without one counts as lost.
    fn sink(&mut self, stream: StreamId) -> Option<Self::Sink<'_>>;
}

/// What the owner of a connection has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer granted the connection (to who asked), or has shown that it knows (to who
    /// granted). Work may begin.
    Established {
        /// The peer's private data; empty where a [`Request`] has told it.
        private_data: Vec<u8>,
        /// Reads and Atomics that may be outstanding.
        ord: u16,
        /// Reads and Atomics that the peer may have outstanding.
        ird: u16,
    },
    /// The peer refused; the private data says more than the [`End`] that follows.
    Rejected {
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer receives at this route, which is new.
    PathValidated {
        /// Which path.
        path: PathId,
        /// Where.
        route: Route,
    },
    /// The connection is over; nothing more is sent or placed.
    Ended(End),
}

/// What the two ends agreed on.
struct Session {
    peer_cid: ConnectionId,
    peer_limits: Limits,
    modules: Modules,
    order: Order,
    guard: Guard,
    peer_key: Option<[u8; 32]>,
    idle_ns: u64,
}

/// How segments are placed and repaired.
#[derive(Clone, Copy)]
struct Order {
    placement: Placement,
    repair: Repair,
}

/// Where in its life a connection is.
enum State {
    /// A Request was or is to be sent.
    Requesting {
        /// The true packet, without padding, and as it travels.
        asked: Vec<u8>,
        request: Vec<u8>,
        agreement: Option<Box<Agreement>>,
        began_ns: u64,
        /// When the Request left last, unless an answer would measure nothing, and how often it
        /// did.
        sent_ns: Option<u64>,
        sent: u32,
        next_ns: u64,
        /// Times that it was sent for nothing but the clock since a cookie came with a Retry.
        tries: u32,
        retries: u32,
        /// A refusal that anybody on the way may have made, and when it is believed.
        doubt: Option<(u64, End)>,
    },
    /// Data flows. A responder keeps its Reply until the peer has shown that it has it.
    Open { reply: Option<Reply> },
    /// A Close is repeated until it is answered.
    Closing { reason: u64, next_ns: u64, tries: u32 },
    /// Over. A Close of the peer that comes again is answered again; `closed` is the answer that
    /// left last.
    Ended { answer: Option<Route>, forget_ns: u64, closed: Vec<u8> },
}

struct Reply {
    octets: Vec<u8>,
    /// Nonce of the Request that it answers.
    nonce: u64,
    /// Without a sign of the peer until then the connection is over.
    until_ns: u64,
    /// The connection is to be closed as soon as anything else may be sent.
    close: Option<u64>,
    owed: bool,
    sent_ns: Option<u64>,
    /// It left more than once, or this end was stopped: what follows it measures nothing.
    again: bool,
}

/// One end of a connection.
///
/// Order of calls: [`Connection::connect`], or [`Request::parse`] and [`Connection::accept`]; then
/// [`Connection::handle_datagram`] for what arrives, [`Connection::handle_timeout`] when
/// [`Connection::poll_timeout`] is due, and after either of them, or after work was posted,
/// [`Connection::poll_transmit`] until it has nothing more and [`Connection::poll_event`] until
/// there is none. With more than one stream, [`Connection::wake`] says where work was posted.
pub struct Connection {
    config: Config,
    identity: Identity,
    initiator: bool,
    state: State,
    session: Option<Session>,
    paths: Vec<Path>,
    streams: Table,
    /// Streams of which the peer has not been told the latest.
    untold: StreamSet,
    events: VecDeque<Event>,
    heard_ns: u64,
    pinged_ns: u64,
    /// Silence until the next sign of life is asked for.
    calm_ns: u64,
    /// Pacing lets the next burst go then.
    send_at_ns: Option<u64>,
    /// What the peer takes in all.
    cap: Cap,
    /// Whether streams with controllers of their own went first last time.
    own_first: bool,
    /// What stands in `frames` is to leave next, on this path.
    late: Option<(usize, tx::Owed)>,
    /// What the stream at hand has to send waits for another path.
    waits: bool,
    /// The stream at hand has nothing more to send.
    dry: bool,
    tokens: u64,
    outcome: AckOutcome,
    frames: Vec<u8>,
    segment: Gather,
    stats: Stats,
}

impl Connection {
    fn new(
        config: Config,
        identity: Identity,
        initiator: bool,
        route: Route,
        now_ns: u64,
        state: State,
    ) -> Self {
        let path = Path::new(PathId(0), route, &config, config.datagram_octets);
        let calm_ns = config.keep_alive_ns;
        Self {
            config,
            identity,
            initiator,
            state,
            session: None,
            paths: vec![path],
            streams: Table::default(),
            untold: StreamSet::default(),
            events: VecDeque::new(),
            heard_ns: now_ns,
            pinged_ns: now_ns,
            calm_ns,
            send_at_ns: None,
            cap: Cap::default(),
            own_first: false,
            late: None,
            waits: false,
            dry: false,
            tokens: 0,
            outcome: AckOutcome::default(),
            frames: Vec::new(),
            segment: Gather::new(),
            stats: Stats::default(),
        }
    }

    /// The id that this end's packets are found by.
    pub fn cid(&self) -> ConnectionId {
        self.identity.cid
    }

    /// Where the first path leads.
    pub fn route(&self) -> Route {
        self.paths[0].route
    }

    /// Whether work may flow.
    pub fn is_open(&self) -> bool {
        matches!(&self.state, State::Open { reply: None })
    }

    /// Whether it has ended and a late Close of the peer need not be answered any more.
    pub fn is_forgettable(&self, now_ns: u64) -> bool {
        matches!(self.state, State::Ended { forget_ns, answer: None, .. } if forget_ns <= now_ns)
    }

    /// The peer's socket holds `octets` of datagrams until somebody reads them. On a path so short
    /// that this is what limits a sender, no more is kept in flight.
    pub fn set_peer_room(&mut self, octets: u64) {
        for path in &mut self.paths {
            path.room_octets = octets;
        }
    }

    /// This host has dropped `count` datagrams of the peer before they came here. The peer is told
    /// with the next acknowledgement of the first path.
    pub fn note_dropped(&mut self, count: u64) {
        self.paths[0].arrivals.dropped += count;
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Opens `stream` for sending; its share of a path is `weight` against those of the others.
    ///
    /// # Errors
    /// If the connection is not open, or the peer allows fewer streams.
    pub fn open_stream(&mut self, stream: StreamId, weight: u32) -> Result<(), Misuse> {
        self.shape_stream(stream, Profile { weight, ..Profile::default() })
    }

    /// Opens `stream` for sending, if it is not open, to be served as `profile` says.
    ///
    /// # Errors
    /// If the connection is not open, the peer allows fewer streams, or the stream has sent and
    /// would change from the paths' controllers to its own or back.
    pub fn shape_stream(&mut self, stream: StreamId, profile: Profile) -> Result<(), Misuse> {
        let session = self.session.as_ref().ok_or(Misuse::NotOpen)?;
        let allowed = session.peer_limits.streams.min(self.config.streams);
        if u16::from(stream.0) >= allowed {
            return Err(Misuse::Stream(stream.0));
        }
        let order = session.order;
        self.stream(stream, order);
        self.streams.shape(stream, profile)
    }

    /// The network grants this end no more than `rate_bps` on `path`, in bits of UDP payload per
    /// second; `u64::MAX` for no limit. The smallest of this and what the peer wants holds.
    pub fn limit_rate(&mut self, path: PathId, rate_bps: u64) {
        if let Some(path) = self.paths.get_mut(usize::from(path.0)) {
            path.granted_bps = rate_bps;
            path.limit_rate();
        }
    }

    /// Asks the peer to send no faster than `rate_bps` on `path`; `u64::MAX` for no limit. The peer
    /// is told until it acknowledges.
    pub fn limit_peer(&mut self, path: PathId, rate_bps: u64) {
        if let Some(path) = self.paths.get_mut(usize::from(path.0)) {
            path.rate_wanted_bps = rate_bps;
            path.rate_owed = true;
        }
    }

    /// Work was posted on `stream`. A stream that had nothing to send is not asked again until this
    /// is called or something arrives for it; the only stream of a connection always is.
    pub fn wake(&mut self, stream: StreamId) {
        self.streams.wake(stream);
    }

    /// A message of `stream` came that has no receive: the peer is told so at once, and whenever
    /// it asks, until there is no such message any more (`None`).
    ///
    /// # Errors
    /// If the connection is not open.
    pub fn set_credit(
        &mut self,
        now_ns: u64,
        id: StreamId,
        credit: Option<Credit>,
    ) -> Result<(), Misuse> {
        let order = self.session.as_ref().ok_or(Misuse::NotOpen)?.order;
        let before = std::mem::replace(&mut self.stream(id, order).credit, credit);
        if credit.is_some() && credit != before {
            self.tell(now_ns, id);
        }
        Ok(())
    }

    /// Offers what `stream` holds back again, now that receives were posted.
    ///
    /// # Errors
    /// The fault of the first segment that must not be placed.
    pub fn retry<P: Ports>(
        &mut self,
        now_ns: u64,
        id: StreamId,
        ports: &mut P,
    ) -> Result<(), P::Fault> {
        let (Some(stream), Some(mut sink)) = (self.streams.get_mut(id), ports.sink(id)) else {
            return Ok(());
        };
        let before = stream.recv.frontier();
        stream.recv.retry(&mut sink)?;
        if stream.recv.frontier() > before {
            drop(sink);
            self.streams.wake(id);
            self.tell(now_ns, id);
        }
        Ok(())
    }

    /// Begins another path. It carries data once the peer has answered on it.
    ///
    /// # Errors
    /// If the connection is not open, or has all the paths that it may have.
    pub fn open_path(&mut self, now_ns: u64, route: Route) -> Result<PathId, Misuse> {
        if !self.is_open() {
            return Err(Misuse::NotOpen);
        }
        if self.paths.len() == MAX_PATHS {
            return Err(Misuse::Paths);
        }
        let id = PathId(self.paths.len() as u8);
        let path = self.add_path(id, route);
        let token = self.token();
        self.paths[path].challenge(now_ns, route, token);
        Ok(id)
    }

    /// Ends the connection. What is not acknowledged may or may not have been placed.
    pub fn close(&mut self, now_ns: u64, reason: u64) {
        match self.state {
            State::Open { reply: Some(ref mut reply) } => reply.close = Some(reason),
            State::Open { reply: None } => {
                self.state = State::Closing { reason, next_ns: now_ns, tries: 0 };
            }
            State::Requesting { .. } => self.end(now_ns, End::Local),
            State::Closing { .. } | State::Ended { .. } => {}
        }
    }

    /// Nobody ran at this end for the last `for_ns`: its process was stopped. That time does not
    /// count for anything that is waited for, and what was sent before measures nothing. To be
    /// called before anything else that follows the stop.
    pub fn handle_stop(&mut self, for_ns: u64) {
        let later = |at_ns: &mut u64| *at_ns = at_ns.saturating_add(for_ns);
        later(&mut self.heard_ns);
        later(&mut self.pinged_ns);
        match &mut self.state {
            State::Requesting { began_ns, sent_ns, doubt, .. } => {
                later(began_ns);
                *sent_ns = None;
                doubt.iter_mut().for_each(|(at_ns, _)| later(at_ns));
            }
            State::Open { reply: Some(reply) } => {
                later(&mut reply.until_ns);
                reply.again |= reply.sent_ns.is_some();
            }
            State::Open { reply: None } | State::Closing { .. } | State::Ended { .. } => {}
        }
        self.paths.iter_mut().for_each(Path::handle_stop);
    }

    /// The owner doubts that the peer is still there: it is asked for a sign of life.
    pub fn ask(&mut self) {
        self.paths[0].ping |= self.is_open();
    }

    /// Whether the peer has shown that it knows of this connection, or of the wish for it.
    pub fn has_heard(&self) -> bool {
        // A cookie was its answer to a Probe, or to an earlier Request.
        let asks = matches!(self.state, State::Requesting { retries: 0, .. });
        !asks || !self.config.cookie.is_empty()
    }

    /// The owner knows that nobody is there any more: as after silence.
    pub fn handle_unreachable(&mut self, now_ns: u64) {
        self.end(now_ns, End::Silence);
    }

    fn stream(&mut self, id: StreamId, order: Order) -> &mut StreamState {
        let (held_octets, Order { placement, repair }) = (self.config.held_octets, order);
        self.streams.open(id, || StreamState::new(placement, repair, held_octets))
    }

    fn add_path(&mut self, id: PathId, route: Route) -> usize {
        let octets = self.paths[0].base_octets;
        self.paths.push(Path::new(id, route, &self.config, octets));
        self.paths.len() - 1
    }

    /// The peer is to hear of `stream` at once.
    fn tell(&mut self, now_ns: u64, stream: StreamId) {
        self.untold.insert(stream);
        let path = &mut self.paths[0];
        path.arrivals.owe(now_ns, 0, true);
    }

    /// An unguessable number.
    fn token(&mut self) -> u64 {
        self.tokens += 1;
        // Tokens are drawn on open connections.
        let guard = self.session.as_ref().map(|session| &session.guard);
        guard.map_or(0, |guard| guard.token(self.identity.seed, self.tokens))
    }

    fn end(&mut self, now_ns: u64, end: End) {
        if matches!(self.state, State::Ended { .. }) {
            return;
        }
        let linger_ns = 2 * self.paths[0].recovery.rtt().smoothed_ns.max(crate::cc::SECOND_NS);
        self.state =
            State::Ended { answer: None, forget_ns: now_ns + linger_ns, closed: Vec::new() };
        self.events.push_back(Event::Ended(end));
    }

    /// Applies what an acknowledgement or a timer found to the streams.
    fn apply_outcome(&mut self) {
        let Self { outcome, streams, .. } = self;
        for found in outcome.received.drain(..) {
            if let Some(stream) = streams.get_mut(found.stream) {
                stream.send.handle_received(found.first, found.last);
                streams.change(found.stream);
            }
        }
        for found in outcome.lost.drain(..) {
            if let Some(stream) = streams.get_mut(found.stream) {
                stream.send.handle_lost(found.first, found.last);
                streams.wake(found.stream);
            }
        }
    }
}
