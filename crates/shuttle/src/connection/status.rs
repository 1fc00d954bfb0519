//! Observation of a connection: counters, round trips, controllers.

use weft_wire::capability::Capabilities;
use weft_wire::shuttle::hello::Modules;
use weft_wire::shuttle::{PathId, StreamId};

use super::ShuttleConnection;
use crate::capability::capabilities;
use crate::recovery::RecoveryStats;

/// Counters of a connection since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionStats {
    /// Datagrams sent.
    pub datagrams_out: u64,
    /// Segments sent, retransmissions included.
    pub segments_out: u64,
    /// Bytes of retransmitted segments.
    pub octets_resent: u64,
    /// Segments retransmitted.
    pub segments_resent: u64,
    /// Control packets sent.
    pub control_out: u64,
    /// Authentic new packets received.
    pub packets_in: u64,
    /// Duplicate segments received.
    pub duplicate_segments: u64,
    /// Duplicate packets, and packets beyond the receive window.
    pub stale_packets: u64,
    /// Segments dropped because the reassembly buffer was full.
    pub unheld_segments: u64,
    /// Datagrams that were not authentic packets of this connection.
    pub foreign_datagrams: u64,
}

impl ShuttleConnection {
    /// Time of the last authentic packet.
    pub fn heard_ns(&self) -> u64 {
        self.heard_ns
    }

    /// Since when `stream` has waited for the peer. While the peer lacks segments, only those that
    /// it gets show that the path carries them: small packets pass one that has become too small
    /// (S-55). The same holds for the peer's segments while it has all of this end's, and may owe
    /// responses. What it has and does not place waits for its application, as long as it is heard.
    pub fn waits_since_ns(&self, stream: StreamId) -> u64 {
        match self.streams.get(stream).map(|stream| &stream.send) {
            Some(send) if send.next_dsn() == 0 => self.heard_ns,
            Some(send) if send.is_settled() => self.advanced_ns.max(self.data_ns),
            Some(send) if !send.has_arrived(send.next_dsn()) => self.advanced_ns,
            _ => self.heard_ns,
        }
    }

    /// Agreed modules, one bit each; `None` before the handshake is complete.
    pub fn modules(&self) -> Option<Modules> {
        self.session.as_ref().map(|session| session.modules)
    }

    /// Public key of the peer, if the credentials have one; the owner decides whether to trust it.
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.session.as_ref()?.peer_key
    }

    /// Capabilities below DDP; before the handshake is complete, those preferred by this end.
    pub fn capabilities(&self) -> Capabilities {
        let agreed = self.session.as_ref().map(|session| session.modules.protection);
        capabilities(agreed.unwrap_or(self.config.protection))
    }

    /// The counters so far.
    pub fn stats(&self) -> ConnectionStats {
        self.stats
    }

    /// Count of segments that `stream` has taken from its source.
    pub fn taken(&self, stream: StreamId) -> u64 {
        self.streams.get(stream).map_or(0, |stream| stream.send.taken())
    }

    /// Whether the peer has the first `count` segments of `stream`, placed or held.
    pub fn has_arrived(&self, stream: StreamId, count: u64) -> bool {
        self.streams.get(stream).is_some_and(|stream| stream.send.has_arrived(count))
    }

    /// The paths on which the peer has answered, whether or not it does now.
    pub fn paths(&self) -> impl Iterator<Item = PathId> {
        self.paths.iter().filter(|path| path.validated).map(|path| path.id)
    }

    /// Loss recovery counters of `path`.
    pub fn recovery_stats(&self, path: PathId) -> Option<RecoveryStats> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.stats)
    }

    /// Controller of `path`, read-only.
    pub fn controller(&self, path: PathId) -> Option<&dyn crate::cc::Controller> {
        self.paths.get(usize::from(path.0)).map(|path| path.controller())
    }

    /// The stream's own controller on `path`, read-only, once it has sent there.
    pub fn controller_of(
        &self,
        path: PathId,
        stream: StreamId,
    ) -> Option<&dyn crate::cc::Controller> {
        self.paths.get(usize::from(path.0))?.controller_of(stream)
    }

    /// Path properties to save for a later connection to the same peer.
    pub fn saved(&self, path: PathId) -> Option<crate::cc::Saved> {
        self.controller(path)?.saved()
    }

    /// Round trip estimate of `path`.
    pub fn rtt(&self, path: PathId) -> Option<crate::cc::Rtt> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.rtt())
    }

    /// Bytes in flight on `path`: sent, and neither acknowledged nor lost.
    pub fn in_flight_octets(&self, path: PathId) -> Option<u64> {
        self.paths.get(usize::from(path.0)).map(|path| path.recovery.in_flight_octets())
    }

    /// Heap memory in bytes that grows with what is in flight: records of flights, runs of losses,
    /// a bit for each packet that may arrive, and held segments.
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
