//! What stands behind a socket that connections share: finds whom a datagram is for, and shakes
//! hands with who asks for a connection (`docs/shuttle.md`, S-2, S-10, S-13, S-17 to S-19, S-22).
//!
//! Invariant: nothing that costs more than a bounded record is done for an address before it has
//! proved that it receives, once more than a few others are waiting; and no answer is longer than
//! what it answers.
//!
//! Order of calls: [`Endpoint::listen`] if connections are granted here. Every datagram goes to
//! [`Endpoint::handle_datagram`] first, which says what to do with it. To ask for a connection:
//! [`Endpoint::identity`], [`Connection::connect`](crate::Connection::connect),
//! [`Endpoint::attach`]. To grant one: [`Endpoint::accept`] with the ticket, `attach`, and
//! [`Endpoint::handle_established`] once the connection says so. [`Endpoint::release`] when a
//! connection is forgettable. No timer is needed: time is looked at when something happens.

mod cookie;
mod gate;
mod ids;
mod records;

use core::net::SocketAddr;

use weft_wire::shuttle::hello::{Hello, HelloKind, REQUEST_MIN};
use weft_wire::shuttle::{ConnectionId, Packet};

use self::cookie::Cookies;
pub use self::gate::{Gate, Passage};
use self::ids::Ids;
use self::records::{RecordStage, Records};
use crate::config::{Config, Identity};
use crate::connection::{Connection, Request};
use crate::csprng::Csprng;
use crate::error::{Misuse, Refusal};
use crate::path::Route;

/// Requests refused for want of a key count against newcomers for this long.
const STRANGERS_NS: u64 = 1_000_000_000;

/// What an endpoint grants connections with.
#[derive(Clone, Debug)]
pub struct Listen {
    /// Reads Requests and refuses those with nothing in common; each connection that is granted
    /// may have its own.
    pub config: Config,
    /// With so many Requests waiting or answered without a sign since, newcomers must prove that
    /// they receive at their address; with 0 each must, and none is told to the owner that has not.
    pub retry_above: usize,
    /// Beyond so many, newcomers get no answer.
    pub half_open_max: usize,
}

impl Listen {
    /// With limits that suit a busy server: two megabytes of records at most.
    pub fn new(config: Config) -> Self {
        Self { config, retry_above: 64, half_open_max: 1024 }
    }
}

/// Names a Request that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

/// What a datagram is to the owner of the socket.
#[derive(Debug, PartialEq, Eq)]
pub enum Arrival<'a, K> {
    /// [`Connection::handle_datagram`] of this connection takes it.
    Connection(&'a K),
    /// Somebody asks for a connection: [`Endpoint::accept`] or [`Endpoint::reject`], at leisure.
    Request(Ticket),
    /// This is to be sent back the way that the datagram came.
    Answer(Vec<u8>),
    /// So is this; somebody who cannot have a connection asked for one.
    Refused {
        /// What is sent back.
        answer: Vec<u8>,
        /// Why.
        why: Refusal,
    },
    /// Nothing is to be done.
    Nothing,
}

/// Counters of an endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndpointStats {
    /// Requests that were told to the owner.
    pub requests: u64,
    /// Requests that came again.
    pub repeated: u64,
    /// Requests answered with a cookie.
    pub retries: u64,
    /// Requests refused without asking the owner.
    pub refused: u64,
    /// Requests without an answer, because too many others were waiting.
    pub crowded_out: u64,
    /// Datagrams for nobody.
    pub foreign: u64,
}

/// Who asks: the same when a Request comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Asker {
    remote: SocketAddr,
    cid: ConnectionId,
    nonce: u64,
}

/// The connections behind one socket, by the owner's own keys `K`.
pub struct Endpoint<K> {
    listen: Option<Listen>,
    ids: Ids<K>,
    records: Records,
    cookies: Cookies,
    csprng: Csprng,
    /// Key of the names of askers.
    naming: [u64; 2],
    strangers: usize,
    strangers_until_ns: u64,
    stats: EndpointStats,
}

impl<K> Endpoint<K> {
    /// Without connections. `seed` is fresh randomness; every id, nonce, key and cookie follows
    /// from it.
    pub fn new(seed: [u8; 32]) -> Self {
        let mut csprng = Csprng::new(seed);
        Self {
            listen: None,
            ids: Ids::new(),
            records: Records::new(),
            cookies: Cookies::new(&mut csprng),
            naming: cookie::secret(&mut csprng),
            csprng,
            strangers: 0,
            strangers_until_ns: 0,
            stats: EndpointStats::default(),
        }
    }

    /// Takes Requests from now on, or with `None` no more of them; those that wait may still be
    /// answered.
    pub fn listen(&mut self, listen: Option<Listen>) {
        self.listen = listen;
    }

    /// Counters.
    pub fn stats(&self) -> EndpointStats {
        self.stats
    }

    /// Requests that wait for an answer, or whose answer is not known to have arrived.
    pub fn half_open(&self) -> usize {
        self.records.half_open()
    }

