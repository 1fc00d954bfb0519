//! Peers that are not there, or that nothing can be agreed on with: how long that is doubted, and
//! what becomes of the requests that wait for them.

use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use weft_rnic::Patience;
use weft_rnic::shuttle::{End, Refusal};
use weft_verbs::QpState;

use super::DatagramDrive;
use super::admission::Stage;
use crate::clock::{self, ns_at};
use crate::drive::Answer;
use crate::secrecy::Secrecy;
use crate::silence::{Awaited, Silence};

/// A refusal is believed if nothing better has come after this.
pub(super) const DOUBT: Duration = Duration::from_millis(300);
/// An established connection is over when its peer's host has said so often, for so long, that
/// nobody is there.
const REFUSALS: u32 = 3;
const REFUSED_FOR: Duration = Duration::from_millis(500);

impl DatagramDrive {
    /// The peer's host has said that nobody is there. Once may be a mistake, or the work of who
    /// guessed the ports; so it counts if it is said again for a while and nothing else is heard.
    pub(super) fn handle_refusal(&mut self, now: Instant) {
        let (since, count) = self.refused.unwrap_or((now, 0));
        self.refused = Some((since, count + 1));
        let Stage::Bound(association) = &mut self.stage else { return };
        if self.established {
            if count >= REFUSALS && now.duration_since(since) >= REFUSED_FOR {
                association.handle_unreachable(ns_at(now));
            }
        } else if let Some(mandate) = &mut self.mandate {
            mandate.answer(Answer::Nobody);
            self.closed = true;
        }
    }

    /// Requests that a peer never answers fail, as they would on a wire.
    pub(super) fn look_after_patience(&mut self, now: Instant) {
        if self.established || self.qp.sq().is_idle() {
            self.gives_up_at = None;
            return;
        }
        let patience = self.requester.map_or(Patience::default(), |(_, patience)| patience);
        let Some(limit_ns) = patience.limit_ns(None) else { return };
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
        if let Stage::Bound(association) = &self.stage {
            self.doubt = match association.end() {
                // Shuttle has waited already (S-19).
                Some(End::Stranger) => self.doubt.or(Some((now, Refusal::Stranger))),
                Some(End::NothingInCommon) => {
                    // rdma-cm tells the application at once.
                    let believed = if self.mandate.is_some() { now } else { now + DOUBT };
                    self.doubt.or(Some((believed, Refusal::NothingInCommon)))
                }
                _ => None,
            };
        }
        let Some((_, why)) = self.doubt.filter(|(believed, _)| *believed <= now) else { return };
        self.silence = None;
        if self.qp.state() != QpState::Err {
            Secrecy::get().report(why, self.peer());
            weft_rnic::give_up(&self.qp);
            self.close(now);
        }
    }

    /// From now on the peer is waited for.
    pub(super) fn begin_silence(&mut self) {
        let here = self.port.number();
        let awaited = match &self.stage {
            Stage::Bound(association) => {
                Awaited::Answer { peer: association.connection().route().remote, here }
            }
            Stage::Awaited => Awaited::Request { peer: self.peer(), here },
        };
        self.silence = Some(Silence::new(awaited, clock::now()));
    }

    /// The host of the peer.
    fn peer(&self) -> IpAddr {
        match &self.stage {
            Stage::Bound(association) => association.connection().route().remote.ip(),
            Stage::Awaited => Ipv6Addr::from(self.qp.attrs().path.dgid).to_canonical(),
        }
    }
}
