//! The active side: from a bound socket to a peer's answer.
//!
//! A peer that closes without a word on a Request of RFC 6581 is asked once more without it,
//! because an older peer would do just that. A peer that refuses is called again for a while:
//! applications tell their peer to connect and listen right after it. Adapters spend milliseconds
//! on finding a path before they connect; here that takes no time, so a first refusal proves
//! nothing.

use std::io::Write;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use weft_host::{DeviceKind, HostQp};
use weft_net::lane::rendezvous::LaneOffer;
use weft_net::socket;
use weft_net::stream::MpaCarrier;
use weft_os::clock;
use weft_reactor::Pollable;
use weft_rnic::cm::{CmCommand, ConnParam, Depths, Failure};
use weft_rnic::mpa::negotiate::{Initiator, MpaReply};
use weft_rnic::mpa::{MpaOffer, MpaRole};

use crate::attempt::{Attempt, AttemptParams, AttemptStep, Patience};
use crate::call::{LocalEnd, check_seat};
use crate::device::{PortSpace, failure};
use crate::error::CmError;
use crate::id::{CmId, IdInner, IdStage};
use crate::link::Handover;
use crate::{config, refusal};

impl CmId {
    /// Starts to connect to the address that was resolved, with `qp` at this end. The outcome is an
    /// event.
    ///
    /// # Errors
    /// The wrong state, bad parameters, or a queue pair that is not ready to be connected.
    pub fn connect(&self, param: &ConnParam, qp: &Arc<HostQp>) -> Result<(), CmError> {
        let mut inner = self.lock();
        if self.space() != PortSpace::Tcp {
            return Err(CmError::PortSpace);
        }
        inner.machine.may(CmCommand::Connect)?;
        check_seat(qp, inner.device)?;
        let depths = inner.machine.connect(param)?;
        if inner.device == Some(DeviceKind::Roce) {
            return self.call(inner, param, depths, LocalEnd::Managed(Arc::clone(qp)));
        }
        if let Some((local, peer)) = inner.local.zip(inner.peer)
            && let Err(why) =
                inner.channel.host().secrecy().permit_stream(inner.chosen(), local.ip(), peer.ip())
        {
            self.give_up(&mut inner, Failure::from_errno(why.errno()));
            return Ok(());
        }
        let offer =
            config::offer(inner.channel.host().settings(), depths, param.private_data.clone());
        inner.qp = Arc::downgrade(qp);
        let IdStage::Bound(mut sockets) = inner.leave_stage() else {
            return Err(weft_verbs::Misuse::Invalid("the id has no socket").into());
        };
        let (qp, patience) = (Arc::downgrade(qp), Patience::new());
        match sockets.take_fresh_stream().map_or_else(|| inner.reopen(), Ok) {
            Ok(fd) => self.dial(&mut inner, AttemptParams { fd, offer, qp, patience }),
            Err(error) => self.give_up(&mut inner, Failure::from_errno(error.errno())),
        }
        Ok(())
    }

    /// Calls the peer.
    pub(crate) fn dial(&self, inner: &mut IdInner, call: AttemptParams) {
        if let Some(peer) = inner.peer {
            log::debug!("connecting to {peer} over TCP");
        }
        match self.start(inner, &call) {
            Ok((initiator, peer, source)) => {
                let attempt = Attempt::new(inner.channel.host(), call, initiator, peer, source);
                if let Some(due) = attempt.silence.due() {
                    inner.channel.host().reactor().set_timer(due, self.me());
                }
                inner.stage = IdStage::Dialing(Box::new(attempt));
                self.limit_time(inner, config::DIAL_TIMEOUT);
            }
            Err(failure) => self.dial_failed(inner, failure, call),
        }
    }

    fn start(
        &self,
        inner: &IdInner,
        call: &AttemptParams,
    ) -> Result<(Initiator, SocketAddr, Arc<dyn Pollable>), Failure> {
        let initiator = Initiator::new(call.offer.clone()).map_err(|_| Failure::Protocol)?;
        let source = self.me().upgrade().ok_or(Failure::Aborted)?;
        let peer = inner.peer.ok_or(Failure::Aborted)?;
        socket::connect(call.fd.as_fd(), &peer).map_err(|e| failure(&e))?;
        Ok((initiator, peer, source))
    }