    /// What is unguessable about a new connection; its id is kept for it until
    /// [`Endpoint::release`].
    ///
    /// # Errors
    /// If there are too many connections.
    pub fn identity(&mut self, now_ns: u64) -> Result<Identity, Misuse> {
        let cid = self.ids.draw(now_ns, &mut self.csprng).ok_or(Misuse::TooMany)?;
        let [nonce, seed, ..] = self.csprng.next_words();
        Ok(Identity { cid, nonce, seed, entropy: self.csprng.next_bytes() })
    }

    /// What arrives for the connection with id `cid` is for `key` from now on.
    pub fn attach(&mut self, cid: ConnectionId, key: K) {
        self.ids.attach(cid, key);
    }

    /// Says whom `datagram`, which came over `route`, is for. Whoever it is checks it.
    pub fn handle_datagram(
        &mut self,
        now_ns: u64,
        route: Route,
        datagram: &[u8],
    ) -> Arrival<'_, K> {
        const NONE: ConnectionId = ConnectionId(0);
        let cid = match Packet::parse(datagram) {
            Ok(Packet::Data(header)) => header.ctrl.cid,
            Ok(Packet::Ctrl(header)) => header.cid,
            Ok(Packet::Hello { kind: HelloKind::Request, to: NONE }) => {
                return self.handle_request(now_ns, route, datagram);
            }
            Ok(Packet::Hello { kind: HelloKind::Probe, .. }) => {
                return self.handle_probe(now_ns, route, datagram);
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

    /// Whoever asks is told that Requests are taken here, and given the cookie for its own (S-9);
    /// nothing is kept of it.
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
            // Its Request is answered with what it needs to know.
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
            && Request::is_foreign(datagram)
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
                RecordStage::Asked(..) | RecordStage::Lapsed => Arrival::Nothing,
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

    /// A Request of a newcomer who may come in.
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
        let refused = match Request::judge(datagram, config, entropy) {
            Ok(request) => {
                self.stats.requests += 1;
                self.records.ask(now_ns, name, request, route);
                return Arrival::Request(Ticket(name));
            }
            Err(refused) => refused.and_then(|why| Some((why, why.answer(datagram)?))),
        };
        let Some((why, answer)) = refused else {
            self.stats.foreign += 1;
            return Arrival::Nothing;
        };
        if keyed {
            self.note_stranger(now_ns);
        }
        // Nothing is kept for it: it is looked at again when it comes again.
        self.stats.refused += 1;
        Arrival::Refused { answer, why }
    }

    /// A key agreement costs more than anything else that a Request can cause.
    fn note_stranger(&mut self, now_ns: u64) {
        if now_ns >= self.strangers_until_ns {
            self.strangers = 0;
            self.strangers_until_ns = now_ns.saturating_add(STRANGERS_NS);
        }
        self.strangers += 1;
    }

    /// What is asked, and from where, while it waits for an answer.
    pub fn request(&self, ticket: Ticket) -> Option<(&Request, Route)> {
        self.records.asked(ticket.0)
    }

    /// Grants what `ticket` names. [`Endpoint::attach`] comes next.
    ///
    /// # Errors
    /// [`Misuse::Gone`] if who asked has given up; the errors of [`Connection::accept`], after
    /// which the request may still be rejected.
    pub fn accept(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        config: Config,
        private_data: &[u8],
    ) -> Result<Connection, Misuse> {
        self.records.expire(now_ns);
        self.records.asked(ticket.0).ok_or(Misuse::Gone)?;
        let identity = self.identity(now_ns)?;
        let (request, route) = self.records.asked_mut(ticket.0).ok_or(Misuse::Gone)?;
        let accepted = Connection::accept(now_ns, config, identity, route, request, private_data);
        match accepted {
            Ok(_) => self.records.grant(now_ns, ticket.0, identity.cid),
            Err(_) => self.ids.release(now_ns, identity.cid),
        }
        accepted
    }

    /// Refuses what `ticket` names; gives what is to be sent, and where. It is sent again when the
    /// Request comes again.
    ///
    /// # Errors
    /// [`Misuse::Gone`] as for [`Endpoint::accept`], or if the private data is too long.
    pub fn reject(
        &mut self,
        now_ns: u64,
        ticket: Ticket,
        reason: u16,
        private_data: &[u8],
    ) -> Result<(Route, Vec<u8>), Misuse> {
        self.records.expire(now_ns);
        let (request, route) = self.records.asked_mut(ticket.0).ok_or(Misuse::Gone)?;
        let answer = request.refusal(reason, private_data)?;
        if self.records.refuse(now_ns, ticket.0, answer.clone()) {
            // A Request whose refusal was forgotten must not count as a new one.
            self.cookies.forget(&mut self.csprng);
        }
        Ok((route, answer))
    }

    /// The connection with id `cid` has said that it is established.
    pub fn handle_established(&mut self, cid: ConnectionId) {
        self.records.confirm(cid);
    }

    /// The connection with id `cid` is no more. Its id is not used again for a while.
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
