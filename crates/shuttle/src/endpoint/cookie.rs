//! Address-validation cookies: a Request that returns one comes from an address at which its sender
//! receives (S-18).
//!
//! Invariant: no state is kept for a cookie. A secret makes cookies for 8 s and verifies them for 8
//! s more.

use std::hash::{Hash, Hasher};

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24x128};

use super::Asker;
use crate::csprng::Csprng;

/// Lifetime of a secret for making cookies, 8 s: twice the longest interval between Requests.
const SECRET_NS: u64 = 8_000_000_000;
/// Longest lifetime of a cookie, in nanoseconds.
pub(super) const LIFE_NS: u64 = 2 * SECRET_NS;

/// A cookie on the wire: a truncated SipHash pair.
pub(super) type Cookie = [u8; 16];

/// Maker and verifier of cookies.
pub(super) struct Cookies {
    /// Current secret, and the previous one.
    secrets: [[u64; 2]; 2],
    turn_at_ns: u64,
}

impl Cookies {
    pub(super) fn new(csprng: &mut Csprng) -> Self {
        Self { secrets: [secret(csprng), secret(csprng)], turn_at_ns: 0 }
    }

    /// Cookie for `asker`.
    pub(super) fn make(&mut self, now_ns: u64, asker: &Asker, csprng: &mut Csprng) -> Cookie {
        self.turn(now_ns, csprng);
        mac(self.secrets[0], asker)
    }

    /// Whether `cookie` was made for `asker` by one of the two secrets.
    pub(super) fn is_right(
        &mut self,
        now_ns: u64,
        asker: &Asker,
        cookie: &[u8],
        csprng: &mut Csprng,
    ) -> bool {
        self.turn(now_ns, csprng);
        self.secrets.iter().any(|secret| mac(*secret, asker) == cookie)
    }

    /// Invalidates all cookies made before.
    pub(super) fn forget(&mut self, csprng: &mut Csprng) {
        self.secrets = [secret(csprng), secret(csprng)];
    }

    fn turn(&mut self, now_ns: u64, csprng: &mut Csprng) {
        if now_ns < self.turn_at_ns {
            return;
        }
        let long_ago = now_ns - self.turn_at_ns >= SECRET_NS;
        let before = if long_ago { secret(csprng) } else { self.secrets[0] };
        self.secrets = [secret(csprng), before];
        let from_ns = if long_ago { now_ns } else { self.turn_at_ns };
        self.turn_at_ns = from_ns.saturating_add(SECRET_NS);
    }
}

/// A random SipHash key.
pub(super) fn secret(csprng: &mut Csprng) -> [u64; 2] {
    let [first, second, ..] = csprng.next_words();
    [first, second]
}

fn mac(secret: [u64; 2], asker: &Asker) -> Cookie {
    let mut hasher = SipHasher24x128::new_with_keys(secret[0], secret[1]);
    asker.hash(&mut hasher);
    hasher.finish128().as_bytes()
}

/// Keyed hash of `asker`: without the secret, collisions cannot be found.
pub(super) fn name(secret: [u64; 2], asker: &Asker) -> u64 {
    let mut hasher = SipHasher24::new_with_keys(secret[0], secret[1]);
    asker.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use weft_wire::shuttle::ConnectionId;

    use super::*;

    fn asker(port: u16, cid: u32, nonce: u64) -> Asker {
        Asker { remote: ([10, 0, 0, 1], port).into(), cid: ConnectionId(cid), nonce }
    }

    #[test]
    fn a_cookie_is_for_one_asker_and_for_a_while() {
        let mut csprng = Csprng::new([3; 32]);
        let mut cookies = Cookies::new(&mut csprng);
        let (now_ns, who) = (77 * SECRET_NS, asker(1, 2, 3));
        let cookie = cookies.make(now_ns, &who, &mut csprng);
        let mut right =
            |now_ns, who: &Asker, cookie: &[u8]| cookies.is_right(now_ns, who, cookie, &mut csprng);
        for other in [asker(2, 2, 3), asker(1, 3, 3), asker(1, 2, 4)] {
            assert!(!right(now_ns, &other, &cookie));
        }
        for bit in 0..128 {
            let mut flipped = cookie;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(!right(now_ns, &who, &flipped));
        }
        assert!(!right(now_ns, &who, &[]) && !right(now_ns, &who, &cookie[..15]));
        assert!(right(now_ns, &who, &cookie));
        assert!(right(now_ns + 2 * SECRET_NS - 1, &who, &cookie));
        assert!(!right(now_ns + 2 * SECRET_NS, &who, &cookie));
    }

    #[test]
    fn secrets_of_long_ago_are_gone() {
        let mut csprng = Csprng::new([3; 32]);
        let mut cookies = Cookies::new(&mut csprng);
        let who = asker(1, 2, 3);
        let cookie = cookies.make(0, &who, &mut csprng);
        assert!(!cookies.is_right(9 * SECRET_NS, &who, &cookie, &mut csprng));
    }
}
