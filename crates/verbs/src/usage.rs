//! Use counts of objects, so that destroying one in use fails with `EBUSY`.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Count of objects that depend on the owner.
#[derive(Debug, Default)]
pub struct Users(AtomicUsize);

impl Users {
    /// Whether anything depends on the owner.
    pub fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) > 0
    }
}

/// An object whose users are counted.
pub trait Counted {
    /// The counter of users.
    fn users(&self) -> &Users;
}

/// A counted use of an object; the count falls when it is dropped.
#[derive(Debug)]
pub struct InUse<T: Counted>(Arc<T>);

impl<T: Counted> InUse<T> {
    /// Starts a use of `object`.
    pub fn of(object: &Arc<T>) -> Self {
        object.users().0.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(object))
    }

    /// The object in use.
    pub fn arc(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Counted> Deref for InUse<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Counted> Drop for InUse<T> {
    fn drop(&mut self) {
        self.0.users().0.fetch_sub(1, Ordering::AcqRel);
    }
}
