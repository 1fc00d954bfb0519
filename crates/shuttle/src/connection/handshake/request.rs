//! The Request that a responder takes: read, judged, and refused.

use core::net::SocketAddr;

use weft_wire::shuttle::hello::{
    Hello, HelloKind, HelloLimits, HelloStamp, MAX_PRIVATE_DATA, Modules, REQUEST_MIN, reason,
};
use weft_wire::shuttle::{ConnectionId, ShuttleError, VERSION};

use crate::config::{CIPHERS, MIN_DATAGRAM, ShuttleConfig, choose};
use crate::error::{Refusal, ShuttleMisuse};
use crate::noise::Agreement;

/// Request of a peer to connect, to be accepted or rejected.
#[derive(Debug)]
pub struct PeerRequest {
    pub(super) from: ConnectionId,
    pub(super) nonce: u64,
    pub(super) modules: Modules,
    pub(super) limits: HelloLimits,
    private_data: Vec<u8>,
    stamp: Option<HelloStamp>,
    /// Further addresses of the peer, if it wants several paths.
    pub(super) addresses: Option<Vec<SocketAddr>>,
    /// What withdraws it.
    pub(super) withdrawal: Option<u64>,
    /// It was taken without a cookie, so its sender has had no answer yet.
    fresh: bool,
    pub(super) agreement: Option<Box<Agreement>>,
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
    pub(super) fn seal(&mut self, hello: &Hello<'_>) -> Vec<u8> {
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

pub(super) fn check_limits(limits: &HelloLimits) -> Result<(), ShuttleError> {
    let valid = limits.streams > 0 && limits.datagram_octets >= MIN_DATAGRAM;
    if valid { Ok(()) } else { Err(ShuttleError::Value("limits")) }
}

/// Whether `hello` says what withdraws a Request.
pub(super) fn withdraws(hello: &Hello<'_>, withdrawal: Option<u64>) -> bool {
    withdrawal.is_some() && hello.withdrawal == withdrawal
}

/// Outer packet around `message`: only its addressing is in clear.
pub(super) fn outer(hello: &Hello<'_>, key_message: &[u8]) -> Vec<u8> {
    let Hello { to, from, nonce, echo, cookie, .. } = *hello;
    Hello { to, from, nonce, echo, cookie, key_message, ..Hello::new(hello.kind) }.encode()
}

/// Whether two handshake packets have the same kind, source and destination.
pub(super) fn is_same(a: &Hello<'_>, b: &Hello<'_>) -> bool {
    let of = |hello: &Hello<'_>| (hello.kind, hello.to, hello.from, hello.nonce, hello.echo);
    of(a) == of(b)
}

pub(super) fn check_private_data(private_data: &[u8]) -> Result<(), ShuttleMisuse> {
    let len = private_data.len();
    if len > MAX_PRIVATE_DATA { Err(ShuttleMisuse::PrivateDataTooLong(len)) } else { Ok(()) }
}
