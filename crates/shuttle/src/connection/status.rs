//! What a connection tells of itself.

use weft_wire::capability::Capabilities;
use weft_wire::shuttle::hello::Modules;
use weft_wire::shuttle::{PathId, StreamId};

use super::Connection;
use crate::capability::capabilities;
use crate::recovery::RecoveryStats;

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Datagrams with segments among them.
    pub segments_out: u64,
    /// Octets of segments sent again.
    pub octets_resent: u64,
    /// Segments sent again.
    pub segments_resent: u64,
    /// Control packets sent.
    pub control_out: u64,
    /// Packets that arrived and were taken.
    pub packets_in: u64,
    /// Segments that had been taken before.
    pub duplicate_segments: u64,
    /// Packets that had arrived before, or far too late.
    pub stale_packets: u64,
    /// Segments that found no room to be held.
    pub unheld_segments: u64,
    /// Datagrams that are no packets of this connection.
    pub foreign_datagrams: u64,
}

impl Connection {
    /// When the peer was heard last.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// The modules that were agreed on, each one bit.
    pub fn modules(&self) -> Option<Modules> {
        self.session.as_ref().map(|session| session.modules)
    }

    /// The peer's public key, where the credentials have one: for the owner to judge.
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.session.as_ref()?.peer_key
    }

    /// Who does what below DDP; before the handshake is done, what this end would like best.
    pub fn capabilities(&self) -> Capabilities {
        let agreed = self.session.as_ref().map(|session| session.modules.protection);
        capabilities(agreed.unwrap_or(self.config.protection))
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Counters of the losses of `path`.
    pub fn recovery_stats(&self, path: PathId) -> Option<RecoveryStats> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.stats)
    }

    /// The controller of `path`, to look at.
    pub fn controller(&self, path: PathId) -> Option<&dyn crate::cc::Controller> {
        self.paths.get(usize::from(path.0)).map(|path| path.controller())
    }

    /// The controller that `stream` has of its own on `path`, to look at, once it has sent there.
    pub fn controller_of(
        &self,
        path: PathId,
        stream: StreamId,
    ) -> Option<&dyn crate::cc::Controller> {
        self.paths.get(usize::from(path.0))?.controller_of(stream)
    }

    /// What is worth keeping of `path` for a later connection to the same peer.
    pub fn saved(&self, path: PathId) -> Option<crate::cc::Saved> {
        self.controller(path)?.saved()
    }

    /// The round trip of `path`.
    pub fn rtt(&self, path: PathId) -> Option<crate::cc::Rtt> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.rtt())
    }

    /// Octets of datagrams on their way over `path`: sent, and neither acknowledged nor lost.
    pub fn in_flight_octets(&self, path: PathId) -> Option<u64> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.in_flight_octets())
    }

    /// Octets of memory that follow what is in flight: records of bursts, runs of losses, a bit
    /// for each packet that may arrive; and segments that wait to be placed.
    pub fn kept_octets(&self) -> usize {
        let paths = self.paths.iter();
        let paths = paths.map(|path| path.recovery.kept_octets() + path.arrivals.kept_octets());
        let streams = self.streams.iter().map(|(_, stream)| stream);
        let streams = streams.map(|stream| stream.send.kept_octets() + stream.recv.kept_octets());
        paths.chain(streams).sum()
    }

    /// Whether the peer has placed everything that was sent.
    pub fn is_settled(&self) -> bool {
        self.streams.iter().all(|(_, stream)| stream.send.is_settled())
    }
}
