//! Connection: state, commands and events. Those of its streams are in `streams`, of its paths in
//! `paths`. Transmission is in `tx` and `flights`, reception in `rx`, the handshake in `handshake`,
//! timers in `timer`, observation in `status`.

mod flights;
mod handshake;
mod paths;
mod rx;
mod status;
mod streams;
mod time_wait;
mod timer;
mod tx;

use core::net::SocketAddr;
use std::collections::VecDeque;

pub use handshake::PeerRequest;
pub use status::ConnectionStats;
pub use time_wait::TimeWait;
use weft_wire::llp::{UlpduSink, UlpduSource};
use weft_wire::shuttle::hello::{HelloLimits, Modules};
use weft_wire::shuttle::{ConnectionId, PathId, StreamId};
use weft_wire::tap::{PacketTap, TapDirection, Tapped};

use crate::config::{Identity, ShuttleConfig};
use crate::error::ConnectionEnd;
use crate::flight_builder::DataBody;
use crate::noise::Agreement;
use crate::pacer::Cap;
use crate::path::{Path, Route};
use crate::protect::Guard;
use crate::recovery::AckOutcome;
use crate::stream::set::StreamSet;
use crate::stream::table::StreamTable;
use crate::stream::{Placement, Repair};

/// Longest wait of a responder that is closed for the first packet of its initiator (S-20), 10 s:
/// the initiator repeats its Request each 4 s at least.
const UNHEARD_NS_MAX: u64 = 10_000_000_000;

/// Access to the sources and sinks of all streams. The connection borrows one at a time, for one
/// burst or one segment.
pub trait Ports {
    /// Error of a segment that must not be placed.
    type Fault;
    /// Source of a stream's segments.
    type Source<'a>: UlpduSource
    where
        Self: 'a;
    /// Sink of a stream's segments.
    type Sink<'a>: UlpduSink<Fault = Self::Fault>
    where
        Self: 'a;
    /// Source of `stream`; `None` if nothing is sent on it.
    fn source(&mut self, stream: StreamId) -> Option<Self::Source<'_>>;
    /// Sink of `stream`; packets for a stream without one are dropped as if lost.
    fn sink(&mut self, stream: StreamId) -> Option<Self::Sink<'_>>;
}

/// Event for the owner of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShuttleEvent {
    /// The connection is established: the initiator has the Reply, or the responder knows that it
    /// has. Work may be sent.
    Established {
        /// The peer's private data; empty where a [`PeerRequest`] has told it.
        private_data: Vec<u8>,
        /// ORD: Reads and Atomics that may be outstanding.
        ord: u16,
        /// IRD: Reads and Atomics that the peer may have outstanding.
        ird: u16,
    },
    /// The peer rejected the connection; [`ShuttleEvent::Ended`] follows.
    Rejected {
        /// The peer's private data.
        private_data: Vec<u8>,
    },
    /// The peer receives on this new route of a path.
    PathValidated {
        /// Number of the path.
        path: PathId,
        /// Its route from now on.
        route: Route,
    },
    /// The connection has ended: nothing more is sent or placed.
    Ended(ConnectionEnd),
}

/// Result of the handshake.
struct Session {
    peer_cid: ConnectionId,
    peer_limits: HelloLimits,
    modules: Modules,
    order: Order,
    guard: Guard,
    peer_key: Option<[u8; 32]>,
    /// Further addresses of the peer, if both ends want several paths.
    peer_addresses: Option<Vec<SocketAddr>>,
    idle_ns: u64,
}

/// Agreed placement and loss recovery.
#[derive(Clone, Copy)]
struct Order {
    placement: Placement,
    repair: Repair,
}

/// State of a connection.
enum ConnectionState {
    /// Initiator: the Request is repeated until it is answered.
    Requesting {
        /// The Request in clear without padding, and as sent.
        asked: Vec<u8>,
        request: Vec<u8>,
        agreement: Option<Box<Agreement>>,
        began_ns: u64,
        /// Time of the last Request, `None` if an answer would not measure the round trip; and
        /// count of Requests.
        sent_ns: Option<u64>,
        sent: u32,
        next_ns: u64,
        /// Repetitions by timer since the last cookie.
        tries: u32,
        retries: u32,
        /// The peer has said that it has the Request.
        received: bool,
        /// Unauthenticated refusal, and the time at which it takes effect.
        doubt: Option<(u64, ConnectionEnd)>,
    },
    /// Established. A responder repeats its Reply until the peer has shown that it has it.
    Open { reply: Option<PendingReply> },
    /// Close sent; repeated until it is answered.
    Closing { reason: u64, next_ns: u64, tries: u32 },
    /// Ended. A repeated Close of the peer is answered again; `closed` is the last answer.
    Ended {
        answer: Option<Route>,
        forget_ns: u64,
        closed: Vec<u8>,
        /// Withdraws the Request, until it is sent.
        withdrawal: Option<Vec<u8>>,
    },
}

