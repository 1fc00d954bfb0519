//! What one end brings to the handshake.

use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{Limits, Modules, placement, protection, recovery};

use crate::cc;
use crate::error::Misuse;
use crate::noise::Credentials;
use crate::stream::{Placement, Repair};

/// Streams of a connection at most: the low octet of a connection id names one.
pub const MAX_STREAMS: u16 = 256;
/// Paths of a connection at most.
pub const MAX_PATHS: usize = 16;
/// Packets under one key at most: half of what RFC 9001, section 6.6, allows for AES-GCM.
pub const PACKETS_PER_KEY: u64 = 1 << 22;
/// Octets of the smallest datagram that every path must carry.
pub const MIN_DATAGRAM: u16 = 1200;
/// Octets of the largest that is ever sent: UDP over IPv4 ends there.
pub const MAX_DATAGRAM: u16 = 65507;

/// What one end can do and wants.
#[derive(Clone, Debug)]
pub struct Config {
    /// Protections that are acceptable, as bits of [`weft_wire::shuttle::hello::protection`]. The
    /// strongest that both accept is used.
    pub protection: u8,
    /// What tells the two ends from strangers, if a cipher is among the protections.
    pub credentials: Credentials,
    /// Placements that are acceptable, as bits of [`weft_wire::shuttle::hello::placement`]. Tail is
    /// preferred, then strict.
    pub placement: u8,
    /// Packets under one key of a cipher, after which it changes: 1 to [`PACKETS_PER_KEY`].
    pub packets_per_key: u64,
    /// What may be done about losses, as bits of [`weft_wire::shuttle::hello::recovery`]. Sending
    /// the tail twice is preferred, then full recovery; nothing at all only if that is common.
    pub recovery: u8,
    /// Streams that the peer may use, 1 to [`MAX_STREAMS`].
    pub streams: u16,
    /// Octets of a datagram to begin with: one that the path carries for certain.
    pub datagram_octets: u16,
    /// Octets of the largest datagram that may be tried on a path: what the host's interface
    /// carries. Not larger than `datagram_octets` means that nothing is tried.
    pub datagram_octets_goal: u16,
    /// Octets of the largest datagram that can be received.
    pub datagram_octets_max: u16,
    /// Reads and Atomics that this end will have outstanding.
    pub ord: u16,
    /// Reads and Atomics of the peer that this end serves at a time.
    pub ird: u16,
    /// Silence after which the connection is given up. The smaller of both ends' counts.
    pub idle_ns: u64,
    /// Whether this end asks for a sign of life before the silence is that long.
    pub keep_alive: bool,
    /// Silence after data has come until the first of these questions; each further silence may be
    /// twice as long, up to a third of `idle_ns` and 10 s.
    pub keep_alive_ns: u64,
    /// Time for the handshake.
    pub handshake_ns: u64,
    /// The peer may let a Request wait: the time until its answer says nothing about the path.
    pub may_wait: bool,
    /// Round trip to assume before one is measured.
    pub initial_rtt_ns: u64,
    /// Octets of segments that a stream holds until they may be placed.
    pub held_octets: usize,
    /// What the peer may send in all, in bits of UDP payload per second; `u64::MAX` for no limit.
    pub receive_rate_bps: u64,
    /// What an earlier connection learnt of the way to this peer ([`crate::Connection::saved`]); it
    /// is used if the round trip is still about the same.
    pub saved: Option<cc::Saved>,
    /// A cookie that the peer has made for this end's [`Identity`] in its answer to a Probe (S-9);
    /// it saves a Retry. May be empty.
    pub cookie: Vec<u8>,
    /// Makes the controller of each path.
    pub controller: cc::Make,
    /// What to make it from.
    pub controller_params: cc::Params,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            protection: protection::CRC32C,
            credentials: Credentials::Anonymous,
            placement: placement::TAIL,
            packets_per_key: PACKETS_PER_KEY,
            recovery: recovery::FULL,
            streams: 1,
            datagram_octets: MIN_DATAGRAM,
            datagram_octets_goal: MIN_DATAGRAM,
            datagram_octets_max: MAX_DATAGRAM,
            ord: 255,
            ird: 255,
            idle_ns: 30 * cc::SECOND_NS,
            keep_alive: true,
            keep_alive_ns: 10 * cc::SECOND_NS,
            handshake_ns: 10 * cc::SECOND_NS,
            may_wait: false,
            initial_rtt_ns: 100_000_000,
            held_octets: 16 << 20,
            receive_rate_bps: u64::MAX,
            saved: None,
            cookie: Vec::new(),
            controller: cc::fixed,
            controller_params: cc::Params {
                initial_rate_bps: Some(100_000_000),
                ..cc::Params::default()
            },
        }
    }
}

