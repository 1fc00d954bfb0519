//! Handshake in one round trip: a Request with all parameters, and a Reply or a Reject
//! (`docs/shuttle.md`, "Handshake", S-10 to S-19). A responder under load adds one for address
//! validation (Retry).

use core::net::SocketAddr;

use weft_wire::shuttle::hello::{
    AddressList, Hello, HelloKind, HelloLimits, HelloStamp, MAX_PRIVATE_DATA, Modules, REQUEST_MIN,
    reason,
};
use weft_wire::shuttle::{ConnectionId, ShuttleError, VERSION};

use super::{ConnectionState, Order, PendingReply, Session, ShuttleConnection, ShuttleEvent};
use crate::config::{
    CIPHERS, Identity, MIN_DATAGRAM, ShuttleConfig, choose, placement_of, repair_of,
};
use crate::csprng::Csprng;
use crate::error::{ConnectionEnd, Refusal, ShuttleMisuse};
use crate::noise::Agreement;
use crate::path::Route;
use crate::protect::Guard;

/// Most Retries accepted: a cookie outlives more steps of a handshake than these.
const RETRIES_MAX: u32 = 4;

/// Request of a peer to connect, to be accepted or rejected.
#[derive(Debug)]
pub struct PeerRequest {
    from: ConnectionId,
    nonce: u64,
    modules: Modules,
    limits: HelloLimits,
    private_data: Vec<u8>,
    stamp: Option<HelloStamp>,
    /// Further addresses of the peer, if it wants several paths.
    addresses: Option<Vec<SocketAddr>>,
    /// What withdraws it.
    withdrawal: Option<u64>,
    /// It was taken without a cookie, so its sender has had no answer yet.
    fresh: bool,
    agreement: Option<Box<Agreement>>,
}

impl PeerRequest {
    /// Parses a Request with the credentials of `config`. `entropy` is 256 random bits for the
    /// ephemeral key, in case the Request asks for a cipher.
    ///
    /// # Errors
    /// If the datagram is not a Request, is shorter than 1200 bytes (S-10), or fails the key
    /// agreement.
    pub fn parse(
        datagram: &[u8],
        config: &ShuttleConfig,
        entropy: [u8; 32],
    ) -> Result<Self, ShuttleError> {
        let outer = Hello::parse(datagram)?;
        if outer.kind != HelloKind::Request {
            return Err(ShuttleError::Kind(outer.kind as u8));
        }
        if datagram.len() < REQUEST_MIN {
            return Err(ShuttleError::Short);
        }
        if outer.key_message.is_empty() {
            let mut request = Self::from_hello(&outer, None)?;
            request.modules.protection &= !CIPHERS;
            return Ok(request);
        }
        let stranger = ShuttleError::Value("key message");
        if config.protection & CIPHERS == 0 {
            return Err(stranger);
        }
        let (agreement, inner) =
            Agreement::take(&config.credentials, entropy, outer.cookie, outer.key_message)
                .ok_or(stranger)?;
        let inner = Hello::parse(&inner)?;
        if !is_same(&outer, &inner) {
            return Err(stranger);
        }
        Self::from_hello(&inner, Some(Box::new(agreement)))
    }

    /// Parses a Request as [`PeerRequest::parse`] does, and checks whether it can be granted under
    /// `config`.
    ///
    /// # Errors
    /// The reason for a refusal; `None` if the datagram is no Request.
    pub fn judge(
        datagram: &[u8],
        config: &ShuttleConfig,
        entropy: [u8; 32],
    ) -> Result<Self, Option<Refusal>> {
        match Self::parse(datagram, config, entropy) {
            Ok(request) if request.has_common(config.modules()) => Ok(request),
            Ok(_) => Err(Some(Refusal::NothingInCommon)),
            Err(ShuttleError::Version(_)) => {
                Err(Self::is_foreign(datagram).then_some(Refusal::Version))
            }
            Err(_) => match Hello::parse(datagram) {
                Ok(hello) if hello.key_message.is_empty() => Err(None),
                Ok(_) if datagram.len() < REQUEST_MIN => Err(None),
                Ok(_) if config.protection & CIPHERS == 0 => Err(Some(Refusal::NothingInCommon)),
                Ok(_) => Err(Some(Refusal::Stranger)),
                Err(_) => Err(None),
            },
        }
    }

