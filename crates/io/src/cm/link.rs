//! Connections: how a stream is handed to its queue pair, and what the queue pair reports back.

use std::net::TcpStream;
use std::sync::{Arc, Weak};
use std::time::Instant;

use weft_rnic::cm::{Close, Depths, Failure, State, Terms};
use weft_rnic::mpa::{Agreed, Role};
use weft_verbs::{Misuse, QpState};

use super::config;
use super::error::Error;
use super::id::{CmId, Inner, Stage};
use crate::context::Personality;
use crate::{Answer, LinkWatcher, Qp, clock};

/// What the queue pair reported while it was taking the stream over.
#[derive(Default)]
pub(super) struct Linking {
    up: bool,
    down: bool,
}

/// A stream whose ends have agreed, for the queue pair to take.
pub(super) struct Handover {
    pub(super) qp: Arc<Qp>,
    pub(super) stream: TcpStream,
    pub(super) agreed: Agreed,
    pub(super) role: Role,
}

/// Carries what a queue pair reports to the id, as long as there is one.
pub(super) struct Watcher(pub(super) Weak<CmId>);

impl LinkWatcher for Watcher {
    fn established(&self) {
        if let Some(id) = self.0.upgrade() {
            id.link_established();
        }
    }

    fn answered(&self, answer: Answer) {
        if let Some(id) = self.0.upgrade() {
            id.link_answered(answer);
        }
    }

    fn disconnected(&self) {
        if let Some(id) = self.0.upgrade() {
            id.link_lost();
        }
    }
}

/// Whether a queue pair could take a stream now.
///
/// # Errors
/// `EINVAL` when it is in the wrong state for it.
pub(super) fn check_ready(qp: &Qp) -> Result<(), Misuse> {
    match qp.state() {
        QpState::Init | QpState::Rtr if !qp.cell.is_attached() => Ok(()),
        _ => Err(Misuse::Invalid("the queue pair is not waiting for a connection")),
    }
}

impl CmId {
    /// Hands the stream to the queue pair. The id must be in [`Stage::Linking`], and not locked.
    ///
    /// # Errors
    /// When the queue pair does not take it; the machine then knows, the application does not yet.
    pub(super) fn link(&self, handover: Handover) -> Result<(), Misuse> {
        let Handover { qp, stream, agreed, role } = handover;
        let watcher = Arc::new(Watcher(self.me()));
        let attached = qp.attach(stream.into(), &agreed, role, watcher);
        let mut inner = self.lock();
        let linking = match std::mem::take(&mut inner.stage) {
            Stage::Linking(linking) => linking,
            // Given up or destroyed meanwhile.
            other => {
                inner.stage = other;
                drop(inner);
                if attached.is_ok() {
                    qp.disconnect();
                }
                return attached;
            }
        };
        if let Err(misuse) = attached {
            inner.machine.handle_failed(Failure::Os(misuse.errno()));
            return Err(misuse);
        }
        inner.stage = Stage::Linked;
        self.report_link(&mut inner, linking, agreed, role);
        Ok(())
    }

    /// As [`CmId::link`], for an attempt of this side: its failure is an event.
    pub(super) fn link_dialed(&self, handover: Handover) {
        if self.link(handover).is_err() {
            self.publish(&mut self.lock());
        }
    }

    fn report_link(&self, inner: &mut Inner, linking: Linking, agreed: Agreed, role: Role) {
        inner.machine.handle_agreed(Depths { ird: agreed.ird, ord: agreed.ord });
        match role {
            Role::Initiator => {
                inner.machine.handle_link_up(agreed.private_data, Terms::default());
            }
            Role::Responder if agreed.rtr.is_none() || linking.up => {
                inner.machine.handle_link_up(Vec::new(), Terms::default());
            }
            Role::Responder => self.limit_time(inner, config::FIRST_MESSAGE_TIMEOUT),
        }
        if linking.down {
            inner.machine.handle_link_down();
        }
        self.publish(inner);
    }

    fn link_established(&self) {
        let mut inner = self.lock();
        match &mut inner.stage {
            Stage::Linking(linking) => linking.up = true,
            Stage::Linked => {
                inner.deadline = None;
                inner.machine.handle_link_up(Vec::new(), Terms::default());
                self.publish(&mut inner);
            }
            _ => {}
        }
    }

    fn link_lost(&self) {
        let mut inner = self.lock();
        match &mut inner.stage {
            Stage::Linking(linking) => linking.down = true,
            Stage::Linked => {
                let now = clock::now();
                self.part(&mut inner, now, now + config::SIGHT_MAX);
            }
            _ => {}
        }
    }

    /// The connection is over. Programs destroy the queue pair when they hear of it, and then what
    /// they have not polled is gone. An adapter's packets are so much faster than the messages of
    /// its connection manager that they never notice; here both come together, so that what
    /// succeeded before is to be seen first.
    pub(super) fn part(&self, inner: &mut Inner, now: Instant, until: Instant) {
        let qp = inner.managed.as_ref().unwrap_or(&inner.qp).upgrade();
        if now < until && qp.is_some_and(|qp| qp.has_unseen()) {
            inner.stage = Stage::Parting(until);
            self.limit_time(inner, config::SIGHT_LOOK);
            return;
        }
        inner.leave_stage();
        inner.machine.handle_link_down();
        self.publish(inner);
        if inner.device == Some(Personality::Roce) {
            self.limit_time(inner, config::TIMEWAIT);
        }
    }

    /// Ends the connection gracefully, or gives up the attempt. The outcome is an event.
    ///
    /// # Errors
    /// The id never had a peer.
    pub fn disconnect(&self) -> Result<(), Error> {
        let mut inner = self.lock();
        let (stage, qp) = match inner.machine.disconnect()? {
            Close::Link => (Stage::Quiet, inner.qp.upgrade()),
            Close::Attempt => {
                let stage = inner.leave_stage();
                let linked = matches!(stage, Stage::Linked);
                (stage, inner.qp.upgrade().filter(|_| linked))
            }
            Close::Nothing => (Stage::Quiet, None),
        };
        // An adapter's queue pair outlives its connection until the program disconnects too.
        let left = inner.managed.as_ref().and_then(Weak::upgrade);
        self.publish(&mut inner);
        drop(inner);
        stage.close();
        if let Some(qp) = qp {
            qp.disconnect();
        }
        if let Some(qp) = left {
            qp.disconnect();
            qp.inner().fail(None);
        }
        Ok(())
    }

    /// The peer has not confirmed the connection in time.
    pub(super) fn give_up_on_peer(&self, inner: &mut Inner) -> Option<Arc<Qp>> {
        if inner.machine.state() != State::Accepting {
            return None;
        }
        let qp = inner.qp.upgrade();
        self.give_up(inner, Failure::TimedOut);
        qp
    }
}
