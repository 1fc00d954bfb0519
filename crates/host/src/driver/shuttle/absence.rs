//! Peers that are not there, or that nothing can be agreed on with: how long that is doubted, and
//! what becomes of the requests that wait for them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use weft_net::silence::{Awaited, Silence};
use weft_os::clock::{self, Moment, ns_at};
use weft_rnic::RetryLimits;
use weft_rnic::shuttle::{ConnectionEnd, Refusal};
use weft_rnic::wire::shuttle::PathId;
use weft_verbs::QpState;

use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::phase::{Phase, PhaseChange};
use crate::driver::transport::Core;
use crate::driver::watcher::Answer;

/// A refusal is believed if nothing better has come after this.
pub(super) const DOUBT: Duration = Duration::from_millis(300);
/// A peer whose host seems to say that nobody is there is asked so often for a sign of life.
const ASK_PAUSE: Duration = Duration::from_millis(200);
/// Without one it is over after this long. An attempt is asked for no longer once the peer's host
/// has not said it for this long.
const UNANSWERED: Duration = Duration::from_secs(2);
/// The same where the path is long.
const UNANSWERED_FAR: Duration = Duration::from_secs(10);
/// Round trips of this machine and its neighbours are shorter.
const NEAR_NS: u64 = 1_000_000;

/// Nobody seems to be there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Absence {
    since: Moment,
    /// When the peer's host said so last.
    said_at: Moment,
    /// When the peer is to be asked.
    pub(super) asks_at: Moment,
    /// For how long the peer must have been silent, if its host does not say it.
    believed_after: Option<Duration>,
}

impl Absence {
    fn new(now: Moment, believed_after: Option<Duration>) -> Self {
        Self { since: now, said_at: now, asks_at: now, believed_after }
    }
}

impl ShuttleSocket {
    /// The peer's host seems to say that nobody is there. Anybody can make such a message (ICMP has
    /// no proof of its sender), so it is a reason to ask the peer, and the peer's silence is what
    /// counts; under a key it is for the connection's own times to end it. A Request that arrived
    /// is answered when the peer's application likes, so its silence says nothing: of an attempt
    /// the host must say all the time that nobody is there.
    pub(super) fn handle_refusal(&mut self, core: &mut Core, now: Moment) {
        if let Some(absence) = &mut self.absence {
            absence.said_at = now;
        } else {
            self.absence = Some(Absence::new(now, None));
            self.look_after_absence(core, now);
        }
    }

    /// The lane was closed, which only the peer and its kernel can do, and no Close has come. Its
    /// requests fail as late as those to a peer whose host says that nobody is there.
    pub(super) fn handle_lane_lost(&mut self, core: &mut Core, now: Moment) {
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        if shuttle.end().is_none() {
            shuttle.handle_lane_lost(ns_at(now));
            self.absence = Some(Absence::new(now, Some(UNANSWERED)));
            self.look_after_absence(core, now);
        }
    }

    /// Asks a peer that seems to be gone, and believes it when nothing was heard for long enough.
    pub(super) fn look_after_absence(&mut self, core: &mut Core, now: Moment) {
        let counts_after = absence_counts_after(core);
        let established = core.phase != Phase::Connecting;
        let (Some(absence), Some(shuttle)) = (&mut self.absence, shuttle_of_mut(core)) else {
            return;
        };
        if absence.asks_at > now {
            return;
        }
        let connection = shuttle.connection();
        let must_be_said = connection.is_asking() && connection.has_heard();
        if must_be_said && now >= absence.said_at + UNANSWERED {
            self.absence = None;
            return;
        }
        absence.asks_at = now + ASK_PAUSE;
        let until = if must_be_said { absence.said_at } else { now };
        let after = absence.believed_after.or(counts_after);
        if after.is_none_or(|after| until < absence.since + after) {
            shuttle.connection_mut().ask();
        } else if established {
            shuttle.handle_unreachable(ns_at(now));
        } else if let Some(hook) = &mut self.hook {
            hook.answer(Answer::Nobody);
            core.phase = core.phase.after(PhaseChange::Gone);
        }
    }

