//! Connections: how a stream is handed to its queue pair, and what the queue pair reports back.

use std::sync::{Arc, Weak};

use weft_host::managed::Answer;
use weft_host::{Attachment, DeviceKind, HostQp, LinkWatcher};
use weft_net::stream::MpaCarrier;
use weft_os::clock::{self, Moment};
use weft_rnic::cm::{Close, CmCommand, CmState, Depths, Failure, QpTerms};
use weft_rnic::mpa::{Agreed, MpaRole};
use weft_verbs::{Misuse, QpState};

use crate::config;
use crate::device::PortSpace;
use crate::error::CmError;
use crate::id::{CmId, IdInner, IdStage};

/// A stream whose ends have agreed, for the queue pair to take.
pub(crate) struct Handover {
    pub(crate) qp: Arc<HostQp>,
    pub(crate) stream: MpaCarrier,
    pub(crate) agreed: Agreed,
    pub(crate) role: MpaRole,
}

/// Carries what a queue pair reports to the id, as long as there is one.
pub(crate) struct Watcher(pub(crate) Weak<CmId>);

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
pub(crate) fn check_ready(qp: &HostQp) -> Result<(), Misuse> {
    match qp.state() {
        QpState::Init | QpState::Rtr if !qp.is_connected() => Ok(()),
        _ => Err(Misuse::Invalid("the queue pair is not waiting for a connection")),
    }
}

/// Ends a connection that a queue pair `held`, or is about to, whatever it has held since.
pub(crate) fn hang_up(qp: &HostQp, held: Option<Attachment>) {
    match held {
        Some(held) => qp.disconnect_only(held),
        None => qp.disconnect(),
    }
}

impl CmId {
    /// The queue pair is to take over the stream, about whose ends this is `agreed`. From now on
    /// what becomes of the connection is told by its [`Watcher`], in order, and by nobody else.
    pub(crate) fn begin_link(&self, inner: &mut IdInner, agreed: &mut Agreed, role: MpaRole) {
        inner.stage = IdStage::Linked;
        inner.machine.handle_agreed(Depths { ird: agreed.ird, ord: agreed.ord });
        match role {
            MpaRole::Initiator => inner.words = std::mem::take(&mut agreed.private_data),
            MpaRole::Responder if agreed.rtr.is_none() => {}
            MpaRole::Responder => self.limit_time(inner, config::FIRST_MESSAGE_TIMEOUT),
        }
    }

    /// Hands the stream to the queue pair, after [`CmId::begin_link`]. The id must not be locked.
    ///
    /// # Errors
    /// When the queue pair does not take it; the machine then knows, the application does not yet.
    pub(crate) fn link(&self, handover: Handover) -> Result<(), Misuse> {
        let Handover { qp, stream, agreed, role } = handover;
        let watcher = Arc::new(Watcher(self.me()));
        let attached = qp.attach(stream, &agreed, role, watcher);
        let mut inner = self.lock();
        let linked = matches!(inner.stage, IdStage::Linked | IdStage::Parting(_));
        match attached {
            Ok(attachment) if !linked => {
                // Given up or destroyed meanwhile, or over already; and the application may have
                // connected its queue pair anew.
                drop(inner);
                qp.disconnect_only(attachment);
            }
            Err(misuse) if linked => {
                inner.leave_stage();
                inner.machine.handle_failed(Failure::Os(misuse.errno()));
            }
            Ok(attachment) => inner.held = Some(attachment),
            Err(_) => {}
        }
        attached.map(drop)
    }

    /// As [`CmId::link`], for an attempt of this side: its failure is an event.
    pub(crate) fn link_dialed(&self, handover: Handover) {
        if self.link(handover).is_err() {
            self.publish(&mut self.lock());
        }
    }

    fn link_established(&self) {
        let mut inner = self.lock();
        if matches!(inner.stage, IdStage::Linked) {
            inner.deadline = None;
            let words = std::mem::take(&mut inner.words);
            inner.machine.handle_link_up(words, QpTerms::default());
            self.publish(&mut inner);
        }
    }

    fn link_lost(&self) {
        let mut inner = self.lock();
        if matches!(inner.stage, IdStage::Linked) {
            let now = clock::now();
            self.part(&mut inner, now, now + config::SIGHT_MAX);
        }
    }

