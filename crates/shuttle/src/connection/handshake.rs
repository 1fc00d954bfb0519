//! Handshake in one round trip: a Request with all parameters, and a Reply or a Reject
//! (`docs/shuttle.md`, "Handshake", S-10 to S-19). A responder under load adds one for address
//! validation (Retry).

mod request;

use core::net::SocketAddr;

use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{
    AddressList, Hello, HelloKind, HelloLimits, HelloStamp, Modules, REQUEST_MIN, reason,
};

pub use request::PeerRequest;
use request::{check_limits, check_private_data, is_same, outer, withdraws};

use super::{ConnectionState, Order, PendingReply, Session, ShuttleConnection, ShuttleEvent};
use crate::config::{CIPHERS, Identity, ShuttleConfig, choose, placement_of, repair_of};
use crate::csprng::Csprng;
use crate::error::{ConnectionEnd, ShuttleMisuse};
use crate::noise::Agreement;
use crate::path::Route;
use crate::protect::Guard;

/// Most Retries accepted: a cookie outlives more steps of a handshake than these.
const RETRIES_MAX: u32 = 4;

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
