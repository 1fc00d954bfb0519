//! The passive side: the application's answer to a Request.

use std::io;
use std::sync::Arc;

use weft_host::Qp;
use weft_rnic::cm::{Command, ConnParam};
use weft_rnic::mpa::Role;

use crate::call::{Seat, check_seat};
use crate::config;
use crate::error::Error;
use crate::id::{CmId, Stage};
use crate::link::Handover;

impl CmId {
    /// Says yes to the request, with `qp` at this end. That the connection is established is an
    /// event.
    ///
    /// # Errors
    /// The wrong state, bad parameters or a queue pair that cannot be connected: nothing has
    /// changed. `ECONNRESET` or `EPROTO` when the peer is gone or broke the protocol, and whatever
    /// the queue pair says to the stream: the id is of no more use.
    pub fn accept(&self, param: &ConnParam, qp: &Arc<Qp>) -> Result<(), Error> {
        let _accepting = self.accepting.lock();
        let handover = {
            let mut inner = self.lock();
            inner.machine.may(Command::Accept)?;
            check_seat(qp, inner.device)?;
            let depths = inner.machine.accept(param)?;
            if matches!(inner.stage, Stage::Asked(_)) {
                return self.answer(inner, param, depths, Seat::Managed(Arc::clone(qp)));
            }
            let Stage::Requested(request) = inner.leave_stage() else {
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
            self.begin_link(&mut inner, &mut agreed, Role::Responder);
            Handover { qp: qp.clone(), stream, agreed, role: Role::Responder }
        };
        self.link(handover).map_err(|misuse| {
            // The caller learns it from the result, so there is no event.
            self.lock().machine.poll_event();
            Error::from(misuse)
        })
    }

    /// Says no to the request, with at most [`weft_rnic::cm::PRIVATE_DATA_MAX`] octets of private
    /// data.
    ///
    /// # Errors
    /// The wrong state, or too much private data. A peer that left is none.
    pub fn reject(&self, private_data: &[u8]) -> Result<(), Error> {
        let mut inner = self.lock();
        inner.machine.reject(private_data)?;
        match inner.leave_stage() {
            Stage::Requested(request) => {
                let _peer_may_be_gone = request.reject(private_data);
            }
            Stage::Asked(ask) => ask.decline(private_data),
            _ => {}
        }
        Ok(())
    }
}
