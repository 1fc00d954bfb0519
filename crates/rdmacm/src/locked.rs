//! The lock of an id, which tells of a change of state when it is released.
//!
//! Invariant: whatever changes the state of an id does so behind this lock, so that no change
//! is missed, and none is told of an id that another thread is changing. Whoever is woken by an
//! event of the id finds the lock released.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use weft_host::diagnostics::IdDetails;
use weft_host::{HostQp, PostponingGuard};
use weft_sync::Mutex;

use crate::id::IdInner;

/// An id that this thread has locked.
pub(crate) struct LockedId<'a> {
    inner: PostponingGuard<'a, IdInner>,
    /// Kept until the lock is released: its end must not find the id locked.
    qp: Option<Arc<HostQp>>,
}

impl<'a> LockedId<'a> {
    pub fn new(inner: &'a Mutex<IdInner>) -> Self {
        Self { inner: PostponingGuard::lock(inner), qp: None }
    }
}

impl Deref for LockedId<'_> {
    type Target = IdInner;

    fn deref(&self) -> &IdInner {
        &self.inner
    }
}

impl DerefMut for LockedId<'_> {
    fn deref_mut(&mut self) -> &mut IdInner {
        &mut self.inner
    }
}

impl Drop for LockedId<'_> {
    fn drop(&mut self) {
        self.inner.tell_state();
        self.qp = self.inner.told_qp.take();
    }
}

impl IdInner {
    /// Tells the state of the id if it is another one than last time: before the application has
    /// the event of it, since it may end at once then.
    pub(crate) fn tell_state(&mut self) {
        let state = (!self.is_dead()).then_some(self.machine.state());
        if !self.told_state.is_news(state) {
            return;
        }
        let qp = self.managed.as_ref().unwrap_or(&self.qp).upgrade();
        let details = IdDetails {
            device: self.channel.host().devices().name(self.likely_device()),
            local: self.local,
            peer: self.peer,
            qp: qp.as_deref().map(HostQp::num),
            failure: self.failure.take(),
        };
        self.told_state.tell(state, &details);
        self.told_qp = qp.or(self.told_qp.take());
    }
}
