//! What the reactor calls an id for: readiness of the sockets that its stage owns, and the end of
//! the stage's time.

use std::time::Instant;

use weft_os::clock;
use weft_reactor::{Readiness, Source};

use crate::config;
use crate::id::{CmId, Stage};

impl Source for CmId {
    fn ready(&self, _: Readiness) {
        let mut inner = self.lock();
        match &inner.stage {
            Stage::Listening(_) => self.accept_streams(&mut inner),
            Stage::Probing(_) => self.probed(&mut inner),
            Stage::Dialing(_) => {
                let handover = self.advance(&mut inner);
                drop(inner);
                if let Some(handover) = handover {
                    self.link_dialed(handover);
                }
            }
            _ => {}
        }
    }

    fn timeout(&self, now: Instant) {
        let mut inner = self.lock();
        if let Stage::Dialing(attempt) = &mut inner.stage {
            attempt.look(now);
        }
        let Some(deadline) = inner.deadline.filter(|deadline| *deadline <= now) else { return };
        // What this process was stopped for the peer may have been, too.
        if let Some(stopped) = clock::stopped_since(deadline, now) {
            return self.limit_time(&mut inner, stopped.min(config::AFTER_STOP));
        }
        inner.deadline = None;
        let qp = match &mut inner.stage {
            Stage::Listening(listener) => {
                listener.arm(true);
                None
            }
            Stage::Probing(_) => {
                self.probe_again(&mut inner);
                None
            }
            Stage::Dialing(_) => {
                self.give_up(&mut inner, weft_rnic::cm::Failure::TimedOut);
                None
            }
            Stage::Refused(_) => {
                self.redial(&mut inner);
                None
            }
            Stage::Linked => self.give_up_on_peer(&mut inner),
            Stage::Parting(until) => {
                let until = *until;
                self.part(&mut inner, now, until);
                None
            }
            Stage::Quiet => {
                inner.machine.handle_timewait_exit();
                self.publish(&mut inner);
                None
            }
            _ => None,
        };
        drop(inner);
        if let Some(qp) = qp {
            qp.disconnect();
        }
    }
}
