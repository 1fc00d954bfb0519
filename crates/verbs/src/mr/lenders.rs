//! Who lends the memory of a region to another process: nothing here sees what that reads, so the
//! loan has to end before the region does.

use std::fmt;
use std::sync::{Arc, Weak};

use weft_sync::Mutex;

/// Something that lends the memory of its requests.
pub trait Lends: Send + Sync {
    /// Ends the loans of requests that name region `key`, which is gone. When this returns, its
    /// memory is not read any more ([`crate::qp::send_queue::QueueLoan`]).
    fn end_loans_of(&self, key: u32);
}

/// Who has lent memory of a region, as far as it still exists.
#[derive(Default)]
pub(super) struct Lenders(Mutex<Vec<Weak<dyn Lends>>>);

impl Lenders {
    pub fn note(&self, lender: &Weak<dyn Lends>) {
        let mut known = self.0.lock();
        if !known.iter().any(|one| one.ptr_eq(lender)) {
            known.retain(|one| one.strong_count() > 0);
            known.push(Weak::clone(lender));
        }
    }

    /// Has them end their loans of `key`. The table must not be locked.
    pub fn end_loans_of(self, key: u32) {
        let known = std::mem::take(&mut *self.0.lock());
        known.iter().filter_map(Weak::upgrade).for_each(|lender: Arc<_>| lender.end_loans_of(key));
    }
}

impl fmt::Debug for Lenders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lenders({})", self.0.lock().len())
    }
}
