//! Paths of a connection: opened, limited, and moved to other addresses.

use core::net::{IpAddr, SocketAddr};

use weft_wire::shuttle::PathId;

use super::ShuttleConnection;
use crate::config::MAX_PATHS;
use crate::error::ShuttleMisuse;
use crate::path::{Path, Route};

impl ShuttleConnection {
    /// Sets the size of the peer's socket buffer in bytes. Bytes in flight stay below it on paths
    /// shorter than 2 ms.
    pub fn set_peer_room(&mut self, octets: u64) {
        for path in &mut self.paths {
            path.room_octets = octets;
        }
    }

    /// Limits the rate on `path` to what the network grants, in bits of UDP payload per second;
    /// `u64::MAX` for none. The smaller of this and the peer's limit holds.
    pub fn limit_rate(&mut self, path: PathId, rate_bps: u64) {
        if let Some(path) = self.paths.get_mut(usize::from(path.0)) {
            path.granted_bps = rate_bps;
            path.limit_rate();
        }
    }

    /// Asks the peer to send no faster than `rate_bps` on `path`; `u64::MAX` for no limit. The peer
    /// is told until it acknowledges.
    pub fn limit_peer(&mut self, path: PathId, rate_bps: u64) {
        if let Some(path) = self.paths.get_mut(usize::from(path.0)) {
            path.rate_wanted_bps = rate_bps;
            path.rate_owed = true;
        }
    }

    /// Further addresses of the peer, which it has said in the handshake; `None` unless both ends
    /// want several paths (S-75). They are what the peer claims: a path to one of them carries
    /// data only once the peer has answered there.
    pub fn peer_addresses(&self) -> Option<&[SocketAddr]> {
        self.session.as_ref()?.peer_addresses.as_deref()
    }

    /// Opens another path, which the initiator does (S-71). It carries data once the peer has
    /// answered on it.
    ///
    /// # Errors
    /// If the connection is not open, or has all the paths that it may have.
    pub fn open_path(&mut self, now_ns: u64, route: Route) -> Result<PathId, ShuttleMisuse> {
        if !self.is_open() {
            return Err(ShuttleMisuse::NotOpen);
        }
        if self.paths.len() == MAX_PATHS {
            return Err(ShuttleMisuse::Paths);
        }
        let id = PathId(self.paths.len() as u8);
        let path = self.add_path(id, route);
        let token = self.token();
        self.paths[path].open(now_ns, token);
        Ok(id)
    }

    /// The host has lost the address `lost` and sends from `local` from now on: the peer follows
    /// what it hears from there, and what was learnt of the path is forgotten (S-72). Paths that
    /// begin at another port than path 0 keep theirs.
    pub fn relocate(&mut self, now_ns: u64, lost: IpAddr, local: SocketAddr) {
        let port = self.paths[0].route.local.port();
        let Some(session) = &self.session else {
            self.paths[0].relocate(now_ns, lost, (port, local));
            return;
        };
        let goal_octets = self.config.datagram_octets_goal.min(session.peer_limits.datagram_octets);
        for path in &mut self.paths {
            if path.relocate(now_ns, lost, (port, local)) {
                path.search_mtu(goal_octets);
            }
        }
    }

    /// Has a Ping leave on every validated path: any of them may be dead.
    pub(super) fn ping_all(&mut self) {
        self.paths.iter_mut().filter(|path| path.validated).for_each(|path| path.ping = true);
    }

    /// Index of a path for what any path can carry: the last one on which the peer was heard, or
    /// another one if that does not answer (S-74).
    pub(super) fn lead(&self) -> usize {
        if self.paths.len() == 1 {
            return 0;
        }
        match self.paths[self.heard_on].is_well() {
            true => self.heard_on,
            false => self.paths.iter().position(Path::is_well).unwrap_or(self.heard_on),
        }
    }

    pub(super) fn add_path(&mut self, id: PathId, route: Route) -> usize {
        let octets = self.paths[0].base_octets;
        let mut path = Path::new(id, route, &self.config, octets);
        path.room_octets = self.paths[0].room_octets;
        self.paths.push(path);
        self.paths.len() - 1
    }
}