struct PendingReply {
    octets: Vec<u8>,
    /// Nonce of the Request, and what withdraws it.
    nonce: u64,
    withdrawal: Option<u64>,
    /// The peer has withdrawn it.
    withdrawn: bool,
    /// Deadline for a packet of the peer.
    until_ns: u64,
    /// Reason of a close that is deferred until the handshake is complete.
    close: Option<u64>,
    owed: bool,
    sent_ns: Option<u64>,
    /// The Reply was repeated, or this process was stopped: the round trip is not measured.
    again: bool,
}

/// One end of a connection.
///
/// Order of calls: [`ShuttleConnection::connect`], or [`PeerRequest::parse`] and
/// [`ShuttleConnection::accept`]; then [`ShuttleConnection::handle_datagram`] for what arrives,
/// [`ShuttleConnection::handle_timeout`] when [`ShuttleConnection::poll_timeout`] is due, and after
/// either of them, or after work was posted, [`ShuttleConnection::poll_transmit`] until it has
/// nothing more and [`ShuttleConnection::poll_event`] until there is none. With more than one
/// stream, [`ShuttleConnection::wake`] says where work was posted.
pub struct ShuttleConnection {
    config: ShuttleConfig,
    identity: Identity,
    initiator: bool,
    state: ConnectionState,
    session: Option<Session>,
    paths: Vec<Path>,
    streams: StreamTable,
    /// Streams whose frontier or credit the peer has yet to be told.
    untold: StreamSet,
    events: VecDeque<ShuttleEvent>,
    heard_ns: u64,
    /// When the peer was last found to have more of what this end sends, or to be sent something
    /// after it had all; and when the last segments of the peer arrived.
    advanced_ns: u64,
    data_ns: u64,
    /// Index of the path on which the peer was heard last.
    heard_on: usize,
    pinged_ns: u64,
    /// Silence until the next keep-alive, in nanoseconds.
    calm_ns: u64,
    /// The owner knows of the peer's end by itself.
    is_watched: bool,
    /// Time at which pacing allows the next burst.
    send_at_ns: Option<u64>,
    /// Rate limit by the peer over all paths.
    cap: Cap,
    /// Streams with controllers of their own went first last time.
    own_first: bool,
    /// The contents of `frames` are to be sent next, on this path.
    late: Option<(usize, tx::Owed)>,
    /// The current stream's segments are reserved for another path.
    waits: bool,
    /// The current stream has nothing more to send.
    dry: bool,
    tokens: u64,
    outcome: AckOutcome,
    frames: Vec<u8>,
    /// Segments of the packet being built.
    body: DataBody,
    stats: ConnectionStats,
    tap: Option<Box<dyn PacketTap>>,
}