    /// Takes what has arrived for a connection that was accepted, and returns once all that has
    /// come of it is told.
    pub(crate) fn settle_link(&self) {
        // Who accepts has answered the peer before the queue pair has the stream.
        drop(self.accepting.lock());
        let qp = self.lock().qp.upgrade();
        if let Some(qp) = qp {
            qp.settle();
        }
    }

    /// Whether the connection is over and the program is not told yet.
    pub(crate) fn is_parting(&self) -> bool {
        matches!(self.lock().stage, IdStage::Parting(_))
    }

    /// The connection is over. Programs destroy the queue pair when they hear of it, and then what
    /// they have not polled is gone. An adapter's packets are so much faster than the messages of
    /// its connection manager that they never notice; here both come together, so that what
    /// succeeded before is to be seen first.
    pub(crate) fn part(&self, inner: &mut IdInner, now: Moment, until: Moment) {
        if now < until && inner.unseen() > 0 {
            inner.stage = IdStage::Parting(until);
            self.limit_time(inner, config::SIGHT_LOOK);
            return;
        }
        inner.leave_stage();
        let state = inner.machine.state();
        inner.machine.handle_link_down();
        self.publish(inner);
        match state {
            CmState::Disconnecting => self.begin_timewait(inner),
            CmState::Connected | CmState::Answered => inner.owes_answer = true,
            _ => {}
        }
    }

    /// Both sides have ended the connection. As long as this one has not, an adapter's peer has no
    /// answer to its end, and the queue pair is in use.
    fn begin_timewait(&self, inner: &mut IdInner) {
        if inner.device == Some(DeviceKind::Roce) {
            self.limit_time(inner, config::TIMEWAIT);
        }
    }

    /// Whether the end of the connection, which is the next event, is kept from an application that
    /// looks and does not sleep: it was away since before the end, or polls between its looks, and
    /// has yet to see what succeeded. One that has polled nothing since its last look is told.
    pub(crate) fn keeps_end_back(&self) -> bool {
        let mut inner = self.lock();
        let unseen = inner.unseen();
        let before = inner.unseen_before.replace(unseen);
        unseen > 0 && before.is_none_or(|before| unseen < before)
    }

    /// Ends the connection gracefully, or gives up the attempt. The outcome is an event. An id for
    /// datagrams has neither, and nothing happens.
    ///
    /// # Errors
    /// The id never had a peer.
    pub fn disconnect(&self) -> Result<(), CmError> {
        let mut inner = self.lock();
        if self.space() == PortSpace::Udp {
            return Ok(inner.machine.may(CmCommand::Disconnect)?);
        }
        let (stage, qp) = match inner.machine.disconnect()? {
            Close::Link => (IdStage::Quiet, inner.qp.upgrade()),
            Close::Attempt => {
                let stage = inner.leave_stage();
                let linked = matches!(stage, IdStage::Linked);
                let qp = inner.qp.upgrade().filter(|_| linked);
                inner.gives_up = qp.as_ref().is_some_and(|qp| !qp.is_connected());
                (stage, qp)
            }
            Close::Nothing => {
                if std::mem::take(&mut inner.owes_answer) {
                    self.begin_timewait(&mut inner);
                }
                (IdStage::Quiet, None)
            }
        };
        // An adapter's queue pair outlives its connection until the program disconnects too.
        let left = inner.managed.as_ref().and_then(Weak::upgrade);
        let held = inner.held;
        let is_own = inner.managed.as_ref().is_some_and(|managed| managed.ptr_eq(&inner.qp));
        self.publish(&mut inner);
        drop(inner);
        stage.close();
        if let Some(qp) = qp {
            hang_up(&qp, held);
        }
        // It may have been connected anew, by another id.
        let held = held.filter(|_| is_own);
        if let Some(qp) = left.filter(|qp| held.is_none_or(|held| qp.is_last(held))) {
            qp.disconnect();
            qp.queues().fail(None);
        }
        Ok(())
    }

    /// The peer has not confirmed the connection in time: gives what is to be hung up once the id
    /// is not locked.
    pub(crate) fn give_up_on_peer(
        &self,
        inner: &mut IdInner,
    ) -> Option<(Arc<HostQp>, Option<Attachment>)> {
        if inner.machine.state() != CmState::Accepting {
            return None;
        }
        let end = inner.qp.upgrade().map(|qp| (qp, inner.held));
        self.give_up(inner, Failure::TimedOut);
        end
    }
}
