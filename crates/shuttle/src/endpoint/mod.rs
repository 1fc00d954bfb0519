//! Endpoint: demultiplexes the connections of one socket, and handles Requests (`docs/shuttle.md`,
//! S-2, S-10, S-13, S-17 to S-19, S-22).
//!
//! Invariant: nothing that costs more than a bounded record is done for an address before it has
//! proved that it receives, once more than a few others are waiting; and no answer is longer than
//! what it answers.
//!
//! Order of calls: [`Endpoint::listen`] if connections are granted here. Every datagram goes to
//! [`Endpoint::handle_datagram`] first, which says what to do with it. To ask for a connection:
//! [`Endpoint::identity`], [`ShuttleConnection::connect`](crate::ShuttleConnection::connect),
//! [`Endpoint::attach`]. To grant one: [`Endpoint::receipt`] at once, [`Endpoint::accept`] with the
//! ticket, `attach`, and [`Endpoint::handle_established`] once the connection says so.
//! [`Endpoint::release`] when a connection is forgettable. No timer is needed: time is looked at
//! when something happens.

mod cookie;
mod fresh;
mod gate;
mod ids;
mod records;

use core::net::SocketAddr;

use weft_wire::shuttle::hello::{Hello, HelloKind, REQUEST_MIN};
use weft_wire::shuttle::{ConnectionId, Packet};

use self::cookie::Cookies;
use self::fresh::FreshRequests;
pub use self::gate::{Gate, Passage};
use self::ids::Ids;
use self::records::{RecordStage, Records};
use crate::config::{Identity, ShuttleConfig};
use crate::connection::{PeerRequest, ShuttleConnection};
use crate::csprng::Csprng;
use crate::error::{Refusal, ShuttleMisuse};
use crate::noise::Credentials;
use crate::path::Route;

/// Half-open Requests that are few (S-19).
const FEW: usize = 64;
/// Failed key agreements count towards the load that requires cookies for this long, 1 s.
const STRANGERS_NS: u64 = 1_000_000_000;

/// Configuration for accepting connections.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Configuration against which Requests are parsed and judged; each accepted connection may
    /// have its own.
    pub config: ShuttleConfig,
    /// Half-open Requests above which newcomers must validate their address by a cookie; with 0
    /// each must, and the owner hears of validated ones only.
    pub retry_above: usize,
    /// Half-open Requests above which newcomers get no answer.
    pub half_open_max: usize,
    /// Clock that gives milliseconds since 1970. With it, and a pre-shared key, a Request that is
    /// new by its stamp needs no cookie while few others wait (S-24).
    pub clock: Option<fn() -> u64>,
}

impl Listen {
    /// Default limits for a busy server: at most 2 MB of records.
    pub fn new(config: ShuttleConfig) -> Self {
        Self { config, retry_above: FEW, half_open_max: 1024, clock: None }
    }
}

/// Handle of a pending Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// Verdict on a datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<'a, K> {
    /// [`ShuttleConnection::handle_datagram`] of this connection takes it.
    Connection(&'a K),
    /// A new Request, to be answered at any time by [`Endpoint::accept`] or [`Endpoint::reject`],
    /// and at once by [`Endpoint::receipt`] if that gives anything.
    Request(Ticket),
    /// A datagram to send back over the same route.
    Answer(Vec<u8>),
    /// A refused Request.
    Refused {
        /// Datagram to send back.
        answer: Vec<u8>,
        /// Reason for the refusal.
        why: Refusal,
    },
    /// Dropped.
    Nothing,
}

/// Counters of an endpoint since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Requests passed to the owner.
    pub requests: u64,
    /// Repeated Requests.
    pub repeated: u64,
    /// Requests answered with a cookie.
    pub retries: u64,
    /// Requests refused without asking the owner.
    pub refused: u64,
    /// Requests dropped because too many were half open.
    pub crowded_out: u64,
    /// Datagrams for no connection.
    pub foreign: u64,
}

/// Identity of a Request: equal for its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asker {
    remote: SocketAddr,
    cid: ConnectionId,
    nonce: u64,
}

/// Connections of one socket, under the owner's keys `K`.
pub struct Endpoint<K> {
    listen: Option<Listen>,
    ids: Ids<K>,
    records: Records,
    cookies: Cookies,
    fresh: Option<FreshRequests>,
    csprng: Csprng,
    /// SipHash key of Request identities.
    naming: [u64; 2],
    strangers: usize,
    strangers_until_ns: u64,
    stats: EndpointStats,
}