    /// Gives the present step a time limit; [`Pollable::timeout`] enforces it.
    pub(crate) fn limit_time(&self, inner: &mut IdInner, limit: Duration) {
        let deadline = clock::now() + limit;
        inner.deadline = Some(deadline);
        inner.channel.host().reactor().set_timer(deadline, self.me());
    }

    /// The engine says that the attempt can go on. Returns a stream that is ready for the queue
    /// pair.
    pub(crate) fn advance(&self, inner: &mut IdInner) -> Option<Handover> {
        let IdStage::Dialing(attempt) = &mut inner.stage else { return None };
        match attempt.step() {
            AttemptStep::Wait => {}
            AttemptStep::Dialed => {
                inner.local = attempt.stream.local_addr().ok().or(inner.local);
                self.limit_time(inner, config::REPLY_TIMEOUT);
            }
            AttemptStep::Misunderstood => self.dial_again(inner),
            AttemptStep::Failed(failure) => {
                if let IdStage::Dialing(attempt) = inner.leave_stage() {
                    self.dial_failed(inner, failure, attempt.into_call());
                }
            }
            AttemptStep::Answered(reply) => return self.handle_reply(inner, reply),
        }
        None
    }

    pub(crate) fn give_up(&self, inner: &mut IdInner, failure: Failure) {
        inner.leave_stage();
        inner.machine.handle_failed(failure);
        self.publish(inner);
    }

    fn dial_again(&self, inner: &mut IdInner) {
        let IdStage::Dialing(attempt) = inner.leave_stage() else { return };
        let AttemptParams { fd, offer, qp, patience } = attempt.into_call();
        drop(fd);
        // The peer may still remember the port of the first attempt.
        if let Some(local) = &mut inner.local {
            local.set_port(0);
        }
        let offer = MpaOffer { enhanced: false, peer_to_peer: false, ..offer };
        match inner.reopen() {
            Ok(fd) => self.dial(inner, AttemptParams { fd, offer, qp, patience }),
            Err(error) => self.give_up(inner, Failure::from_errno(error.errno())),
        }
    }

    fn handle_reply(&self, inner: &mut IdInner, reply: MpaReply) -> Option<Handover> {
        match reply {
            MpaReply::Accepted(mut agreed) => {
                let IdStage::Dialing(attempt) = inner.leave_stage() else { return None };
                let Attempt { stream, qp, lane, .. } = *attempt;
                let Some(qp) = qp.upgrade() else {
                    self.give_up(inner, Failure::Aborted);
                    return None;
                };
                self.begin_link(inner, &mut agreed, MpaRole::Initiator);
                let stream = MpaCarrier::new(stream, lane.and_then(LaneOffer::granted));
                Some(Handover { qp, stream, agreed, role: MpaRole::Initiator })
            }
            MpaReply::Rejected { private_data, peer_ird, peer_ord } => {
                inner.leave_stage();
                let peer = Depths { ird: peer_ird.unwrap_or(0), ord: peer_ord.unwrap_or(0) };
                inner.machine.handle_rejected(peer, private_data);
                self.publish(inner);
                None
            }
            MpaReply::Unacceptable { agreed, error } => {
                if let IdStage::Dialing(attempt) = &inner.stage {
                    let last_word = refusal::terminate(&agreed, error);
                    let _peer_may_be_gone = (&attempt.stream).write(&last_word);
                }
                self.give_up(inner, Failure::Protocol);
                None
            }
        }
    }

    /// A call came to nothing: has another one made from the same socket, or reports it.
    pub(crate) fn dial_failed(
        &self,
        inner: &mut IdInner,
        failure: Failure,
        mut call: AttemptParams,
    ) {
        let Patience { until, pause } = call.patience;
        let now = clock::now();
        if failure != Failure::Refused || inner.is_prompt() || now >= until {
            return self.give_up(inner, failure);
        }
        call.patience.pause = pause * 2;
        inner.stage = IdStage::Refused(Box::new(call));
        self.limit_time(inner, config::before_redial(pause, now, until));
    }

    /// The pause after a refusal is over.
    pub(crate) fn redial(&self, inner: &mut IdInner) {
        if let IdStage::Refused(call) = inner.leave_stage() {
            self.dial(inner, *call);
        }
    }
}
