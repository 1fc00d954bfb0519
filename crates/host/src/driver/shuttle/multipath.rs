//! Further paths of a connection between two hosts, once it is there.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use weft_net::tcp::{self, Ready};
use weft_net::udp::UdpPort;
use weft_os::clock::{self, ns_at};
use weft_rnic::shuttle::Route;

use super::{ShuttleSocket, shuttle_of, shuttle_of_mut};
use crate::driver::transport::Core;
use crate::multipath;

impl ShuttleSocket {
    /// Opens the paths that the addresses of both ends allow, if this end asked for the connection
    /// and both want several.
    pub(super) fn open_paths(&self, core: &mut Core) {
        let Some(further) = wants_paths(core).and_then(|()| self.further_port(core)) else {
            return;
        };
        let routes = further_routes(core, further.number());
        further.leave_by(multipath::interfaces_of(&routes));
        let Some(shuttle) = shuttle_of_mut(core) else { return };
        for route in routes {
            log::debug!("a path from {} to {} is tried", route.local.ip(), route.remote);
            // Those beyond the most that a connection may have are not opened.
            let _opened = shuttle.connection_mut().open_path(ns_at(clock::now()), route);
        }
    }

    fn further_port(&self, core: &Core) -> Option<&Arc<UdpPort>> {
        if self.port.further().is_none() {
            self.port.set_further(multipath::open(&core.host)?);
        }
        self.port.further()
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
        Some(self.port.further()?.as_fd())
    }
}

/// Whether this end is to open further paths.
fn wants_paths(core: &Core) -> Option<()> {
    let connection = shuttle_of(core)?.connection();
    let is_between_hosts = !connection.route().is_within_host();
    let opens = connection.is_initiator() && is_between_hosts;
    (opens && !connection.peer_addresses()?.is_empty()).then_some(())
}

fn further_routes(core: &Core, further: u16) -> Vec<Route> {
    let host = Arc::clone(&core.host);
    let (Some(multipath), Some(shuttle)) = (host.multipath(), shuttle_of(core)) else {
        return Vec::new();
    };
    let connection = shuttle.connection();
    let peers = connection.peer_addresses().unwrap_or_default();
    let mut routes = multipath.routes(&connection.route(), further, peers);
    routes.retain(|route| host.secrecy().permits(route.local.ip(), route.remote.ip()));
    routes
}