    /// Whether `datagram` is a complete Request of another version.
    pub(crate) fn is_foreign(datagram: &[u8]) -> bool {
        let asks = |(_, hello): (u8, Hello<'_>)| hello.kind == HelloKind::Request;
        datagram.len() >= REQUEST_MIN && Hello::parse_foreign(datagram).is_some_and(asks)
    }

    fn from_hello(
        hello: &Hello<'_>,
        agreement: Option<Box<Agreement>>,
    ) -> Result<Self, ShuttleError> {
        let limits = hello.limits.ok_or(ShuttleError::Value("limits"))?;
        check_limits(&limits)?;
        Ok(Self {
            from: hello.from.base(),
            nonce: hello.nonce,
            modules: hello.modules,
            limits,
            private_data: hello.private_data.to_vec(),
            stamp: hello.stamp.filter(|_| agreement.is_some()),
            addresses: hello.addresses.map(|list| list.iter().collect()),
            withdrawal: hello.withdrawal,
            fresh: false,
            agreement,
        })
    }

    /// Identity of the Request, unique together with the peer's address: equal for its repetitions
    /// only.
    pub fn identity(&self) -> (ConnectionId, u64) {
        (self.from, self.nonce)
    }

    /// When and where to it was sent, if a key agreement message says so.
    pub(crate) fn stamp(&self) -> Option<HelloStamp> {
        self.stamp
    }

    /// The same, taken by its stamp instead of a cookie.
    pub(crate) fn taken_fresh(self) -> Self {
        Self { fresh: true, ..self }
    }

    /// The Probe that tells its sender that it was received, unless a cookie did (S-24).
    pub(crate) fn receipt(&self) -> Option<Vec<u8>> {
        let probe = Hello::new(HelloKind::Probe);
        self.fresh.then(|| Hello { to: self.from, echo: self.nonce, ..probe }.encode())
    }

    /// Public key of the initiator, if the credentials have one; the owner decides whether to trust
    /// it.
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.agreement.as_ref()?.peer_key()
    }

    /// Whether the peer wants several paths (S-75).
    pub fn wants_paths(&self) -> bool {
        self.addresses.is_some()
    }

    /// Private data of the peer's application.
    pub fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// ORD of the peer: Reads and Atomics that it keeps outstanding.
    pub fn ord(&self) -> u16 {
        self.limits.ord
    }

    /// IRD of the peer: Reads and Atomics that it serves at a time.
    pub fn ird(&self) -> u16 {
        self.limits.ird
    }

    /// Whether `hello`, which names this Request, withdraws it (S-25).
    pub(crate) fn is_withdrawn_by(&self, hello: &Hello<'_>) -> bool {
        withdraws(hello, self.withdrawal)
    }

    /// Whether a module of each kind is in common with `modules`.
    fn has_common(&self, modules: Modules) -> bool {
        choose(modules, self.modules).is_some()
    }

    /// Makes the Reject datagram.
    ///
    /// # Errors
    /// If the private data is too long.
    pub fn reject(mut self, reason: u16, private_data: &[u8]) -> Result<Vec<u8>, ShuttleMisuse> {
        self.refusal(reason, private_data)
    }

    /// As [`PeerRequest::reject`]; under a cipher it can be called once.
    pub(crate) fn refusal(
        &mut self,
        reason: u16,
        private_data: &[u8],
    ) -> Result<Vec<u8>, ShuttleMisuse> {
        check_private_data(private_data)?;
        let hello = Hello {
            to: self.from,
            echo: self.nonce,
            private_data,
            reason,
            ..Hello::new(HelloKind::Reject)
        };
        Ok(self.seal(&hello))
    }

    /// Encodes `hello`, inside a key agreement message if the Request came in one.
    fn seal(&mut self, hello: &Hello<'_>) -> Vec<u8> {
        let message =
            self.agreement.as_mut().and_then(|agreement| agreement.answer(&hello.encode_inner()));
        match message {
            Some(message) => outer(hello, &message),
            None => hello.encode(),
        }
    }
}

