//! What is seen of connections from outside: one line each, through the [`log`] facade.
//!
//! `info` has connections coming and going, and those that are open when the process ends; `debug`
//! every change of state of a queue pair and of an rdma-cm id; `trace` who drives a queue pair. A
//! line begins with the device and the number of the queue pair, or with the device and the
//! addresses of the id. Invariant: nothing on the data path is told, and what nobody wants to see
//! costs one comparison of the level.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_rnic::ConnEvent;
use weft_rnic::cm::{CmState, EventKind};
use weft_sync::Mutex;
use weft_verbs::{Qp, QpState};

use crate::events::Events;

/// Tells of a connection that came or went. `peer` is looked up if it is told; `by` names what
/// carries the connection, if that is not the network.
pub(crate) fn tell(
    device: &str,
    qp: &Qp,
    event: &ConnEvent,
    (peer, by): (impl FnOnce() -> Option<SocketAddr>, &str),
) {
    if !log::log_enabled!(log::Level::Info) {
        return;
    }
    let number = qp.num();
    let peer = peer().map_or_else(|| "its peer".to_owned(), |peer| peer.to_string());
    match event {
        ConnEvent::Established(_) => {
            log::info!(
                device, qp = number, peer = peer.as_str(), event = "connected";
                "{device} queue pair {number:#x}: connected to {peer}{by}"
            );
        }
        ConnEvent::Ended { end, .. } => {
            log::info!(
                device, qp = number, peer = peer.as_str(), event = "ended", reason:% = end;
                "{device} queue pair {number:#x}: connection to {peer} ended: {end}"
            );
        }
        ConnEvent::PathFound { path, route } => {
            let (here, there) = (route.local.ip(), route.remote);
            log::info!(
                device, qp = number, peer:% = there, event = "path", path = path.0;
                "{device} queue pair {number:#x}: path {} is from {here} to {there}", path.0
            );
        }
        ConnEvent::Dropped(_) | ConnEvent::Notice { .. } => {}
    }
}

/// Tells who drives a connection from now on: a thread that polls, or the reactor.
pub(crate) fn tell_lease(device: &str, qp: &Qp, leased: bool) {
    let driver = if leased { "a polling thread" } else { "the reactor" };
    log::trace!(
        device, qp = qp.num(), event = "driver", driver;
        "{device} queue pair {:#x}: driven by {driver}", qp.num()
    );
}

/// The state of a queue pair that was told last.
pub(crate) struct ToldState(Mutex<QpState>);

impl ToldState {
    /// Of a queue pair in `state`.
    pub fn new(state: QpState) -> Self {
        Self(Mutex::new(state))
    }

    /// Tells that the state is another one than last time, if it is.
    pub fn note(&self, device: &str, qp: &Qp, events: &Events) {
        if !log::log_enabled!(log::Level::Debug) && events.trace().is_none() {
            return;
        }
        // The state is read under the lock: another thread may tell of a later one meanwhile.
        let mut told = self.0.lock();
        let (from, to) = (*told, qp.state());
        if from != to {
            *told = to;
            let number = qp.num();
            events.note_state(number, from, to);
            let reason = qp.failure().get().filter(|_| to == QpState::Err);
            let (from, to) = (state_name(from), state_name(to));
            if let Some(reason) = reason {
                log::debug!(
                    device, qp = number, event = "state", from, to, reason:% = reason;
                    "{device} queue pair {number:#x}: {from} -> {to}: {reason}"
                );
                return;
            }
            log::debug!(
                device, qp = number, event = "state", from, to;
                "{device} queue pair {number:#x}: {from} -> {to}"
            );
        }
    }
}

/// As rdma-core's `ibv_qp_state` has it, without the prefix.
pub(crate) fn state_name(state: QpState) -> &'static str {
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

/// What a line about an rdma-cm id says besides its states.
pub struct IdDetails<'a> {
    /// The name of the device that it has come to, or is likely to.
    pub device: &'a str,
    /// Its own address, if it has one.
    pub local: Option<SocketAddr>,
    /// The address of its peer, if it has one.
    pub peer: Option<SocketAddr>,
    /// The number of its queue pair, if it has one.
    pub qp: Option<u32>,
    /// What the application was told of a failure: the event and its status.
    pub failure: Option<(EventKind, i32)>,
}

impl fmt::Display for IdDetails<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} id", self.device)?;
        if let Some(local) = self.local {
            write!(out, " at {local}")?;
        }
        if let Some(peer) = self.peer {
            write!(out, " to {peer}")?;
        }
        self.qp.map_or(Ok(()), |number| write!(out, ", queue pair {number:#x}"))
    }
}

