//! Peers that are not there, or that nothing can be agreed on with: how long that is doubted, and
//! what becomes of the requests that wait for them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use weft_net::silence::{Awaited, Silence};
use weft_os::clock::{self, ns_at};
use weft_rnic::RetryLimits;
use weft_rnic::shuttle::{End, Refusal};
use weft_rnic::wire::shuttle::PathId;
use weft_verbs::QpState;

use super::DatagramDrive;
use super::admission::Stage;
use crate::drive::Answer;

/// A refusal is believed if nothing better has come after this.
pub(super) const DOUBT: Duration = Duration::from_millis(300);
/// A peer whose host seems to say that nobody is there is asked so often for a sign of life.
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// Without one it is over after this long.
const UNANSWERED: Duration = Duration::from_secs(2);
/// The same where the path is long.
const UNANSWERED_FAR: Duration = Duration::from_secs(10);
/// Round trips of this machine and its neighbours are shorter.
const NEAR_NS: u64 = 1_000_000;

/// The peer's host seems to have said that nobody is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    since: Instant,
    /// When the peer is to be asked.
    pub(super) asks_at: Instant,
}

impl DatagramDrive {
    /// The peer's host seems to say that nobody is there. Anybody can make such a message (ICMP has
    /// no proof of its sender), so it is a reason to ask the peer, and the peer's silence is what
    /// counts; under a key it is for the connection's own times to end it.
    pub(super) fn handle_refusal(&mut self, now: Instant) {
        if self.absence.is_none() {
            self.absence = Some(Absence { since: now, asks_at: now });
            self.look_after_absence(now);
        }
    }

    /// Asks a peer that seems to be gone, and believes it when nothing was heard for long enough.
    pub(super) fn look_after_absence(&mut self, now: Instant) {
        let believed_after = self.absence_counts_after();
        let (Some(absence), Stage::Bound(shuttle)) = (&mut self.absence, &mut self.stage) else {
            return;
        };
        if absence.asks_at > now {
            return;
        }
        absence.asks_at = now + ASK_PAUSE;
        if believed_after.is_none_or(|after| now < absence.since + after) {
            shuttle.connection_mut().ask();
        } else if self.established {
            shuttle.handle_unreachable(ns_at(now));
        } else if let Some(hook) = &mut self.hook {
            hook.answer(Answer::Nobody);
            self.closed = true;
        }
    }

    /// How long a peer that seems to be gone must have been silent, if that counts at all.
    fn absence_counts_after(&self) -> Option<Duration> {
        let Stage::Bound(shuttle) = &self.stage else { return None };
        let connection = shuttle.connection();
        let near = || connection.rtt(PathId(0)).is_some_and(|rtt| rtt.min_ns < NEAR_NS);
        match (connection.has_heard(), crate::Host::get().secrecy().has_key()) {
            (false, false) => Some(Duration::ZERO),
            (false, true) => Some(DOUBT),
            (true, false) => Some(if near() { UNANSWERED } else { UNANSWERED_FAR }),
            (true, true) => None,
        }
    }

    /// Requests that a peer never answers fail, as they would on a wire.
    pub(super) fn look_after_retries(&mut self, now: Instant) {
        if self.established || self.qp.sq().is_idle() {
            self.gives_up_at = None;
            return;
        }
        let retry_limits =
            self.requester.map_or(RetryLimits::default(), |(_, retry_limits)| retry_limits);
        let Some(limit_ns) = retry_limits.limit_ns(None) else { return };
        let at = *self.gives_up_at.get_or_insert(now + Duration::from_nanos(limit_ns));
        if at <= now {
            weft_rnic::give_up(&self.qp);
            self.gives_up_at = None;
            if self.qp.state() == QpState::Err {
                self.close(now);
            }
        }
    }

    /// Ends that cannot agree on how to protect what they send are told so, and give up.
    pub(super) fn heed_refusal(&mut self, now: Instant) {
        if let Stage::Bound(shuttle) = &self.stage {
            let doubt = |why| match why {
                // Shuttle has waited already (S-19).
                Refusal::Stranger => (now, why),
                // rdma-cm tells the application at once.
                _ if self.hook.is_some() => (now, why),
                _ => (now + DOUBT, why),
            };
            let refusal = shuttle.end().and_then(End::refusal);
            self.doubt = refusal.map(|why| self.doubt.unwrap_or(doubt(why)));
        }
        let Some((_, why)) = self.doubt.filter(|(believed, _)| *believed <= now) else { return };
        self.silence = None;
        if self.qp.state() != QpState::Err {
            crate::Host::get().secrecy().report(why, self.peer());
            weft_rnic::give_up(&self.qp);
            self.close(now);
        }
    }

    /// Says nothing of a peer that is silent: whoever waits for it has another way to it, or says
    /// so itself.
    pub fn overlook_silence(&mut self) {
        self.silence = None;
    }

    /// From now on the peer is waited for.
    pub(super) fn begin_silence(&mut self) {
        let here = self.port.number();
        let awaited = match &self.stage {
            Stage::Bound(shuttle) => {
                Awaited::Answer { peer: shuttle.connection().route().remote, here }
            }
            Stage::Awaited => Awaited::Request { peer: self.peer(), here },
        };
        self.silence = Some(Silence::new(awaited, clock::now()));
    }

    /// The host of the peer.
    fn peer(&self) -> IpAddr {
        match &self.stage {
            Stage::Bound(shuttle) => shuttle.connection().route().remote.ip(),
            Stage::Awaited => Ipv6Addr::from(self.qp.attrs().path.dgid).to_canonical(),
        }
    }
}