impl<K> Endpoint<K> {
    /// An endpoint without connections. `seed` is 256 random bits, from which every id, nonce, key
    /// and cookie derives.
    pub fn new(seed: [u8; 32]) -> Self {
        let mut csprng = Csprng::new(seed);
        Self {
            listen: None,
            ids: Ids::new(),
            records: Records::new(),
            cookies: Cookies::new(&mut csprng),
            fresh: None,
            naming: cookie::secret(&mut csprng),
            csprng,
            strangers: 0,
            strangers_until_ns: 0,
            stats: EndpointStats::default(),
        }
    }

    /// Starts accepting Requests, or with `None` stops; pending ones may still be answered.
    pub fn listen(&mut self, listen: Option<Listen>) {
        let clock = listen.as_ref().and_then(|listen| {
            let shared = matches!(listen.config.credentials, Credentials::PreShared(_));
            listen.clock.filter(|_| shared)
        });
        self.fresh = clock.map(FreshRequests::new);
        self.listen = listen;
    }

    /// The counters so far.
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// Count of half-open Requests: pending, or answered without a sign of the peer since.
    pub fn half_open(&self) -> usize {
        self.records.half_open()
    }

    /// Draws the identity of a new connection; its id is reserved until [`Endpoint::release`].
    ///
    /// # Errors
    /// If there are too many connections.
    pub fn identity(&mut self, now_ns: u64) -> Result<Identity, ShuttleMisuse> {
        let cid = self.ids.draw(now_ns, &mut self.csprng).ok_or(ShuttleMisuse::TooMany)?;
        let [nonce, seed, ..] = self.csprng.next_words();
        Ok(Identity { cid, nonce, seed, entropy: self.csprng.next_bytes() })
    }

    /// Maps connection id `cid` to `key`.
    pub fn attach(&mut self, cid: ConnectionId, key: K) {
        self.ids.attach(cid, key);
    }

