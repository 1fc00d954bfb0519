//! Replay and address check for the Requests of one expected peer, without an
//! [`Endpoint`](super::Endpoint).
//!
//! Invariant: a Request is admitted once; where cookies are required, one made for another gate is
//! not admitted.

use core::net::SocketAddr;
use std::collections::VecDeque;

use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Hello, HelloKind, REQUEST_MIN};

use super::cookie::Cookies;
use super::{Asker, retry};
use crate::csprng::Csprng;

/// Most admitted Requests remembered: a peer restarts seldom, and a cookie lives 16 s at most.
const KNOWN_MAX: usize = 64;

/// Admission check for Requests.
pub struct Gate {
    csprng: Csprng,
    /// `None` if no cookie is required.
    cookies: Option<Cookies>,
    known: VecDeque<(ConnectionId, u64)>,
}

/// Verdict on a datagram.
#[derive(Debug, PartialEq, Eq)]
pub enum Passage {
    /// It may be parsed as a Request.
    Open,
    /// A Request that was admitted before.
    Known,
    /// A Retry to send back: the sender must validate its address. No state is kept.
    Asked(Vec<u8>),
}

impl Gate {
    /// A gate that requires cookies if `asks`. `seed` is 256 random bits.
    pub fn new(seed: [u8; 32], asks: bool) -> Self {
        let mut csprng = Csprng::new(seed);
        let cookies = asks.then(|| Cookies::new(&mut csprng));
        Self { csprng, cookies, known: VecDeque::new() }
    }

    /// Checks a datagram from `remote`.
    pub fn look(&mut self, now_ns: u64, remote: SocketAddr, datagram: &[u8]) -> Passage {
        let asks = |hello: &Hello<'_>| hello.kind == HelloKind::Request;
        let hello = Hello::parse(datagram).ok().filter(asks);
        let Some(hello) = hello.filter(|_| datagram.len() >= REQUEST_MIN) else {
            return Passage::Open;
        };
        let asker = Asker { remote, cid: hello.from.base(), nonce: hello.nonce };
        if self.known.contains(&(asker.cid, asker.nonce)) {
            return Passage::Known;
        }
        let Some(cookies) = &mut self.cookies else { return Passage::Open };
        if cookies.is_right(now_ns, &asker, hello.cookie, &mut self.csprng) {
            return Passage::Open;
        }
        Passage::Asked(retry(&hello, &cookies.make(now_ns, &asker, &mut self.csprng)))
    }

    /// Admits the Request with this identity, for the first and last time.
    pub fn remember(&mut self, identity: (ConnectionId, u64)) {
        self.known.push_back(identity);
        if self.known.len() > KNOWN_MAX {
            self.known.pop_front();
            // Invalidated cookies keep forgotten Requests out.
            if let Some(cookies) = &mut self.cookies {
                cookies.forget(&mut self.csprng);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_NS: u64 = 1_000_000_000;

    fn request(nonce: u64, cookie: &[u8]) -> Vec<u8> {
        let hello = Hello::new(HelloKind::Request);
        let hello = Hello { from: ConnectionId(0x700), nonce, cookie, ..hello };
        let octets = hello.encode();
        assert!(octets.len() >= REQUEST_MIN);
        octets
    }

    fn remote() -> SocketAddr {
        ([192, 0, 2, 1], 7).into()
    }

    /// The Request again, with the cookie that it was asked for.
    fn asked(gate: &mut Gate, nonce: u64) -> Vec<u8> {
        let Passage::Asked(answer) = gate.look(NOW_NS, remote(), &request(nonce, &[])) else {
            panic!("nobody asks for a cookie");
        };
        request(nonce, Hello::parse(&answer).unwrap().cookie)
    }

    #[test]
    fn who_shows_the_cookie_comes_in_once() {
        let mut gate = Gate::new([1; 32], true);
        let first = asked(&mut gate, 1);
        assert_eq!(gate.look(NOW_NS, remote(), &first), Passage::Open);
        gate.remember((ConnectionId(0x700), 1));
        let second = asked(&mut gate, 2);
        gate.remember((ConnectionId(0x700), 2));
        for datagram in [&first, &second] {
            assert_eq!(gate.look(NOW_NS, remote(), datagram), Passage::Known);
        }
    }

    #[test]
    fn a_cookie_of_another_gate_or_of_one_that_has_forgotten_is_worth_nothing() {
        let mut gate = Gate::new([1; 32], true);
        let record = asked(&mut gate, 1);
        let is_asked =
            |gate: &mut Gate| matches!(gate.look(NOW_NS, remote(), &record), Passage::Asked(_));
        assert!(is_asked(&mut Gate::new([2; 32], true)));
        gate.remember((ConnectionId(0x700), 1));
        for nonce in 2..=KNOWN_MAX as u64 + 1 {
            assert!(!is_asked(&mut gate));
            gate.remember((ConnectionId(0x700), nonce));
        }
        assert!(is_asked(&mut gate));
    }

    #[test]
    fn without_cookies_it_only_remembers() {
        let mut gate = Gate::new([1; 32], false);
        assert_eq!(gate.look(NOW_NS, remote(), &request(1, &[])), Passage::Open);
        gate.remember((ConnectionId(0x700), 1));
        assert_eq!(gate.look(NOW_NS, remote(), &request(1, &[])), Passage::Known);
        assert_eq!(gate.look(NOW_NS, remote(), b"something else"), Passage::Open);
    }
}
