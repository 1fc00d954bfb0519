//! Going on from another address when the machine loses the one that a connection sends from, as
//! on the way from one network to another.
//!
//! The peer follows what it hears under the connection's ids (S-72), as behind a translator of
//! addresses. What a listener has granted stays at the listener's address: that is where its peer
//! looks for it.

use std::time::Duration;

use weft_os::clock::{Moment, moment_at, ns_at};

use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::transport::Core;

/// How often another address is looked for while there is none.
const LOOK_PAUSE: Duration = Duration::from_millis(200);
/// Silence of the peer after which it is looked, once, whether the address is still there: who only
/// receives has no send that fails, and its peer may give up after half a second (a timeout of 14
/// and 7 retries).
const QUIET: Duration = Duration::from_millis(200);

/// What is known of the address that a connection sends from.
#[derive(Default)]
pub(super) struct OwnAddress {
    /// When another one is looked for: it is gone.
    seeks_at: Option<Moment>,
    /// When the peer was heard before the last look at a silent connection.
    looked_after_ns: u64,
}

impl ShuttleSocket {
    /// When the address is to be looked at.
    pub(super) fn address_due(&self, core: &Core) -> Option<Moment> {
        self.own_address.seeks_at.or_else(|| self.quiet_due(core))
    }

    fn quiet_due(&self, core: &Core) -> Option<Moment> {
        let connection = shuttle_of(core)?.connection();
        let heard_ns = connection.heard_ns();
        let is_watched = connection.is_open()
            && !connection.route().is_within_host()
            && heard_ns != self.own_address.looked_after_ns
            && !self.is_guest();
        is_watched.then(|| moment_at(heard_ns) + QUIET)
    }

    /// Looks for another address if the connection's own seems to be gone.
    pub(super) fn look_after_address(&mut self, core: &mut Core, now: Moment) {
        let is_due = self.address_due(core).is_some_and(|at| at <= now);
        let has_failed = self.port.has_lost_route() && self.own_address.seeks_at.is_none();
        if !is_due && !has_failed || self.is_guest() {
            return;
        }
        let was_gone = self.own_address.seeks_at.take().is_some();
        let Some(shuttle) = shuttle_of(core).filter(|shuttle| shuttle.connection().is_open())
        else {
            return;
        };
        self.own_address.looked_after_ns = shuttle.connection().heard_ns();
        let route = shuttle.connection().route();
        let (lost, bounds) = (route.local.ip(), core.host.settings().ports);
        let Ok(found) = self.port.relocate(lost, route.remote, bounds) else {
            self.own_address.seeks_at = Some(now + LOOK_PAUSE);
            return;
        };
        if let Some(local) = found {
            log::info!("the address {lost} is gone; going on to {} from {local}", route.remote);
            core.renew_socket();
            if self.port.has_peer() {
                // It was replaced, and counts from nothing.
                self.dropped[0] = 0;
            }
        }
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        match found {
            Some(local) => shuttle.connection_mut().relocate(ns_at(now), lost, local),
            // It has come back.
            None if was_gone => shuttle.connection_mut().ask(),
            None => {}
        }
    }
}
