//! Domains of extended reliable connections (XRC, InfiniBand architecture, volume 1, annex A14).
//!
//! The receiving queue pairs of a domain have no receives of their own: each message says by
//! number which of the domain's shared receive queues it is for, and completes where that one
//! says. So one connection between two hosts serves all the queues of a domain.
//!
//! Peers reach memory through the protection domains of these queues. A peer may name any of the
//! queues, so it reaches what any of them would let it reach.
//!
//! The domain itself has a protection domain without memory ([`Xrcd::pd`]), to which its receiving
//! queue pairs belong; the protection domains of its queues admit it. So the checks of memory need
//! to know nothing of XRC.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use weft_sync::{Mutex, MutexGuard};

use crate::pd::Pd;
use crate::srq::Srq;
use crate::usage::Counted;

/// A domain. Its queue pairs and queues are users of [`Xrcd::pd`], in which there is no memory.
#[derive(Debug)]
pub struct Xrcd {
    pd: Arc<Pd>,
    queues: Mutex<HashMap<u32, Weak<Srq>>>,
}

impl Xrcd {
    /// A domain for whose members `pd` stands; nothing else is to be in that one.
    pub fn new(pd: Arc<Pd>) -> Self {
        Self { pd, queues: Mutex::default() }
    }

    /// What its queue pairs have for a protection domain.
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Whether a queue pair or a queue is in it.
    pub fn is_used(&self) -> bool {
        self.pd.users().any()
    }

    /// The queue of this number.
    pub fn find(&self, number: u32) -> Option<Arc<Srq>> {
        self.queues().get(&number)?.upgrade()
    }

    /// Makes `srq` reachable as `number`.
    pub(crate) fn enlist(&self, number: u32, srq: &Arc<Srq>) {
        self.queues().insert(number, Arc::downgrade(srq));
    }

    /// Makes `number` lead nowhere.
    pub(crate) fn strike(&self, number: u32) {
        self.queues().remove(&number);
    }

    fn queues(&self) -> MutexGuard<'_, HashMap<u32, Weak<Srq>>> {
        self.queues.lock()
    }
}
