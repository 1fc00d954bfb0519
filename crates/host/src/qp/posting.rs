//! Posting of sends, of which a list is posted under one lock of the send queue.
//!
//! Order of calls: [`HostQp::posting`], a call for each request, and [`HostQp::ring`] once the
//! [`HostPosting`] is dropped.

use weft_fault::Verb;
use weft_verbs::qp::posting::Posting;
use weft_verbs::{Destination, Misuse, QpType, SendOp, SendWr};

use super::HostQp;

/// A queue pair to which sends are posted.
pub struct HostPosting<'a> {
    qp: &'a HostQp,
    /// Its queue, unless others take part in each post: then each locks it for itself.
    plain: Option<Posting<'a>>,
}

impl HostPosting<'_> {
    /// What the queue pair offers.
    pub fn kind(&self) -> QpType {
        self.qp.kind()
    }

    /// Queues what `post` does, all of it or nothing; of a queue that others take part in, all
    /// before the first that is refused. Gives how many there was nothing against.
    ///
    /// # Errors
    /// What there is against the next.
    pub fn all_or_none(
        &mut self,
        post: impl FnOnce(&mut Self) -> (usize, Result<(), Misuse>),
    ) -> (usize, Result<(), Misuse>) {
        let mark = self.plain.as_ref().map(Posting::mark);
        let (posted, outcome) = post(self);
        let Some((posting, mark)) = self.plain.as_mut().zip(mark) else { return (posted, outcome) };
        let is_undone = outcome.is_err() && posting.rewind(mark);
        (if is_undone { 0 } else { posted }, outcome)
    }

    /// Queues a send.
    ///
    /// # Errors
    /// If a queue pair of its device, type, state or size does not take it, or a fault is planned.
    #[inline]
    pub fn send(&mut self, wr: &SendWr<'_>) -> Result<(), Misuse> {
        if self.qp.port.is_none() && matches!(wr.op, SendOp::AtomicWrite { .. }) {
            return Err(Misuse::Unsupported("atomic writes"));
        }
        match &mut self.plain {
            Some(posting) => posting.send(wr),
            None => self.qp.post_observed(wr, || self.qp.inner.post_send(wr)),
        }
    }

    /// Queues a send for the peer's receive queue `number`.
    ///
    /// # Errors
    /// As of [`HostPosting::send`].
    pub fn send_to(&mut self, wr: &SendWr<'_>, number: u32) -> Result<(), Misuse> {
        match &mut self.plain {
            Some(posting) => posting.send_to(wr, number),
            None => self.qp.post_observed(wr, || self.qp.inner.post_send_to(wr, number)),
        }
    }

    /// Queues a datagram to `to`.
    ///
    /// # Errors
    /// As of [`HostPosting::send`].
    pub fn datagram(&mut self, wr: &SendWr<'_>, to: &Destination) -> Result<(), Misuse> {
        self.qp.post_observed(wr, || self.qp.inner.post_datagram(wr, to))
    }
}

impl HostQp {
    /// Begins to queue sends, which [`HostQp::ring`] sets going.
    ///
    /// # Errors
    /// In a child of the process that made it: nothing would carry out what that posts, and a lock
    /// of the queues may be one that a thread of the parent holds for ever.
    pub fn posting(&self) -> Result<HostPosting<'_>, Misuse> {
        self.check_owner()?;
        let host = self.host();
        let is_observed = host.faults().is_some() || host.events().trace().is_some();
        let is_plain = self.kind() != QpType::Ud && !is_observed && self.slot.faults().is_none();
        Ok(HostPosting { qp: self, plain: is_plain.then(|| self.inner.posting()) })
    }

    /// Queues one send: [`HostPosting::send`].
    ///
    /// # Errors
    /// As there, and of [`HostQp::posting`].
    pub fn post_send(&self, wr: &SendWr<'_>) -> Result<(), Misuse> {
        self.posting()?.send(wr)
    }

    /// Queues one send for the peer's receive queue `number`: [`HostPosting::send_to`].
    ///
    /// # Errors
    /// As there, and of [`HostQp::posting`].
    pub fn post_send_to(&self, wr: &SendWr<'_>, number: u32) -> Result<(), Misuse> {
        self.posting()?.send_to(wr, number)
    }

    /// Queues one datagram: [`HostPosting::datagram`].
    ///
    /// # Errors
    /// As there, and of [`HostQp::posting`].
    pub fn post_datagram(&self, wr: &SendWr<'_>, to: &Destination) -> Result<(), Misuse> {
        self.posting()?.datagram(wr, to)
    }

    /// Posts `wr` by `post`, where faults may be planned or posts are traced.
    fn post_observed(
        &self,
        wr: &SendWr<'_>,
        post: impl FnOnce() -> Result<(), Misuse>,
    ) -> Result<(), Misuse> {
        self.refuse_post(Verb::PostSend)?;
        self.host().events().note_send(self.num(), wr);
        match self.slot.faults() {
            None => post(),
            Some(faults) => faults.post(&self.inner, &wr.op, post),
        }
    }
}
