//! Peers whose path is so short that the kernel's TCP serves them better than SDP does.
//!
//! SDP is for paths that are long or lose. On a short one TCP has sent again what was lost within
//! milliseconds, and SDP costs a copy and a thread on each side. So where nothing asks for SDP and
//! there is no key, a connect that TCP completes within [`NEAR_RTT`] stays with TCP, and the next
//! ones to that host are the kernel's alone for [`NEAR_FOR`].
//!
//! Order of calls: [`NearPeers::note`] once the kernel has measured the path, then
//! [`NearPeers::has`].

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use weft_os::clock::Moment;
use weft_sync::Mutex;

/// Round trips of short paths take less, as measured by the kernel between SYN and SYN-ACK.
pub const NEAR_RTT: Duration = Duration::from_millis(2);
/// Why a connection goes by TCP, for people.
pub const NEAR: &str = "a round trip takes less than 2 ms, where TCP is faster; a rule `use sdp` \
    asks for SDP";
/// For so long the path to a host is believed to stay short. Then a connect measures it again.
const NEAR_FOR: Duration = Duration::from_secs(10);
/// Hosts that are remembered.
const PEERS_MAX: usize = 1024;

/// What TCP is for, beside SDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpUse {
    /// Nothing: the connect succeeds by SDP or fails.
    Forbidden,
    /// Peers that do not speak SDP.
    Fallback,
    /// Those, and peers that are near.
    WhereNear,
}

/// The hosts that were found near lately.
#[derive(Default)]
pub struct NearPeers(Mutex<HashMap<IpAddr, Moment>>);

impl NearPeers {
    /// The path to `peer` was found to be short at `now`.
    pub fn note(&self, peer: IpAddr, now: Moment) {
        let mut peers = self.0.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, found| *found + NEAR_FOR > now);
        }
        if peers.len() < PEERS_MAX || peers.contains_key(&peer) {
            peers.insert(peer, now);
        }
    }

    /// Whether `peer` was found near not long before `now`.
    pub fn has(&self, peer: IpAddr, now: Moment) -> bool {
        self.0.lock().get(&peer).is_some_and(|found| *found + NEAR_FOR > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_near_for_a_while() {
        let (peers, now) = (NearPeers::default(), weft_os::clock::now());
        let peer = IpAddr::from([192, 0, 2, 1]);
        assert!(!peers.has(peer, now));
        peers.note(peer, now);
        assert!(peers.has(peer, now + NEAR_FOR / 2) && !peers.has(peer, now + NEAR_FOR));
    }

    #[test]
    fn those_that_were_near_long_ago_make_room() {
        let (peers, now) = (NearPeers::default(), weft_os::clock::now());
        let peer = |number: usize| IpAddr::from((number as u128).to_be_bytes());
        (0..=PEERS_MAX).for_each(|number| peers.note(peer(number), now));
        assert!(peers.has(peer(0), now) && !peers.has(peer(PEERS_MAX), now));
        peers.note(peer(PEERS_MAX), now + NEAR_FOR);
        assert!(peers.has(peer(PEERS_MAX), now + NEAR_FOR));
        assert_eq!(peers.0.lock().len(), 1);
    }
}
