//! Key agreement in the two packets of the handshake (the Noise protocol framework, revision 34).
//!
//! The message in a Request or an answer holds a whole inner packet: what the outer one says in
//! clear is only the way to it. Which pattern is spoken follows from the credentials. The prologue
//! names the version and has the cookie of the Request: a message that was recorded does not open
//! under a cookie that was made later.

use core::fmt;

use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::{Zeroize, Zeroizing};

/// Authentication of the two ends.
#[derive(Clone, Default)]
pub enum Credentials {
    /// None: secrecy against passive listeners only. Noise NN.
    #[default]
    Anonymous,
    /// A pre-shared key. Noise NNpsk0.
    PreShared([u8; 32]),
    /// A key pair (X25519): the initiator knows the responder's public key, the responder learns
    /// the initiator's. Noise IK.
    Static {
        /// This end's private key.
        private: [u8; 32],
        /// The peer's public key; `None` at the responder.
        peer: Option<[u8; 32]>,
    },
}

/// Beginning of the Noise prologue: protocol and version.
const PROLOGUE: &[u8] = b"weft shuttle 3";

/// Largest overhead of a key agreement message over its inner packet, in bytes.
const OVERHEAD_MAX: usize = 128;

/// Key agreement in progress. snow does not wipe its memory: the ephemeral private key and the
/// pre-shared key stay in freed memory.
#[derive(Debug)]
pub(crate) struct Agreement {
    state: HandshakeState,
}

/// Traffic secrets of both directions, the initiator's first.
pub(crate) type Secrets = Zeroizing<[[u8; 32]; 2]>;

impl Credentials {
    /// The public key of a private one (X25519), for [`Credentials::Static`].
    #[expect(clippy::expect_used, reason = "snow has X25519, whose keys are of 32 bytes")]
    pub fn public_key(private: [u8; 32]) -> [u8; 32] {
        let mut dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519).expect("snow has it");
        dh.set(&private);
        dh.pubkey().try_into().expect("a key has 32 octets")
    }

    fn pattern(&self) -> (u8, &'static str) {
        match self {
            Self::Anonymous => (0, "Noise_NN_25519_ChaChaPoly_BLAKE2s"),
            Self::PreShared(_) => (1, "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s"),
            Self::Static { .. } => (2, "Noise_IK_25519_ChaChaPoly_BLAKE2s"),
        }
    }

    /// `prologue` must be the same at both ends.
    fn builder<'a>(&'a self, entropy: [u8; 32], prologue: &'a [u8]) -> Result<Builder<'a>, Error> {
        let params = self.pattern().1.parse()?;
        let resolver = Resolver { entropy: Zeroizing::new(entropy) };
        let builder = Builder::with_resolver(params, Box::new(resolver)).prologue(prologue)?;
        match self {
            Self::Anonymous => Ok(builder),
            Self::PreShared(key) => builder.psk(0, key),
            Self::Static { private, peer: None } => builder.local_private_key(private),
            Self::Static { private, peer: Some(peer) } => {
                builder.local_private_key(private)?.remote_public_key(peer)
            }
        }
    }
}

impl Drop for Credentials {
    fn drop(&mut self) {
        match self {
            Self::Anonymous => {}
            Self::PreShared(secret) | Self::Static { private: secret, .. } => secret.zeroize(),
        }
    }
}

impl fmt::Debug for Credentials {
    /// Prints the kind of credentials and no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Anonymous => "Anonymous",
            Self::PreShared(_) => "PreShared",
            Self::Static { .. } => "Static",
        })
    }
}

impl Agreement {
    /// Initiator: makes the first message around `inner`, for a Request with `cookie`. `None` if
    /// the credentials do not fit. `entropy` must be new each time.
    pub(crate) fn ask(
        credentials: &Credentials,
        entropy: [u8; 32],
        cookie: &[u8],
        inner: &[u8],
    ) -> Option<(Self, Vec<u8>)> {
        let prologue = [PROLOGUE, cookie].concat();
        let state = credentials.builder(entropy, &prologue).ok()?.build_initiator().ok()?;
        let mut agreement = Self { state };
        let mut message = vec![credentials.pattern().0];
        message.extend(agreement.write(inner)?);
        Some((agreement, message))
    }

