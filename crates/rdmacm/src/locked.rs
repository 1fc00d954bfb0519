//! The lock of an id, which tells of a change of state when it is released.
//!
//! Invariant: whatever changes the state of an id does so behind this lock, so that no change
//! is missed, and none is told of an id that another thread is changing.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use weft_host::HostQp;
use weft_host::diagnostics::IdDetails;
use weft_sync::MutexGuard;

use crate::id::IdInner;

/// An id that this thread has locked.
pub(crate) struct LockedId<'a> {
    inner: MutexGuard<'a, IdInner>,
    /// Kept until the lock is released: its end must not find the id locked.
    qp: Option<Arc<HostQp>>,
}

impl<'a> LockedId<'a> {
    pub fn new(inner: MutexGuard<'a, IdInner>) -> Self {
        Self { inner, qp: None }
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
        let inner = &mut *self.inner;
        let state = (!inner.is_dead()).then_some(inner.machine.state());
        if !inner.told_state.is_news(state) {
            return;
        }
        self.qp = inner.managed.as_ref().unwrap_or(&inner.qp).upgrade();
        let host = inner.channel.host();
        let details = IdDetails {
            device: host.devices().name(inner.likely_device()),
            local: inner.local,
            peer: inner.peer,
            qp: self.qp.as_deref().map(HostQp::num),
            failure: inner.failure.take(),
        };
        inner.told_state.tell(state, &details);
    }
}
