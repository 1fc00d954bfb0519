//! What is seen of connections from outside: one line each, through the [`log`] facade.
//!
//! `info` has connections coming and going, `debug` every change of state of a queue pair, `trace`
//! who drives it. A line begins with the device and the number of the queue pair. Invariant:
//! nothing on the data path is told, and what nobody wants to see costs one comparison of the
//! level.

use std::net::SocketAddr;

use weft_rnic::Event;
use weft_sync::Mutex;
use weft_verbs::{Qp, QpState};

/// Tells of a connection that came or went. `peer` is looked up if it is told.
pub(crate) fn tell(
    device: &str,
    qp: &Qp,
    event: &Event,
    peer: impl FnOnce() -> Option<SocketAddr>,
) {
    if !log::log_enabled!(log::Level::Info) {
        return;
    }
    let number = qp.num();
    let peer = peer().map_or_else(|| "its peer".to_owned(), |peer| peer.to_string());
    match event {
        Event::Established(_) => {
            log::info!("{device} queue pair {number:#x}: connected to {peer}");
        }
        Event::Ended { end, .. } => {
            log::info!("{device} queue pair {number:#x}: connection to {peer} ended: {end}");
        }
        Event::Dropped(_) | Event::Notice { .. } => {}
    }
}

/// Tells who drives a connection from now on: a thread that polls, or the reactor.
pub(crate) fn tell_lease(device: &str, qp: &Qp, leased: bool) {
    let driver = if leased { "a polling thread" } else { "the reactor" };
    log::trace!("{device} queue pair {:#x}: driven by {driver}", qp.num());
}

/// The state of a queue pair that was told last.
pub(crate) struct ToldState(Mutex<QpState>);

impl ToldState {
    /// Of a queue pair in `state`.
    pub fn new(state: QpState) -> Self {
        Self(Mutex::new(state))
    }

    /// Tells that the state is another one than last time, if it is.
    pub fn note(&self, device: &str, qp: &Qp) {
        if !log::log_enabled!(log::Level::Debug) {
            return;
        }
        // The state is read under the lock: another thread may tell of a later one meanwhile.
        let mut told = self.0.lock();
        let (from, to) = (*told, qp.state());
        if from != to {
            *told = to;
            let number = qp.num();
            log::debug!("{device} queue pair {number:#x}: {} -> {}", name(from), name(to));
        }
    }
}

/// As rdma-core's `ibv_qp_state` has it, without the prefix.
fn name(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}
