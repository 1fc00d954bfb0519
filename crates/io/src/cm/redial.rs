//! Dialing again where nobody listens yet.
//!
//! Programs tell their peer to connect and listen right after it. Adapters spend milliseconds on
//! finding a path before they connect; here that takes no time, so a first refusal proves nothing.

use std::os::fd::OwnedFd;
use std::sync::Weak;
use std::time::{Duration, Instant};

use weft_os::clock;
use weft_rnic::cm::Failure;
use weft_rnic::mpa::Offer;

use super::config;
use super::id::{CmId, Inner, Stage};
use crate::Qp;

/// How long refusals are not believed, and when the next call is due.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    /// That of a new attempt.
    pub(super) fn new() -> Self {
        let until = clock::now() + config::REFUSED_PATIENCE;
        Self { until, pause: config::REDIAL_PAUSE }
    }
}

/// Whom to call from where, and what to ask.
pub(super) struct Call {
    pub(super) fd: OwnedFd,
    pub(super) offer: Offer,
    pub(super) qp: Weak<Qp>,
    pub(super) patience: Patience,
}

impl CmId {
    /// A call came to nothing: has another one made from the same socket, or reports it.
    pub(super) fn dial_failed(&self, inner: &mut Inner, failure: Failure, mut call: Call) {
        let Patience { until, pause } = call.patience;
        if failure != Failure::Refused || inner.is_prompt() || clock::now() >= until {
            return self.give_up(inner, failure);
        }
        call.patience.pause = pause * 2;
        inner.stage = Stage::Refused(Box::new(call));
        self.limit_time(inner, pause);
    }

    /// The pause after a refusal is over.
    pub(super) fn redial(&self, inner: &mut Inner) {
        if let Stage::Refused(call) = inner.leave_stage() {
            self.dial(inner, *call);
        }
    }
}