    /// Responder: opens the first message, of a Request with `cookie`; returns the inner packet.
    pub(crate) fn take(
        credentials: &Credentials,
        entropy: [u8; 32],
        cookie: &[u8],
        message: &[u8],
    ) -> Option<(Self, Vec<u8>)> {
        let (pattern, message) = message.split_first()?;
        let prologue = [PROLOGUE, cookie].concat();
        let state = credentials.builder(entropy, &prologue).ok()?.build_responder().ok()?;
        let mut agreement = Self { state };
        let inner = agreement.read(message).filter(|_| *pattern == credentials.pattern().0)?;
        Some((agreement, inner))
    }

    /// Responder: makes the second message around `inner`.
    pub(crate) fn answer(&mut self, inner: &[u8]) -> Option<Vec<u8>> {
        self.write(inner)
    }

    /// Initiator: opens the second message; returns the inner packet. A forged one changes nothing.
    pub(crate) fn finish(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        self.read(message)
    }

    /// Traffic secrets, once both messages were exchanged.
    pub(crate) fn secrets(&mut self) -> Secrets {
        let (initiator, responder) = self.state.dangerously_get_raw_split();
        Zeroizing::new([initiator, responder])
    }

    /// The peer's public key, where the credentials have one.
    pub(crate) fn peer_key(&self) -> Option<[u8; 32]> {
        self.state.get_remote_static()?.try_into().ok()
    }

    fn write(&mut self, inner: &[u8]) -> Option<Vec<u8>> {
        let mut message = vec![0; inner.len() + OVERHEAD_MAX];
        let len = self.state.write_message(inner, &mut message).ok()?;
        message.truncate(len);
        Some(message)
    }

    fn read(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let mut inner = vec![0; message.len()];
        let len = self.state.read_message(message, &mut inner).ok()?;
        inner.truncate(len);
        Some(inner)
    }
}

/// snow's own primitives, with randomness that was passed in.
struct Resolver {
    entropy: Zeroizing<[u8; 32]>,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(OneDraw(Some(self.entropy.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Entropy for one ephemeral key; nothing else of a handshake is drawn.
struct OneDraw(Option<Zeroizing<[u8; 32]>>);

impl Random for OneDraw {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let entropy = self.0.take().filter(|entropy| entropy.len() == dest.len());
        dest.copy_from_slice(entropy.ok_or(Error::Rng)?.as_slice());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agree(ask: &Credentials, grant: &Credentials) -> Option<(Secrets, Option<[u8; 32]>)> {
        let (mut asking, first) = Agreement::ask(ask, [1; 32], b"cookie", b"ask")?;
        // Without credentials the first message is in clear.
        let open = [ask, grant].iter().all(|c| matches!(c, Credentials::Anonymous));
        assert_eq!(Agreement::take(grant, [2; 32], b"another", &first).is_some(), open);
        let (mut granting, inner) = Agreement::take(grant, [2; 32], b"cookie", &first)?;
        assert_eq!(inner, b"ask");
        let mut second = granting.answer(b"grant")?;
        second[3] ^= 1;
        assert_eq!(asking.finish(&second), None);
        second[3] ^= 1;
        assert_eq!(asking.finish(&second)?, b"grant");
        assert_eq!(asking.secrets(), granting.secrets());
        Some((asking.secrets(), granting.peer_key()))
    }

    #[test]
    fn both_ends_find_the_same_secrets() {
        let (asks, grants) = ([7; 32], [8; 32]);
        let known =
            Credentials::Static { private: asks, peer: Some(Credentials::public_key(grants)) };
        let knows = Credentials::Static { private: grants, peer: None };
        assert_eq!(agree(&known, &knows).unwrap().1, Some(Credentials::public_key(asks)));
        let key = Credentials::PreShared([9; 32]);
        assert!(agree(&key, &key).is_some());
        let (secrets, peer) = agree(&Credentials::Anonymous, &Credentials::Anonymous).unwrap();
        assert_ne!(secrets[0], secrets[1]);
        assert_eq!(peer, None);
    }

    #[test]
    fn strangers_find_none() {
        let key = Credentials::PreShared([9; 32]);
        assert!(agree(&key, &Credentials::PreShared([8; 32])).is_none());
        assert!(agree(&key, &Credentials::Anonymous).is_none());
        assert!(agree(&Credentials::Anonymous, &key).is_none());
        let wrong =
            Credentials::Static { private: [7; 32], peer: Some(Credentials::public_key([1; 32])) };
        let knows = Credentials::Static { private: [8; 32], peer: None };
        assert!(agree(&wrong, &knows).is_none());
    }
}
