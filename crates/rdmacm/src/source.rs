//! What the reactor calls an id for: readiness of the sockets that its stage owns, and the end of
//! the stage's time.

use weft_os::clock::{self, Moment};
use weft_reactor::{Pollable, Readiness};

use crate::config;
use crate::id::{CmId, IdStage};
use crate::link::hang_up;

impl Pollable for CmId {
    fn ready(&self, _: Readiness) {
        let mut inner = self.lock();
        match &inner.stage {
            IdStage::Listening(_) => self.accept_streams(&mut inner),
            IdStage::Probing(_) => self.probed(&mut inner),
            IdStage::Dialing(_) => {
                let handover = self.advance(&mut inner);
                drop(inner);
                if let Some(handover) = handover {
                    self.link_dialed(handover);
                }
            }
            _ => {}
        }
    }

    fn timeout(&self, now: Moment) {
        let mut inner = self.lock();
        match &mut inner.stage {
            IdStage::Dialing(attempt) => attempt.look(now),
            IdStage::Listening(_) => self.tell_requests(&mut inner, now),
            _ => {}
        }
        let Some(deadline) = inner.deadline.filter(|deadline| *deadline <= now) else { return };
        // What this process was stopped for the peer may have been, too.
        if let Some(stopped) = clock::stopped_since(deadline, now) {
            return self.limit_time(&mut inner, stopped.min(config::AFTER_STOP));
        }
        inner.deadline = None;
        let left = match &mut inner.stage {
            IdStage::Listening(listener) => {
                listener.arm(true);
                None
            }
            IdStage::Probing(_) => {
                self.probe_again(&mut inner);
                None
            }
            IdStage::Dialing(_) => {
                self.give_up(&mut inner, weft_rnic::cm::Failure::TimedOut);
                None
            }
            IdStage::Refused(_) => {
                self.redial(&mut inner);
                None
            }
            IdStage::Linked => self.give_up_on_peer(&mut inner),
            IdStage::Parting(until) => {
                let until = *until;
                self.part(&mut inner, now, until);
                None
            }
            IdStage::Quiet => {
                inner.machine.handle_timewait_exit();
                self.publish(&mut inner);
                None
            }
            _ => None,
        };
        drop(inner);
        if let Some((qp, held)) = left {
            hang_up(&qp, held);
        }
    }
}
