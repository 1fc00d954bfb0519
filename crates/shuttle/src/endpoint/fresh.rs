//! Requests that need no cookie (S-24): their sender has proved under the pre-shared key when they
//! were made, and for which address.
//!
//! Invariant: a Request is admitted at most once, from whichever address it comes; one that is
//! older than the listener is not admitted.

use core::net::SocketAddr;
use std::collections::VecDeque;

use super::ids::RandomKeys;
use crate::connection::PeerRequest;

/// Age from which a Request needs a cookie, 8 s: twice the longest interval of repetitions.
/// Clocks of synchronised hosts differ by less.
const AGE_MAX_MS: u64 = 8000;
/// Allowed advance of the sender's clock, 1 s. A Request of a fast clock may be older than the
/// listener although its stamp is younger, so the advance is short.
const AHEAD_MAX_MS: u64 = 1000;
/// Most Requests remembered; beyond it newcomers need cookies. 1 MB.
const SEEN_MAX: usize = 16_384;

/// Admission of Requests by their stamp.
pub(super) struct FreshRequests {
    /// Milliseconds since 1970.
    clock: fn() -> u64,
    since_ms: u64,
    /// Latest time of the clock. If the clock is set back, Requests need cookies until it is here
    /// again: what was forgotten must not become new.
    latest_ms: u64,
    /// Nonces admitted, with the time until which they are remembered.
    seen: RandomKeys<u64, ()>,
    order: VecDeque<(u64, u64)>,
}

impl FreshRequests {
    /// Admission from now on. `clock` gives milliseconds since 1970.
    pub(super) fn new(clock: fn() -> u64) -> Self {
        let since_ms = clock();
        let (seen, order) = (RandomKeys::default(), VecDeque::new());
        Self { clock, since_ms, latest_ms: since_ms, seen, order }
    }

    /// Whether `request`, which came to `here`, is new beyond doubt. It is not new a second time.
    pub(super) fn admit(&mut self, request: &PeerRequest, here: SocketAddr) -> bool {
        let Some(stamp) = request.stamp() else { return false };
        let now_ms = self.latest_ms.max((self.clock)());
        self.latest_ms = now_ms;
        self.expire(now_ms);
        let oldest_ms = self.since_ms.max(now_ms.saturating_sub(AGE_MAX_MS));
        let youngest_ms = now_ms.saturating_add(AHEAD_MAX_MS);
        let here = SocketAddr::new(here.ip().to_canonical(), here.port());
        let (_, nonce) = request.identity();
        let fresh = (oldest_ms..=youngest_ms).contains(&stamp.unix_ms)
            && stamp.to == here
            && self.seen.len() < SEEN_MAX
            && self.seen.insert(nonce, ()).is_none();
        if fresh {
            self.order.push_back((stamp.unix_ms.saturating_add(AGE_MAX_MS), nonce));
        }
        fresh
    }

    /// Forgets Requests that are too old by now. The order is that of arrival, so some are kept
    /// longer than they need be.
    fn expire(&mut self, now_ms: u64) {
        while let Some((until_ms, nonce)) = self.order.front().copied()
            && until_ms < now_ms
        {
            self.order.pop_front();
            self.seen.remove(&nonce);
        }
    }
}
