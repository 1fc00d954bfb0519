//! Further paths of a connection between two hosts, once it is there.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weft_net::tcp::{self, Ready};
use weft_net::udp::UdpPort;
use weft_os::clock::{self, ns_at};
use weft_rnic::Batch;
use weft_rnic::shuttle::Route;

use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::transport::Core;
use crate::multipath;

impl ShuttleSocket {
    /// Opens the paths that the addresses of both ends allow, if this end asked for the connection
    /// and both want several.
    pub(super) fn open_paths(&mut self, core: &mut Core) {
        let mut routes = further_routes(core);
        if routes.is_empty() {
            return;
        }
        let Some(further) = multipath::open(&core.host) else { return };
        further.leave_by(multipath::interfaces_of(&routes));
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        for route in &mut routes {
            route.local.set_port(further.number());
            log::debug!("a path from {} to {} is tried", route.local.ip(), route.remote);
            // Those beyond the most that a connection may have are not opened.
            let _opened = shuttle.connection_mut().open_path(ns_at(clock::now()), *route);
        }
        self.further = Some(further);
    }

    /// What its sockets are ready for.
    pub(super) fn socket_ready(&self) -> Ready {
        let first = tcp::ready(self.port.as_fd());
        let Some(further) = self.further().map(tcp::ready) else { return first };
        let write = if self.is_further_full { further.write } else { first.write };
        Ready { read: first.read || further.read, write }
    }

    /// The socket of its further paths.
    pub fn further(&self) -> Option<BorrowedFd<'_>> {
        Some(self.further.as_ref()?.as_fd())
    }
}

/// The socket that a burst leaves by, the first path's or that of further ones: its route tells.
pub(super) fn leaving<'a>(
    first: &'a UdpPort,
    further: Option<&'a Arc<UdpPort>>,
    burst: &Batch<'_>,
) -> &'a UdpPort {
    let from = burst.route.map(|route| route.local.port());
    further.filter(|further| from == Some(further.number())).map_or(first, |further| further)
}

/// The further paths that this end is to open, from port 0.
fn further_routes(core: &Core) -> Vec<Route> {
    let (Some(multipath), Some(shuttle)) = (core.host.multipath(), shuttle_of(core)) else {
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
    routes.retain(|route| core.host.secrecy().permits(route.local.ip(), route.remote.ip()));
    routes
}