impl ShuttleConnection {
    fn new(
        config: ShuttleConfig,
        identity: Identity,
        initiator: bool,
        route: Route,
        now_ns: u64,
        state: ConnectionState,
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
            streams: StreamTable::default(),
            untold: StreamSet::default(),
            events: VecDeque::new(),
            heard_ns: now_ns,
            advanced_ns: now_ns,
            data_ns: now_ns,
            heard_on: 0,
            pinged_ns: now_ns,
            calm_ns,
            is_watched: false,
            send_at_ns: None,
            cap: Cap::default(),
            own_first: false,
            late: None,
            waits: false,
            dry: false,
            tokens: 0,
            outcome: AckOutcome::default(),
            frames: Vec::new(),
            body: DataBody::default(),
            stats: ConnectionStats::default(),
            tap: None,
        }
    }

    /// Has `tap` see every packet from now on.
    pub fn set_tap(&mut self, tap: Box<dyn PacketTap>) {
        self.tap = Some(tap);
    }

    fn tap(&mut self, direction: TapDirection, route: Route, what: Tapped<'_>) {
        if let Some(tap) = &mut self.tap {
            tap.see(direction, Some(route.into()), what);
        }
    }

    /// Connection id that the peer's packets carry.
    pub fn cid(&self) -> ConnectionId {
        self.identity.cid
    }

    /// Random bits that the peer does not know.
    pub fn seed(&self) -> u64 {
        self.identity.seed
    }

    /// Whether this end has sent the Request.
    pub fn is_initiator(&self) -> bool {
        self.initiator
    }

    /// The nonce of the Request, which both ends know while the handshake lasts, and nobody else.
    pub fn request_nonce(&self) -> Option<u64> {
        match &self.state {
            _ if self.initiator => Some(self.identity.nonce),
            ConnectionState::Open { reply: Some(reply) } => Some(reply.nonce),
            _ => None,
        }
    }

    /// Route of path 0.
    pub fn route(&self) -> Route {
        self.paths[0].route
    }

    /// Whether something is to be sent that waits for its time.
    pub fn is_paced(&self) -> bool {
        self.send_at_ns.is_some()
    }

    /// Whether data may be sent: established and not closing.
    pub fn is_open(&self) -> bool {
        matches!(&self.state, ConnectionState::Open { reply: None })
    }

    /// Whether it has ended, and a late Close of the peer need not be answered any more.
    pub fn is_forgettable(&self, now_ns: u64) -> bool {
        let ConnectionState::Ended { forget_ns, answer: None, .. } = self.state else {
            return false;
        };
        forget_ns <= now_ns
    }

    /// Says whether the owner knows by itself when the peer ends, as of a process of its own host,
    /// and so does the peer's of this end: as long as it does, nothing is sent to show that
    /// somebody is there, and silence ends nothing (S-21).
    pub fn set_watched(&mut self, is_watched: bool, now_ns: u64) {
        self.is_watched = is_watched;
        self.heard_ns = self.heard_ns.max(now_ns);
    }

    /// Adds datagrams of the peer that this host dropped before delivery. The peer is told in
    /// acknowledgements of path 0.
    pub fn note_dropped(&mut self, count: u64) {
        self.paths[0].arrivals.dropped += count;
    }

    /// The next event, if any.
    pub fn poll_event(&mut self) -> Option<ShuttleEvent> {
        self.events.pop_front()
    }

    /// Closes the connection. Unacknowledged segments may or may not have been placed.
    pub fn close(&mut self, now_ns: u64, reason: u64) {
        match self.state {
            ConnectionState::Open { reply: Some(PendingReply { withdrawn: true, .. }) } => {
                self.end(now_ns, ConnectionEnd::Local);
            }
            ConnectionState::Open { reply: Some(ref mut reply) } => {
                reply.close = Some(reason);
                reply.until_ns = reply.until_ns.min(now_ns.saturating_add(UNHEARD_NS_MAX));
            }
            ConnectionState::Open { reply: None } => {
                self.state = ConnectionState::Closing { reason, next_ns: now_ns, tries: 0 };
            }
            ConnectionState::Requesting { .. } => self.withdraw(now_ns, ConnectionEnd::Local),
            ConnectionState::Closing { .. } | ConnectionState::Ended { .. } => {}
        }
    }

    /// Handles a stop of this process for the last `for_ns`: timeouts are extended by it, and
    /// packets in flight measure no round trip. To be called before anything else that follows the
    /// stop.
    pub fn handle_stop(&mut self, for_ns: u64) {
        let later = |at_ns: &mut u64| *at_ns = at_ns.saturating_add(for_ns);
        later(&mut self.heard_ns);
        later(&mut self.advanced_ns);
        later(&mut self.data_ns);
        later(&mut self.pinged_ns);
        match &mut self.state {
            ConnectionState::Requesting { began_ns, sent_ns, doubt, .. } => {
                later(began_ns);
                *sent_ns = None;
                doubt.iter_mut().for_each(|(at_ns, _)| later(at_ns));
            }
            ConnectionState::Open { reply: Some(reply) } => {
                later(&mut reply.until_ns);
                reply.again |= reply.sent_ns.is_some();
            }
            ConnectionState::Open { reply: None }
            | ConnectionState::Closing { .. }
            | ConnectionState::Ended { .. } => {}
        }
        self.paths.iter_mut().for_each(Path::handle_stop);
    }

    /// Sends a Ping, or the Request again: the owner doubts that the peer is still there.
    pub fn ask(&mut self) {
        if let ConnectionState::Requesting { began_ns, next_ns, .. } = &mut self.state {
            *next_ns = *began_ns;
        } else if self.is_open() {
            self.ping_all();
        }
    }

    /// Whether the Request has no answer yet.
    pub fn is_asking(&self) -> bool {
        matches!(self.state, ConnectionState::Requesting { .. })
    }

    /// Whether anything of the peer has arrived for this connection.
    pub fn has_heard(&self) -> bool {
        // A cookie came from the peer, in answer to a Probe or an earlier Request.
        let asks =
            matches!(self.state, ConnectionState::Requesting { retries: 0, received: false, .. });
        !asks || !self.config.cookie.is_empty()
    }

    /// Ends the connection as after an idle timeout: the owner knows that the peer is gone.
    pub fn handle_unreachable(&mut self, now_ns: u64) {
        self.end(now_ns, ConnectionEnd::Silence);
    }

    /// The next unguessable token.
    fn token(&mut self) -> u64 {
        self.tokens += 1;
        // Only open connections draw tokens.
        let guard = self.session.as_ref().map(|session| &session.guard);
        guard.map_or(0, |guard| guard.token(self.identity.seed, self.tokens))
    }

    fn end(&mut self, now_ns: u64, end: ConnectionEnd) {
        if matches!(self.state, ConnectionState::Ended { .. }) {
            return;
        }
        let linger_ns = 2 * self.paths[0].recovery.rtt().smoothed_ns.max(crate::cc::SECOND_NS);
        self.state = ConnectionState::Ended {
            answer: None,
            forget_ns: now_ns + linger_ns,
            closed: Vec::new(),
            withdrawal: None,
        };
        self.events.push_back(ShuttleEvent::Ended(end));
    }

    /// Applies the outcome of an acknowledgement or timer to the streams.
    fn apply_outcome(&mut self, now_ns: u64) {
        let Self { outcome, streams, .. } = self;
        if !outcome.received.is_empty() {
            self.advanced_ns = self.advanced_ns.max(now_ns);
        }
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