    /// Requests that a peer never answers fail, as they would on a wire.
    pub(super) fn look_after_retries(&mut self, core: &mut Core, now: Moment) {
        if core.phase != Phase::Connecting || core.qp.sq().is_idle() {
            self.gives_up_at = None;
            return;
        }
        let retry_limits =
            core.requester.map_or(RetryLimits::default(), |(_, retry_limits)| retry_limits);
        let Some(limit_ns) = retry_limits.limit_ns(None) else { return };
        let at = *self.gives_up_at.get_or_insert(now + Duration::from_nanos(limit_ns));
        if at <= now {
            weft_rnic::give_up(&core.qp);
            self.gives_up_at = None;
            if core.qp.state() == QpState::Err {
                self.close(core, now);
            }
        }
    }

    /// Ends that cannot agree on how to protect what they send are told so, and give up.
    pub(super) fn heed_refusal(&mut self, core: &mut Core, now: Moment) {
        if let Some(shuttle) = shuttle_of(core) {
            let doubt = |why| match why {
                // Shuttle has waited already (S-19).
                Refusal::Stranger => (now, why),
                // rdma-cm tells the application at once.
                _ if self.hook.is_some() => (now, why),
                _ => (now + DOUBT, why),
            };
            let refusal = shuttle.end().and_then(ConnectionEnd::refusal);
            self.doubt = refusal.map(|why| self.doubt.unwrap_or(doubt(why)));
        }
        let Some((_, why)) = self.doubt.filter(|(believed, _)| *believed <= now) else { return };
        self.silence = None;
        if core.qp.state() != QpState::Err {
            core.host.secrecy().report(why, peer_of(core));
            weft_rnic::give_up(&core.qp);
            self.close(core, now);
        }
    }

    /// Once the application wants to send, the peer is waited for, unless it is known already that
    /// nothing can be agreed on with it.
    pub(super) fn await_peer(&mut self, core: &Core) {
        let begins = core.requester.is_some() && core.phase == Phase::Connecting;
        if begins && self.silence.is_none() && self.doubt.is_none() {
            self.begin_silence(core);
        }
    }

    #[cfg(test)]
    pub fn awaits_peer(&self) -> bool {
        self.silence.is_some()
    }

    /// Mentions a peer that is silent; one that has answered, if only that it takes Requests, is
    /// there, and its application may take its time.
    pub(super) fn look_after_silence(&mut self, core: &Core, now: Moment) {
        let has_answered = shuttle_of(core).is_some_and(|s| s.connection().has_heard());
        match &mut self.silence {
            Some(silence) if has_answered => silence.end(),
            Some(silence) => silence.look(now),
            None => {}
        }
    }

    /// From now on the peer is waited for.
    pub fn begin_silence(&mut self, core: &Core) {
        let here = self.port.number();
        let awaited = match shuttle_of(core) {
            Some(shuttle) => Awaited::Answer { peer: shuttle.connection().route().remote, here },
            None => Awaited::Request { peer: peer_of(core), here },
        };
        self.silence = Some(Silence::new(awaited, clock::now()));
    }
}

/// How long a peer that seems to be gone must have been silent, if that counts at all.
fn absence_counts_after(core: &Core) -> Option<Duration> {
    let connection = shuttle_of(core)?.connection();
    // The round trip of an attempt is not known yet.
    let near = || {
        connection.is_asking() || connection.rtt(PathId(0)).is_some_and(|rtt| rtt.min_ns < NEAR_NS)
    };
    match (connection.has_heard(), core.host.secrecy().has_key()) {
        (false, false) => Some(Duration::ZERO),
        (false, true) => Some(DOUBT),
        (true, false) => Some(if near() { UNANSWERED } else { UNANSWERED_FAR }),
        (true, true) => None,
    }
}

/// The host of the peer.
fn peer_of(core: &Core) -> IpAddr {
    match shuttle_of(core) {
        Some(shuttle) => shuttle.connection().route().remote.ip(),
        None => Ipv6Addr::from(core.qp.attrs().path.dgid).to_canonical(),
    }
}

#[cfg(test)]
mod tests;
