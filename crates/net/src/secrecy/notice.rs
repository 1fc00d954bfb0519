//! Notices: a receiver of datagrams tells a sender under another key why it takes nothing, since a
//! datagram has no handshake in which the two would find out.
//!
//! Invariant: strangers hear nothing at all. Answered is this machine, hosts that the application
//! itself sends to, and who names the queue pair with its queue key. A notice is never longer than
//! what it answers, and one source is answered once in [`PAUSE`] at most, whatever it sends; so
//! nothing is amplified. Whoever gets one believes nothing because of it: it names a datagram of
//! the receiver's own, and a line is told.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_rnic::shuttle::Unopened;
use weft_rnic::wire::datagram::{Dropped, Notice};
use weft_sync::Mutex;

use super::{Refused, Secrecy};
use crate::report;

/// One source is answered once in this time.
const PAUSE: Duration = Duration::from_secs(1);
/// Sources that are answered in that time.
const SOURCES_MAX: usize = 256;

/// Hosts that are remembered as destinations.
const DESTINATIONS_MAX: usize = 4096;

/// Whom the application sends datagrams to, and who was answered.
#[derive(Default)]
pub(super) struct Acquaintances {
    /// Hosts that the application has an address handle for, or had.
    destinations: Mutex<HashSet<IpAddr>>,
    answered: Mutex<Answered>,
}

impl Secrecy {
    /// The application means to send datagrams to `peer`, which is told from now on if its own are
    /// dropped.
    pub fn add_destination(&self, peer: IpAddr) {
        let mut destinations = self.acquaintances.destinations.lock();
        if destinations.len() < DESTINATIONS_MAX {
            destinations.insert(peer.to_canonical());
        }
    }

    /// Whether `peer` is a host that the application sends to.
    pub fn is_destination(&self, peer: IpAddr) -> bool {
        self.acquaintances.destinations.lock().contains(&peer.to_canonical())
    }

    /// The notice about `datagram`, which came from `peer`, no stranger, and is dropped because of
    /// `why`, if it is to be answered now.
    pub fn notice(&self, datagram: &[u8], why: Refused, peer: IpAddr) -> Option<Notice> {
        let notice = Notice::about(datagram, dropped(why)?)?;
        let mut answered = self.acquaintances.answered.lock();
        answered.admits(peer, clock::now()).then_some(notice)
    }

    /// Why a datagram that does not open is dropped.
    pub fn why_unopened(&self, why: Unopened) -> Option<Refused> {
        Refused::of_datagram(why, self.has_key())
    }

    /// Says why `peer` takes no datagrams of this host, if that can be true.
    pub fn report_notice(&self, notice: Notice, peer: IpAddr) {
        if let Some(why) = refused(notice.why, self.has_key()) {
            self.tell_of_stranger(why, peer);
        }
    }
}

/// What the peer is told of a reason that is this host's.
fn dropped(why: Refused) -> Option<Dropped> {
    Some(match why {
        Refused::OtherKey => Dropped::OtherKey,
        Refused::KeyMissing => Dropped::NoKey,
        Refused::PeerWithoutKey => Dropped::Clear,
        Refused::ClearText => Dropped::ClearText,
        Refused::OtherSeal => Dropped::Version,
        _ => return None,
    })
}

/// The same reason as it is the peer's; `None` if it cannot be one, for a host that has a key or
/// has none.
fn refused(why: Dropped, keyed: bool) -> Option<Refused> {
    Some(match (why, keyed) {
        (Dropped::OtherKey, true) => Refused::OtherKey,
        (Dropped::NoKey, true) => Refused::PeerWithoutKey,
        (Dropped::Version, true) => Refused::OtherSeal,
        (Dropped::Clear, false) => Refused::KeyMissing,
        (Dropped::ClearText, false) => Refused::PeerRefusesClearText,
        _ => return None,
    })
}

/// Who was answered when.
#[derive(Default)]
struct Answered(HashMap<IpAddr, Moment>);

impl Answered {
    fn admits(&mut self, peer: IpAddr, now: Moment) -> bool {
        let source = report::source_of(peer);
        let is_recent = |at: &Moment| now < *at + PAUSE;
        if self.0.get(&source).is_some_and(is_recent) {
            return false;
        }
        if self.0.len() >= SOURCES_MAX {
            self.0.retain(|_, at| is_recent(at));
        }
        let room = self.0.len() < SOURCES_MAX;
        if room {
            self.0.insert(source, now);
        }
        room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_answered_once_in_a_while_and_many_are_bounded() {
        let (mut answered, now) = (Answered::default(), clock::now());
        let ip = |host: u32| IpAddr::V4(host.into());
        let first = (0..3000).filter(|turn| answered.admits(ip(turn % 1000), now)).count();
        assert_eq!(first, SOURCES_MAX);
        assert!(!answered.admits(ip(0), now + PAUSE / 2));
        assert!(answered.admits(ip(0), now + PAUSE) && !answered.admits(ip(0), now + PAUSE));
        assert!(answered.admits(ip(5000), now + PAUSE));
        assert_eq!(answered.0.len(), 2);
    }

    #[test]
    fn each_end_is_told_its_half_of_a_reason() {
        for (here, keyed, there) in [
            (Refused::OtherKey, true, Some(Refused::OtherKey)),
            (Refused::KeyMissing, true, Some(Refused::PeerWithoutKey)),
            (Refused::PeerWithoutKey, false, Some(Refused::KeyMissing)),
            (Refused::ClearText, false, Some(Refused::PeerRefusesClearText)),
            (Refused::PeerWithoutKey, true, None),
            (Refused::OtherKey, false, None),
        ] {
            let why = dropped(here).unwrap();
            assert_eq!(refused(why, keyed), there, "{here:?}");
        }
        assert_eq!(dropped(Refused::Untimely), None);
    }
}
