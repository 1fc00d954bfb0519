//! Posting of sends, of which a list is posted under one lock of the send queue.
//!
//! Invariant: what was posted is in the queue in the order of the calls, and nothing that another
//! thread posts comes between.

use weft_sync::MutexGuard;
use weft_wire::ids::QN_SHARED;

use super::Qp;
use super::attr::{QpState, QpType};
use super::send_queue::SendQueue;
use crate::misuse::Misuse;
use crate::wr::{Destination, SendWr};

/// The send queue of a queue pair, locked for posts.
pub struct Posting<'a> {
    qp: &'a Qp,
    sq: MutexGuard<'a, SendQueue>,
}

impl Posting<'_> {
    /// What was posted so far, for [`Posting::rewind`].
    pub fn mark(&self) -> (u32, u32) {
        self.sq.mark()
    }

    /// Takes back what was posted since `mark`; whether it could: a queue pair that has failed
    /// flushes each request at once.
    pub fn rewind(&mut self, mark: (u32, u32)) -> bool {
        self.sq.rewind(mark)
    }

    /// Posts a send.
    ///
    /// # Errors
    /// If a queue pair of its type, state or size does not take it.
    pub fn send(&mut self, wr: &SendWr<'_>) -> Result<(), Misuse> {
        match self.qp.kind {
            QpType::Ud => Err(Misuse::Invalid("a datagram has a destination")),
            QpType::XrcSend => Err(Misuse::Invalid("the request names a receive queue")),
            _ => self.push(wr, |_| ()),
        }
    }

    /// Posts a send of a queue pair of type [`QpType::XrcSend`] to the peer's receive queue
    /// `number`.
    ///
    /// # Errors
    /// As of [`Posting::send`].
    pub fn send_to(&mut self, wr: &SendWr<'_>, number: u32) -> Result<(), Misuse> {
        if self.qp.kind != QpType::XrcSend {
            return Err(Misuse::Invalid("the peer of this queue pair has one receive queue"));
        }
        if number & QN_SHARED != 0 {
            return Err(Misuse::Invalid("no receive queue has this number"));
        }
        self.push(wr, |sq| sq.address(QN_SHARED | number))
    }

    #[inline]
    fn push(
        &mut self,
        wr: &SendWr<'_>,
        address: impl FnOnce(&mut SendQueue),
    ) -> Result<(), Misuse> {
        let Self { qp, sq } = self;
        if !wr.op.is_offered_by(qp.kind) {
            return Err(Misuse::Invalid("a queue pair of this type does not do this"));
        }
        // Under the lock: who ends the queue pair changes its state first, and then flushes.
        let state = qp.state();
        if matches!(state, QpState::Reset | QpState::Init | QpState::Rtr) {
            return Err(Misuse::Invalid("sends may be posted from RTS on"));
        }
        sq.push(wr, qp.sq_sig_all, qp.cap.max_send_wr)?;
        address(sq);
        if matches!(state, QpState::Err | QpState::Sqe) {
            sq.flush(qp.num, &qp.send_cq);
        }
        Ok(())
    }
}

impl Qp {
    /// Locks the send queue for posts: nothing is sent, and nothing completes, until it is dropped.
    pub fn posting(&self) -> Posting<'_> {
        Posting { qp: self, sq: self.sq() }
    }

    /// Posts one send: [`Posting::send`].
    ///
    /// # Errors
    /// As there.
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), Misuse> {
        self.posting().send(wr)
    }

    /// Posts one send to a receive queue of the peer: [`Posting::send_to`].
    ///
    /// # Errors
    /// As there.
    pub fn post_send_to(&self, wr: &SendWr<'_>, number: u32) -> Result<(), Misuse> {
        self.posting().send_to(wr, number)
    }

    /// Posts a datagram to `to`.
    ///
    /// # Errors
    /// If the queue pair has one peer, or its state or size does not take it.
    pub fn post_datagram(&self, wr: &SendWr<'_>, to: &Destination) -> Result<(), Misuse> {
        if self.kind != QpType::Ud {
            return Err(Misuse::Invalid("a connected queue pair has one destination"));
        }
        let mut to = *to;
        if to.qkey >> 31 != 0 {
            to.qkey = self.attrs.lock().qkey;
        }
        self.posting().push(wr, |sq| sq.direct(&to))
    }
}