    /// Finds the destination of `datagram`, which arrived over `route`. The connection
    /// authenticates it.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        route: Route,
        datagram: &[u8],
    ) -> Arrival<'_, K> {
        /// No connection id: all ids in use differ from zero.
        const NONE: ConnectionId = ConnectionId(0);
        let cid = match Packet::parse(datagram) {
            Ok(Packet::Data(header)) => header.ctrl.cid,
            Ok(Packet::Ctrl(header)) => header.cid,
            Ok(Packet::Hello { kind: HelloKind::Request, to: NONE }) => {
                return self.handle_request(now_ns, route, datagram);
            }
            Ok(Packet::Hello { kind: HelloKind::Probe, to: NONE }) => {
                return self.handle_probe(now_ns, route, datagram);
            }
            Ok(Packet::Hello { kind: HelloKind::Reject, to: NONE }) => {
                return self.handle_withdrawal(now_ns, route, datagram);
            }
            Ok(Packet::Hello { to, .. }) => to,
            Err(_) => NONE,
        };
        self.arrival_for(cid)
    }

    fn arrival_for(&mut self, cid: ConnectionId) -> Arrival<'_, K> {
        let Self { ids, stats, .. } = self;
        ids.find(cid).map_or_else(
            || {
                stats.foreign += 1;
                Arrival::Nothing
            },
            Arrival::Connection,
        )
    }

    /// Answers a Probe: Requests are accepted here, with a cookie for the sender's (S-9). No state
    /// is kept.
    fn handle_probe(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Arrival<'_, K> {
        match self.answer_probe(now_ns, route, datagram).filter(|_| self.listen.is_some()) {
            Some(answer) => Arrival::Answer(answer),
            None => {
                self.stats.foreign += 1;
                Arrival::Nothing
            }
        }
    }

    fn answer_probe(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Option<Vec<u8>> {
        if let Some((version, hello)) = Hello::parse_foreign(datagram) {
            // The answer to its Request names this version.
            return Some(hello.probed()?.encode_as(version));
        }
        let hello = Hello::parse(datagram).ok()?;
        let answer = hello.probed()?;
        let asker = Asker { remote: route.remote, cid: hello.from.base(), nonce: hello.nonce };
        let cookie = self.cookies.make(now_ns, &asker, &mut self.csprng);
        let answer = Hello { cookie: &cookie, ..answer }.encode();
        (answer.len() <= datagram.len()).then_some(answer)
    }

    fn handle_request(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Arrival<'_, K> {
        let hello = Hello::parse(datagram).ok().filter(|_| datagram.len() >= REQUEST_MIN);
        if self.listen.is_some()
            && PeerRequest::is_foreign(datagram)
            && let Some(answer) = Refusal::Version.answer(datagram)
        {
            self.stats.refused += 1;
            return Arrival::Refused { answer, why: Refusal::Version };
        }
        let (Some(listen), Some(hello)) = (&self.listen, hello) else {
            self.stats.foreign += 1;
            return Arrival::Nothing;
        };
        let asker = Asker { remote: route.remote, cid: hello.from.base(), nonce: hello.nonce };
        let name = cookie::name(self.naming, &asker);
        self.records.expire(now_ns);
        if let Some(stage) = self.records.hear(now_ns, name) {
            self.stats.repeated += 1;
            return match stage {
                RecordStage::Asked(request, _) => {
                    request.receipt().map_or(Arrival::Nothing, Arrival::Answer)
                }
                RecordStage::Lapsed => Arrival::Nothing,
                RecordStage::Refused(answer) => Arrival::Answer(answer.clone()),
                RecordStage::Granted(cid) => {
                    let cid = *cid;
                    self.arrival_for(cid)
                }
            };
        }
        let crowd = self.records.half_open();
        let strangers = if now_ns < self.strangers_until_ns { self.strangers } else { 0 };
        if crowd + strangers >= listen.retry_above
            && !self.cookies.is_right(now_ns, &asker, hello.cookie, &mut self.csprng)
        {
            if crowd + strangers < FEW
                && let Some(request) = self.fresh_request(now_ns, &route, datagram, &hello)
            {
                return self.ask(now_ns, name, request, route);
            }
            self.stats.retries += 1;
            let cookie = self.cookies.make(now_ns, &asker, &mut self.csprng);
            return Arrival::Answer(retry(&hello, &cookie));
        }
        if crowd >= listen.half_open_max {
            self.stats.crowded_out += 1;
            return Arrival::Nothing;
        }
        self.take(now_ns, route, name, datagram, &hello)
    }

    /// Handles the Reject of who has asked (S-25): the Request is not pending any more. One that
    /// was granted ends with its connection.
    fn handle_withdrawal(&mut self, now_ns: u64, route: Route, datagram: &[u8]) -> Arrival<'_, K> {
        let Ok(hello) = Hello::parse(datagram) else { return self.arrival_for(ConnectionId(0)) };
        let asker = Asker { remote: route.remote, cid: hello.from.base(), nonce: hello.nonce };
        let name = cookie::name(self.naming, &asker);
        self.records.expire(now_ns);
        match self.records.stage(name) {
            Some(RecordStage::Granted(cid)) => {
                let cid = *cid;
                self.arrival_for(cid)
            }
            Some(RecordStage::Asked(request, _)) if request.is_withdrawn_by(&hello) => {
                self.records.withdraw(name);
                Arrival::Nothing
            }
            _ => self.arrival_for(ConnectionId(0)),
        }
    }

    /// Reads a Request without a cookie, if it may be admitted by its stamp.
    fn fresh_request(
        &mut self,
        now_ns: u64,
        route: &Route,
        datagram: &[u8],
        hello: &Hello<'_>,
    ) -> Option<PeerRequest> {
        let (Some(fresh), Some(listen)) = (&mut self.fresh, &self.listen) else { return None };
        if hello.key_message.is_empty() || !hello.cookie.is_empty() {
            return None;
        }
        let entropy = self.csprng.next_bytes();
        let request = PeerRequest::judge(datagram, &listen.config, entropy).ok();
        let request = request.filter(|request| fresh.admit(request, route.local));
        if request.is_none() {
            self.note_stranger(now_ns);
        }
        request.map(PeerRequest::taken_fresh)
    }

    /// Handles a new Request that may be admitted.
    fn take(
        &mut self,
        now_ns: u64,
        route: Route,
        name: u64,
        datagram: &[u8],
        hello: &Hello<'_>,
    ) -> Arrival<'_, K> {
        let Some(Listen { config, .. }) = &self.listen else { return Arrival::Nothing };
        let keyed = !hello.key_message.is_empty();
        let entropy = if keyed { self.csprng.next_bytes() } else { [0; 32] };
        let refused = match PeerRequest::judge(datagram, config, entropy) {
            Ok(request) => return self.ask(now_ns, name, request, route),
            Err(refused) => refused.and_then(|why| Some((why, why.answer(datagram)?))),
        };
        let Some((why, answer)) = refused else {
            self.stats.foreign += 1;
            return Arrival::Nothing;
        };
        if keyed {
            self.note_stranger(now_ns);
        }
        // No state is kept: a repetition is judged again.
        self.stats.refused += 1;
        Arrival::Refused { answer, why }
    }

    /// Passes a new Request to the owner.
    fn ask(
        &mut self,
        now_ns: u64,
        name: u64,
        request: PeerRequest,
        route: Route,
    ) -> Arrival<'_, K> {
        self.stats.requests += 1;
        self.records.ask(now_ns, name, request, route);
        Arrival::Request(Ticket(name))
    }

    /// Counts a failed key agreement, the most expensive operation that a Request can cause.
    fn note_stranger(&mut self, now_ns: u64) {
        if now_ns >= self.strangers_until_ns {
            self.strangers = 0;
            self.strangers_until_ns = now_ns.saturating_add(STRANGERS_NS);
        }
        self.strangers += 1;
    }

    /// The datagram that tells who sent the pending Request that it was received, if nothing has
    /// yet: the application may take its time for the answer.
    pub fn receipt(&self, ticket: Ticket) -> Option<Vec<u8>> {
        self.records.asked(ticket.0)?.0.receipt()
    }

    /// The pending Request and its route.
    pub fn request(&self, ticket: Ticket) -> Option<(&PeerRequest, Route)> {
        self.records.asked(ticket.0)
    }

    /// Accepts the Request of `ticket`. [`Endpoint::attach`] comes next.
    ///
    /// # Errors
    /// [`ShuttleMisuse::Gone`] if who asked has given up; the errors of
    /// [`ShuttleConnection::accept`], after which the request may still be rejected.
    pub fn accept(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        config: ShuttleConfig,
        private_data: &[u8],
    ) -> Result<ShuttleConnection, ShuttleMisuse> {
        self.records.expire(now_ns);
        self.records.asked(ticket.0).ok_or(ShuttleMisuse::Gone)?;
        let identity = self.identity(now_ns)?;
        let (request, route) = self.records.asked_mut(ticket.0).ok_or(ShuttleMisuse::Gone)?;
        let accepted =
            ShuttleConnection::accept(now_ns, config, identity, route, request, private_data);
        match accepted {
            Ok(_) => self.records.grant(now_ns, ticket.0, identity.cid),
            Err(_) => self.ids.release(now_ns, identity.cid),
        }
        accepted
    }

    /// Rejects the Request of `ticket`; returns the datagram to send, and its route. It is repeated
    /// when the Request is.
    ///
    /// # Errors
    /// [`ShuttleMisuse::Gone`] as for [`Endpoint::accept`], or if the private data is too long.
    pub fn reject(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        reason: u16,
        private_data: &[u8],
    ) -> Result<(Route, Vec<u8>), ShuttleMisuse> {
        self.records.expire(now_ns);
        let (request, route) = self.records.asked_mut(ticket.0).ok_or(ShuttleMisuse::Gone)?;
        let answer = request.refusal(reason, private_data)?;
        if self.records.refuse(now_ns, ticket.0, answer.clone()) {
            // Invalidated cookies keep the Request of a forgotten refusal from counting as new.
            self.cookies.forget(&mut self.csprng);
        }
        Ok((route, answer))
    }

    /// Rejects every pending Request without private data; returns the datagrams to send, and
    /// their routes. For an owner that cannot answer any more.
    pub fn reject_all(&mut self, now_ns: u64, reason: u16) -> Vec<(Route, Vec<u8>)> {
        self.records.expire(now_ns);
        let pending = self.records.pending();
        let mut reject = |name| self.reject(now_ns, Ticket(name), reason, &[]).ok();
        pending.into_iter().filter_map(&mut reject).collect()
    }

    /// Notes that connection `cid` is established: no longer half open.
    pub fn handle_established(&mut self, cid: ConnectionId) {
        self.records.confirm(cid);
    }

    /// Ends connection `cid`. Its id is quarantined.
    pub fn release(&mut self, now_ns: u64, cid: ConnectionId) {
        if self.records.release(now_ns, cid) {
            self.cookies.forget(&mut self.csprng);
        }
        self.ids.release(now_ns, cid);
    }
}

fn retry(hello: &Hello<'_>, cookie: &[u8]) -> Vec<u8> {
    let retry = Hello::new(HelloKind::Retry);
    Hello { to: hello.from, echo: hello.nonce, cookie, ..retry }.encode()
}