impl Refusal {
    /// Makes the refusal of the Request `datagram`, in clear; `None` if that is not a Request.
    pub fn answer(self, datagram: &[u8]) -> Option<Vec<u8>> {
        let own = |hello| (VERSION, hello);
        let hello = Hello::parse(datagram).ok().map(own);
        let (version, hello) = hello.or_else(|| Hello::parse_foreign(datagram))?;
        if hello.kind != HelloKind::Request {
            return None;
        }
        let reason = match self {
            Self::Stranger => reason::STRANGER,
            Self::NothingInCommon => reason::NOTHING_IN_COMMON,
            Self::ClearText => reason::CLEAR_TEXT,
            Self::Version => reason::VERSION,
        };
        let reject = Hello::new(HelloKind::Reject);
        Some(Hello { to: hello.from, echo: hello.nonce, reason, ..reject }.encode_as(version))
    }
}

impl ShuttleConnection {
    /// Initiates a connection to the peer at `route`.
    ///
    /// # Errors
    /// If the configuration is invalid or the private data too long.
    pub fn connect(
        now_ns: u64,
        config: ShuttleConfig,
        identity: Identity,
        route: Route,
        private_data: &[u8],
    ) -> Result<Self, ShuttleMisuse> {
        config.check()?;
        check_private_data(private_data)?;
        let hello = Hello {
            from: identity.cid,
            nonce: identity.nonce,
            modules: config.modules(),
            limits: Some(config.limits()),
            private_data,
            ..Hello::new(HelloKind::Request)
        };
        let to = SocketAddr::new(route.remote.ip().to_canonical(), route.remote.port());
        let stamp = config.unix_ms.map(|unix_ms| HelloStamp { unix_ms, to });
        let stamp = stamp.filter(|_| config.protection & CIPHERS != 0);
        // Only the responder's are of use: this end opens the paths.
        let addresses = config.addresses.as_ref().map(|_| AddressList::EMPTY);
        let withdrawal = config.may_withdraw.then(|| withdrawal(identity.entropy));
        let hello = Hello { cookie: &config.cookie, stamp, addresses, withdrawal, ..hello };
        let (request, agreement) =
            request_of(&config, identity.entropy, &hello).ok_or(ShuttleMisuse::Credentials)?;
        let state = ConnectionState::Requesting {
            asked: hello.encode_inner(),
            request,
            agreement,
            began_ns: now_ns,
            sent_ns: None,
            sent: 0,
            next_ns: now_ns,
            tries: 0,
            retries: 0,
            received: false,
            doubt: None,
        };
        Ok(Self::new(config, identity, true, route, now_ns, state))
    }

    /// Accepts `request`, which arrived over `route`.
    ///
    /// # Errors
    /// If the configuration is invalid, the private data too long, or no module in common; the
    /// request may then be rejected.
    pub fn accept(
        now_ns: u64,
        config: ShuttleConfig,
        identity: Identity,
        route: Route,
        request: &mut PeerRequest,
        private_data: &[u8],
    ) -> Result<Self, ShuttleMisuse> {
        config.check()?;
        check_private_data(private_data)?;
        let modules =
            choose(config.modules(), request.modules).ok_or(ShuttleMisuse::NothingInCommon)?;
        let mut room = Vec::new();
        // Named to who has asked for them only.
        let own = config.addresses.as_deref().filter(|_| request.addresses.is_some());
        let addresses = own.map(|own| AddressList::encode(own, &mut room));
        let hello = Hello {
            to: request.from,
            from: identity.cid,
            nonce: identity.nonce,
            echo: request.nonce,
            modules,
            limits: Some(config.limits()),
            private_data,
            addresses,
            ..Hello::new(HelloKind::Reply)
        };
        let octets = request.seal(&hello);
        let until_ns = now_ns.saturating_add(config.handshake_ns);
        let reply = PendingReply {
            octets,
            nonce: request.nonce,
            withdrawal: request.withdrawal,
            until_ns,
            withdrawn: false,
            close: None,
            owed: true,
            sent_ns: None,
            again: false,
        };
        let state = ConnectionState::Open { reply: Some(reply) };
        let mut connection = Self::new(config, identity, false, route, now_ns, state);
        let secret = [request.nonce, identity.nonce];
        let agreement = request.agreement.as_deref_mut();
        connection.agree(request.from, request.limits, modules, secret, agreement);
        connection.note_addresses(request.addresses.take());
        Ok(connection)
    }

