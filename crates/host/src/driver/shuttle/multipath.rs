//! Further paths of a connection between two hosts, once it is there.

use std::sync::Arc;

use weft_os::clock::{self, ns_at};
use weft_rnic::shuttle::Route;

use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::transport::Core;
use crate::multipath;

impl ShuttleSocket {
    /// Opens the paths that the addresses of both ends allow, if this end asked for the connection
    /// and both want several.
    pub(super) fn open_paths(&mut self, core: &mut Core) {
        let routes = further_routes(core);
        if routes.is_empty() {
            return;
        }
        match self.port.open_to_all() {
            Ok(false) => {}
            Ok(true) => {
                core.renew_socket();
                // It was replaced, and counts from nothing.
                self.dropped = 0;
            }
            Err(error) => {
                log::warn!("no further paths: their socket cannot be had ({error})");
                return;
            }
        }
        self.port.leave_by(multipath::interfaces_of(&routes));
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        for route in routes {
            log::debug!("a path from {} to {} is tried", route.local.ip(), route.remote);
            // Those beyond the most that a connection may have are not opened.
            let _opened = shuttle.connection_mut().open_path(ns_at(clock::now()), route);
        }
    }
}

fn further_routes(core: &Core) -> Vec<Route> {
    let host = Arc::clone(&core.host);
    let (Some(multipath), Some(shuttle)) = (host.multipath(), shuttle_of(core)) else {
        return Vec::new();
    };
    let (connection, first) = (shuttle.connection(), shuttle.connection().route());
    let Some(peers) = connection.peer_addresses().filter(|_| connection.is_initiator()) else {
        return Vec::new();
    };
    if first.is_within_host() {
        return Vec::new();
    }
    let mut routes = multipath.routes(&first, peers);
    routes.retain(|route| host.secrecy().permits(route.local.ip(), route.remote.ip()));
    routes
}