/// What must be unguessable or unique about a connection, drawn and given by its owner.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Where the peer's packets go: unique among the owner's connections, unguessable, its low
    /// octet zero.
    pub cid: ConnectionId,
    /// Half of the connection's secret: fresh randomness.
    pub nonce: u64,
    /// Seed of every other random number of the connection: fresh randomness.
    pub seed: u64,
    /// Of the key that this end draws when it asks for a connection under a cipher: fresh
    /// randomness. Who grants gives it to [`crate::Request::parse`].
    pub entropy: [u8; 32],
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Misuse> {
        let valid = (1..=MAX_STREAMS).contains(&self.streams)
            && (MIN_DATAGRAM..=MAX_DATAGRAM).contains(&self.datagram_octets)
            && self.datagram_octets <= self.datagram_octets_max
            && (1..=PACKETS_PER_KEY).contains(&self.packets_per_key)
            && self.protection & SUPPORTED != 0;
        if valid { Ok(()) } else { Err(Misuse::Config) }
    }

    pub(crate) fn modules(&self) -> Modules {
        Modules {
            protection: self.protection & SUPPORTED,
            placement: self.placement,
            recovery: self.recovery,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            datagram_octets: self.datagram_octets_max,
            streams: self.streams,
            ord: self.ord,
            ird: self.ird,
            idle_ms: u32::try_from(self.idle_ns / 1_000_000).unwrap_or(u32::MAX),
            // Rounded up, so that a limit never becomes none.
            rate_kbps: self.receive_rate_bps.div_ceil(1000),
        }
    }
}

/// Protections that are built in.
const SUPPORTED: u8 = CIPHERS | protection::NONE | protection::CRC32C;
/// Those that need keys.
pub(crate) const CIPHERS: u8 = protection::AES128GCM | protection::CHACHA20POLY1305;

/// The one module of each kind that both sets have and that is liked best.
pub(crate) fn choose(ours: Modules, theirs: Modules) -> Option<Modules> {
    let first = |both: u8, liked: &[u8]| liked.iter().copied().find(|bit| both & bit != 0);
    let protections =
        [protection::AES128GCM, protection::CHACHA20POLY1305, protection::CRC32C, protection::NONE];
    let placements = [placement::TAIL, placement::STRICT, placement::LOOSE];
    let recoveries = [recovery::TAIL_DUP, recovery::FULL, recovery::OFF];
    Some(Modules {
        protection: first(ours.protection & theirs.protection, &protections)?,
        placement: first(ours.placement & theirs.placement, &placements)?,
        recovery: first(ours.recovery & theirs.recovery, &recoveries)?,
    })
}

/// The placement of a chosen module.
pub(crate) fn placement_of(modules: Modules) -> Option<Placement> {
    match modules.placement {
        placement::STRICT => Some(Placement::Strict),
        placement::TAIL => Some(Placement::Tail),
        placement::LOOSE => Some(Placement::Loose),
        _ => None,
    }
}

/// What a chosen module does about losses.
pub(crate) fn repair_of(modules: Modules) -> Option<Repair> {
    match modules.recovery {
        recovery::FULL => Some(Repair::Full),
        recovery::TAIL_DUP => Some(Repair::TailTwice),
        recovery::OFF => Some(Repair::Off),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_that_both_have_is_chosen() {
        let set = |protection, placement| Modules { protection, placement, recovery: 1 };
        assert_eq!(choose(set(15, 2), set(14, 2)), Some(set(protection::AES128GCM, 2)));
        assert_eq!(choose(set(3, 7), set(3, 7)), Some(set(protection::CRC32C, placement::TAIL)));
        assert_eq!(choose(set(1, 5), set(3, 7)), Some(set(1, placement::STRICT)));
        assert_eq!(choose(set(1, 7), set(2, 7)), None);
        assert_eq!(choose(set(1, 1), set(1, 4)), None);
        let set = |recovery| Modules { protection: 1, placement: 1, recovery };
        assert_eq!(choose(set(7), set(7)), Some(set(recovery::TAIL_DUP)));
        assert_eq!(choose(set(5), set(7)), Some(set(recovery::FULL)));
        assert_eq!(choose(set(4), set(6)), Some(set(recovery::OFF)));
        assert_eq!(choose(set(4), set(3)), None);
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert_eq!(Config::default().check(), Ok(()));
        for config in [
            Config { streams: 0, ..Config::default() },
            Config { streams: 257, ..Config::default() },
            Config { datagram_octets: 100, ..Config::default() },
            Config { datagram_octets_max: 1400, datagram_octets: 1500, ..Config::default() },
            Config { protection: 0, ..Config::default() },
            Config { packets_per_key: 0, ..Config::default() },
            Config { packets_per_key: PACKETS_PER_KEY + 1, ..Config::default() },
        ] {
            assert_eq!(config.check(), Err(Misuse::Config));
        }
    }
}