    /// Handles a handshake packet for this connection.
    pub(super) fn handle_hello(&mut self, now_ns: u64, datagram: &[u8]) {
        let Ok(hello) = Hello::parse(datagram) else {
            self.stats.foreign_datagrams += 1;
            return;
        };
        match (&mut self.state, hello.kind) {
            (ConnectionState::Open { reply: Some(reply) }, HelloKind::Request)
                if hello.nonce == reply.nonce && datagram.len() >= REQUEST_MIN =>
            {
                // The first copy may be the one that was accepted.
                reply.again |= reply.sent_ns.is_some();
                reply.owed = true;
            }
            (ConnectionState::Open { reply: Some(reply) }, HelloKind::Reject)
                if hello.nonce == reply.nonce && withdraws(&hello, reply.withdrawal) =>
            {
                reply.withdrawn = true;
                if reply.close.is_some() || !self.config.outlives_withdrawal {
                    self.end(now_ns, ConnectionEnd::Withdrawn);
                }
            }
            (ConnectionState::Requesting { .. }, HelloKind::Retry)
                if hello.echo == self.identity.nonce =>
            {
                self.handle_retry(now_ns, hello.cookie);
            }
            (ConnectionState::Requesting { received, .. }, HelloKind::Probe)
                if hello.echo == self.identity.nonce =>
            {
                *received = true;
            }
            (ConnectionState::Requesting { .. }, HelloKind::Reply | HelloKind::Reject)
                if hello.echo == self.identity.nonce =>
            {
                self.handle_outer_answer(now_ns, &hello);
            }
            _ => self.stats.foreign_datagrams += 1,
        }
    }

    /// Handles a Retry: repeats the Request with the cookie, which validates this end's address
    /// (S-17).
    fn handle_retry(&mut self, now_ns: u64, cookie: &[u8]) {
        let ConnectionState::Requesting {
            asked, request, agreement, next_ns, tries, retries, ..
        } = &mut self.state
        else {
            return;
        };
        let Ok(hello) = Hello::parse(asked) else { return };
        if cookie.is_empty() || hello.cookie == cookie || *retries == RETRIES_MAX {
            self.stats.foreign_datagrams += 1;
            return;
        }
        let hello = Hello { cookie, ..hello };
        let mut csprng = Csprng::new(self.identity.entropy);
        let entropy = (0..=*retries).fold([0; 32], |_, _| csprng.next_bytes());
        let Some((sealed, keys)) = request_of(&self.config, entropy, &hello) else { return };
        (*request, *agreement) = (sealed, keys);
        *asked = hello.encode_inner();
        (*next_ns, *tries, *retries) = (now_ns, 0, *retries + 1);
    }

    /// Ends an attempt, and tells a peer that may have the Request (S-25).
    pub(super) fn withdraw(&mut self, now_ns: u64, end: ConnectionEnd) {
        let told = match &self.state {
            ConnectionState::Requesting { asked, sent, .. } if *sent > 0 => {
                let hello = Hello::parse(asked).ok();
                hello.and_then(|hello| Some(hello.withdrawn()?.encode()))
            }
            _ => None,
        };
        self.end(now_ns, end);
        if let ConnectionState::Ended { withdrawal, .. } = &mut self.state {
            *withdrawal = told;
        }
    }

    /// Handles an answer, which may hold an encrypted one. An answer that does not decrypt is
    /// forged, except that a peer that could not decrypt the Request can refuse in clear only
    /// (S-19).
    fn handle_outer_answer(&mut self, now_ns: u64, hello: &Hello<'_>) {
        let ConnectionState::Requesting { agreement, .. } = &mut self.state else { return };
        let Some(mut agreement) = agreement.take() else {
            self.handle_answer(now_ns, hello, None);
            return;
        };
        if hello.kind == HelloKind::Reject && hello.key_message.is_empty() {
            self.handle_doubtful(now_ns, agreement, hello.reason);
            return;
        }
        let inner = agreement.finish(hello.key_message);
        let inner = inner.as_deref().and_then(|octets| Hello::parse(octets).ok());
        if let Some(inner) = inner.filter(|inner| is_same(hello, inner)) {
            self.handle_answer(now_ns, &inner, Some(&mut agreement));
        } else if let ConnectionState::Requesting { agreement: empty, .. } = &mut self.state {
            *empty = Some(agreement);
            self.stats.foreign_datagrams += 1;
        }
    }