/// The state of an rdma-cm id that was told last; none once it is destroyed.
pub struct ToldIdState(Option<CmState>);

impl Default for ToldIdState {
    /// Of an id that was just created.
    fn default() -> Self {
        Self(Some(CmState::Idle))
    }
}

impl ToldIdState {
    /// Whether somebody wants to hear that the state is this one now.
    pub fn is_news(&self, state: Option<CmState>) -> bool {
        self.0 != state && log::log_enabled!(log::Level::Debug)
    }

    /// Tells that the state is another one than last time.
    pub fn tell(&mut self, state: Option<CmState>, details: &IdDetails<'_>) {
        let from = std::mem::replace(&mut self.0, state);
        let reason = details.failure.map_or_else(String::new, reason);
        let (from, to) = (id_state(from), id_state(state));
        let text = |at: Option<SocketAddr>| at.map_or_else(String::new, |at| at.to_string());
        let (local, peer) = (text(details.local), text(details.peer));
        log::debug!(
            device = details.device, qp = details.qp, local = local.as_str(), peer = peer.as_str(),
            event = "id state", from, to, reason = reason.trim_start();
            "{details}: {from} -> {to}{reason}"
        );
    }
}

/// As the kernel's `enum rdma_cm_state` has it where that knows the state, without the prefix.
fn id_state(state: Option<CmState>) -> &'static str {
    match state {
        None => "DESTROYED",
        Some(CmState::Idle) => "IDLE",
        Some(CmState::AddrBound) => "ADDR_BOUND",
        Some(CmState::AddrQuery) => "ADDR_QUERY",
        Some(CmState::AddrResolved) => "ADDR_RESOLVED",
        Some(CmState::RouteQuery) => "ROUTE_QUERY",
        Some(CmState::RouteResolved) => "ROUTE_RESOLVED",
        Some(CmState::Listening) => "LISTEN",
        Some(CmState::Connecting) => "CONNECT",
        Some(CmState::ConnectRequest) => "CONNECT_REQUEST",
        Some(CmState::Accepting) => "ACCEPT",
        Some(CmState::Answered) => "CONNECT_RESPONSE",
        Some(CmState::Connected) => "CONNECTED",
        Some(CmState::Disconnecting) => "DISCONNECT",
        Some(CmState::Closed) => "CLOSED",
    }
}

/// Why a state was left, in words: a negative status is an errno, a positive one a reason of
/// InfiniBand's connection manager.
fn reason((kind, status): (EventKind, i32)) -> String {
    let what = match kind {
        EventKind::Rejected => "rejected",
        EventKind::Unreachable => "no answer",
        EventKind::AddrError => "address not resolved",
        EventKind::RouteError => "route not resolved",
        _ => "failed",
    };
    match status {
        ..0 => format!(" ({what}: {})", io::Error::from_raw_os_error(status.saturating_neg())),
        0 => format!(" ({what})"),
        1.. => format!(" ({what}: reason {status})"),
    }
}

/// Connections that were open when the process ended, and how many of their peers were told.
#[derive(Default)]
pub(crate) struct OpenAtExit {
    open: AtomicUsize,
    told: AtomicUsize,
}

impl OpenAtExit {
    /// One was open; its peer has heard that it is closed, or it has not.
    pub fn note(&self, told: bool) {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.told.fetch_add(usize::from(told), Ordering::Relaxed);
    }

    /// Tells of them, if there were any.
    pub fn tell(&self) {
        let count = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let (open, told) = (count(&self.open), count(&self.told));
        if open > 0 {
            let silent = open.saturating_sub(told);
            log::info!(
                event = "exit", open, told;
                "connections open at the end of the process: {open}; peers told: {told}, \
                 not told: {silent}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_in_words() {
        assert_eq!(reason((EventKind::Rejected, 28)), " (rejected: reason 28)");
        let silent = reason((EventKind::Unreachable, -libc::ETIMEDOUT));
        assert!(silent.starts_with(" (no answer: Connection timed out"), "{silent}");
    }

    #[test]
    fn a_line_names_what_is_known_of_an_id() {
        let mut details = IdDetails {
            device: "weft0",
            local: Some(([127, 0, 0, 1], 1).into()),
            peer: None,
            qp: None,
            failure: None,
        };
        assert_eq!(details.to_string(), "weft0 id at 127.0.0.1:1");
        (details.peer, details.qp) = (Some(([127, 0, 0, 1], 2).into()), Some(0x11));
        let line = "weft0 id at 127.0.0.1:1 to 127.0.0.1:2, queue pair 0x11";
        assert_eq!(details.to_string(), line);
    }
}
