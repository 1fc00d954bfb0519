//! The passive side: the application's answer to a Request.

use std::io;
use std::sync::Arc;

use weft_host::{HostQp, PostponingGuard};
use weft_rnic::cm::{CmCommand, ConnParam};
use weft_rnic::mpa::MpaRole;

use crate::call::{LocalEnd, check_seat};
use crate::config;
use crate::error::CmError;
use crate::id::{CmId, IdStage};
use crate::link::Handover;

impl CmId {
    /// Says yes to the request, with `qp` at this end. That the connection is established is an
    /// event.
    ///
    /// # Errors
    /// The wrong state, bad parameters or a queue pair that cannot be connected: nothing has
    /// changed. `ECONNRESET` or `EPROTO` when the peer is gone or broke the protocol, and whatever
    /// the queue pair says to the stream: the id is of no more use.
    pub fn accept(&self, param: &ConnParam, qp: &Arc<HostQp>) -> Result<(), CmError> {
        let _accepting = PostponingGuard::lock(&self.accepting);
        let handover = {
            let mut inner = self.lock();
            inner.machine.may(CmCommand::Accept)?;
            check_seat(qp, inner.device)?;
            let depths = inner.machine.accept(param)?;
            if matches!(inner.stage, IdStage::Asked(_)) {
                return self.answer(inner, param, depths, LocalEnd::Managed(Arc::clone(qp)));
            }
            let IdStage::Requested(request) = inner.leave_stage() else {
                return Err(weft_verbs::Misuse::Invalid("the id has no request").into());
            };
            let offer =
                config::offer(inner.channel.host().settings(), depths, param.private_data.clone());
            let (stream, mut agreed) = match request.accept(&offer) {
                Ok(accepted) => accepted,
                Err(failure) => {
                    inner.machine.handle_failed(failure);
                    inner.machine.poll_event();
                    return Err(io::Error::from_raw_os_error(failure.errno()).into());
                }
            };
            inner.qp = Arc::downgrade(qp);
            self.begin_link(&mut inner, &mut agreed, MpaRole::Responder);
            Handover { qp: qp.clone(), stream, agreed, role: MpaRole::Responder }
        };
        self.link(handover).map_err(|misuse| {
            // The caller learns it from the result, so there is no event.
            self.lock().machine.poll_event();
            CmError::from(misuse)
        })
    }

    /// Says no to the request, with at most [`weft_rnic::cm::PRIVATE_DATA_MAX`] bytes of private
    /// data.
    ///
    /// # Errors
    /// The wrong state, or too much private data. A peer that left is none.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), CmError> {
        let mut inner = self.lock();
        inner.machine.reject(private_data)?;
        match inner.leave_stage() {
            IdStage::Requested(request) => {
                let _peer_may_be_gone = request.reject(private_data);
            }
            IdStage::Asked(ask) => ask.decline(private_data),
            _ => {}
        }
        Ok(())
    }
}