    /// Handles a refusal in clear. An attacker on the path could have forged it, so it takes effect
    /// only if no authentic answer follows in time.
    fn handle_doubtful(&mut self, now_ns: u64, keys: Box<Agreement>, reason: u16) {
        let believed_ns = now_ns.saturating_add(self.config.initial_rtt_ns.saturating_mul(3));
        if let ConnectionState::Requesting { agreement, doubt, .. } = &mut self.state {
            *agreement = Some(keys);
            doubt.get_or_insert((believed_ns, end_of(reason)));
        }
    }

    fn handle_answer(&mut self, now_ns: u64, hello: &Hello<'_>, agreement: Option<&mut Agreement>) {
        if hello.kind == HelloKind::Reject {
            self.events
                .push_back(ShuttleEvent::Rejected { private_data: hello.private_data.to_vec() });
            self.end(now_ns, end_of(hello.reason));
            return;
        }
        let limits = hello.limits.filter(|limits| check_limits(limits).is_ok());
        let offered = self.config.modules();
        let one = |bits: u8| bits.count_ones() == 1;
        let m = hello.modules;
        let keyed = agreement.is_some() || m.protection & CIPHERS == 0;
        let single = one(m.protection) && one(m.placement) && one(m.recovery) && keyed;
        let (Some(limits), Some(modules), true) = (limits, choose(offered, m), single) else {
            self.end(now_ns, ConnectionEnd::BadAnswer);
            return;
        };
        // The round trip is known only if every Request but the last was answered by a Retry.
        if let ConnectionState::Requesting { sent_ns: Some(sent_ns), sent, retries, .. } =
            self.state
            && sent == retries + 1
            && !self.config.may_wait
        {
            self.paths[0].recovery.handle_handshake_rtt(now_ns - sent_ns);
            self.resume_saved(now_ns);
        }
        let secret = [self.identity.nonce, hello.nonce];
        self.agree(hello.from.base(), limits, modules, secret, agreement);
        self.note_addresses(hello.addresses.map(|list| list.iter().collect()));
        self.state = ConnectionState::Open { reply: None };
        self.heard_ns = now_ns;
        let path = &mut self.paths[0];
        path.validated = true;
        // The responder may send once it has a packet from this end; a Ping will do.
        path.ping = true;
        self.announce(hello.private_data);
    }

    #[expect(clippy::expect_used, reason = "the modules were chosen among those that exist")]
    fn agree(
        &mut self,
        peer_cid: ConnectionId,
        peer_limits: HelloLimits,
        modules: Modules,
        secret: [u64; 2],
        agreement: Option<&mut Agreement>,
    ) {
        let peer_key = agreement.as_ref().and_then(|agreement| agreement.peer_key());
        let cipher = modules.protection & CIPHERS != 0;
        let secrets = agreement.filter(|_| cipher).map(Agreement::secrets);
        let peer_idle_ns = u64::from(peer_limits.idle_ms) * 1_000_000;
        let octets = self.config.datagram_octets.min(peer_limits.datagram_octets);
        self.paths[0].set_base(octets);
        self.cap.set(peer_limits.rate_kbps.saturating_mul(1000));
        let goal = self.config.datagram_octets_goal.min(peer_limits.datagram_octets);
        self.paths[0].search_mtu(goal);
        self.session = Some(Session {
            peer_cid,
            peer_limits,
            modules,
            order: Order {
                placement: placement_of(modules).expect("one placement was chosen"),
                repair: repair_of(modules, self.config.lost_twice)
                    .expect("one recovery was chosen"),
            },
            guard: Guard::new(
                modules.protection,
                secret,
                self.initiator,
                secrets.as_ref(),
                self.config.packets_per_key,
            ),
            peer_key,
            peer_addresses: None,
            idle_ns: self.config.idle_ns.min(peer_idle_ns.max(1)),
        });
        let stream = weft_wire::shuttle::StreamId(0);
        // A peer that allows no stream at all hears nothing.
        let _none_allowed = self.open_stream(stream, 1);
    }

    /// Notes the further addresses of a peer that wants several paths, if this end does too.
    fn note_addresses(&mut self, addresses: Option<Vec<SocketAddr>>) {
        let addresses = addresses.filter(|_| self.config.addresses.is_some());
        if let Some(session) = &mut self.session {
            session.peer_addresses = addresses;
        }
    }

    /// Completes the responder's handshake: the peer has the Reply. The first packet measures the
    /// round trip; a later one may have waited.
    pub(super) fn confirm(&mut self, now_ns: u64, pn: u64) {
        let ConnectionState::Open { reply } = &mut self.state else { return };
        let Some(reply) = reply.take() else { return };
        if let Some(reason) = reply.close {
            self.state = ConnectionState::Closing { reason, next_ns: now_ns, tries: 0 };
            return;
        }
        if let Some(sent_ns) = reply.sent_ns
            && !reply.again
            && pn == 0
        {
            self.paths[0].recovery.handle_handshake_rtt(now_ns - sent_ns);
            self.resume_saved(now_ns);
        }
        self.paths[0].validated = true;
        self.announce(&[]);
    }

    /// Depths are the smaller of one end's ORD and the other's IRD.
    fn announce(&mut self, private_data: &[u8]) {
        let Some(session) = &self.session else { return };
        let peer = session.peer_limits;
        self.events.push_back(ShuttleEvent::Established {
            private_data: private_data.to_vec(),
            ord: self.config.ord.min(peer.ird),
            ird: self.config.ird.min(peer.ord),
        });
    }
}

/// What withdraws the Request that is made with `entropy`: a draw that no Retry takes.
fn withdrawal(entropy: [u8; 32]) -> u64 {
    let mut csprng = Csprng::new(entropy);
    let drawn = (0..=RETRIES_MAX).fold([0; 4], |_, _| csprng.next_words());
    drawn[0]
}

/// Whether `hello` says what withdraws a Request.
fn withdraws(hello: &Hello<'_>, withdrawal: Option<u64>) -> bool {
    withdrawal.is_some() && hello.withdrawal == withdrawal
}

/// End of a connection that was refused for `reason`.
fn end_of(reason: u16) -> ConnectionEnd {
    match reason {
        reason::STRANGER => ConnectionEnd::Stranger,
        reason::NOTHING_IN_COMMON => ConnectionEnd::NothingInCommon,
        reason::CLEAR_TEXT => ConnectionEnd::ClearText,
        reason::VERSION => ConnectionEnd::Version,
        _ => ConnectionEnd::Rejected(reason),
    }
}

/// Encodes the Request `hello`, and starts the key agreement if it offers ciphers. `None` if the
/// credentials do not fit.
fn request_of(
    config: &ShuttleConfig,
    entropy: [u8; 32],
    hello: &Hello<'_>,
) -> Option<(Vec<u8>, Option<Box<Agreement>>)> {
    if config.protection & CIPHERS == 0 {
        return Some((hello.encode(), None));
    }
    let inner = Hello { cookie: &[], ..*hello }.encode_inner();
    let (agreement, message) = Agreement::ask(&config.credentials, entropy, hello.cookie, &inner)?;
    Some((outer(hello, &message), Some(Box::new(agreement))))
}

/// Outer packet around `message`: only its addressing is in clear.
fn outer(hello: &Hello<'_>, key_message: &[u8]) -> Vec<u8> {
    let Hello { to, from, nonce, echo, cookie, .. } = *hello;
    Hello { to, from, nonce, echo, cookie, key_message, ..Hello::new(hello.kind) }.encode()
}

/// Whether two handshake packets have the same kind, source and destination.
fn is_same(a: &Hello<'_>, b: &Hello<'_>) -> bool {
    let of = |hello: &Hello<'_>| (hello.kind, hello.to, hello.from, hello.nonce, hello.echo);
    of(a) == of(b)
}

fn check_limits(limits: &HelloLimits) -> Result<(), ShuttleError> {
    let valid = limits.streams > 0 && limits.datagram_octets >= MIN_DATAGRAM;
    if valid { Ok(()) } else { Err(ShuttleError::Value("limits")) }
}

fn check_private_data(private_data: &[u8]) -> Result<(), ShuttleMisuse> {
    let len = private_data.len();
    if len > MAX_PRIVATE_DATA { Err(ShuttleMisuse::PrivateDataTooLong(len)) } else { Ok(()) }
}
