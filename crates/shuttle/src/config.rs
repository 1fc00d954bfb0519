//! Configuration of one end of a connection, checked before the handshake.

use core::net::SocketAddr;

use weft_wire::shuttle::ConnectionId;
use weft_wire::shuttle::hello::{HelloLimits, Modules, placement, protection, recovery};

use crate::cc;
use crate::error::ShuttleMisuse;
use crate::noise::Credentials;
use crate::stream::{Placement, Repair};

/// Most streams of a connection, 256: the low byte of a connection id names one.
pub const MAX_STREAMS: u16 = 256;
/// Most paths of a connection, 16: each costs a controller, and a key epoch under a cipher.
pub const MAX_PATHS: usize = 16;
/// Packets under one key at most: half of what RFC 9001, section 6.6, allows for AES-GCM.
pub const PACKETS_PER_KEY: u64 = 1 << 22;
/// Smallest path MTU supported, in bytes of UDP payload (RFC 9000 requires the same).
pub const MIN_DATAGRAM: u16 = 1200;
/// Largest datagram, in bytes: the maximum UDP payload over IPv4.
pub const MAX_DATAGRAM: u16 = 65507;

/// Capabilities and preferences of one end.
#[derive(Clone, Debug)]
pub struct ShuttleConfig {
    /// Protections that are acceptable, as bits of [`weft_wire::shuttle::hello::protection`]. The
    /// strongest that both accept is used.
    pub protection: u8,
    /// Authentication of the peers, if a cipher is among the protections.
    pub credentials: Credentials,
    /// Placements that are acceptable, as bits of [`weft_wire::shuttle::hello::placement`]. Tail is
    /// preferred, then strict.
    pub placement: u8,
    /// Packets under one key of a cipher, after which it changes: 1 to [`PACKETS_PER_KEY`].
    pub packets_per_key: u64,
    /// Loss recovery that is acceptable, as bits of [`weft_wire::shuttle::hello::recovery`].
    /// Duplicated tails are preferred, then full recovery; none only if that is the only one in
    /// common.
    pub recovery: u8,
    /// Sends again twice what is lost where nothing else is to be sent (S-57), with full recovery.
    /// The peer need not know of it.
    pub lost_twice: bool,
    /// Streams that the peer may use, 1 to [`MAX_STREAMS`].
    pub streams: u16,
    /// Initial datagram size in bytes: one that the path carries for certain.
    pub datagram_octets: u16,
    /// Largest datagram size in bytes that path MTU discovery tries: the MTU of the host's
    /// interface. Discovery is off unless it exceeds `datagram_octets`.
    pub datagram_octets_goal: u16,
    /// Largest datagram in bytes that this end can receive.
    pub datagram_octets_max: u16,
    /// ORD: Reads and Atomics that this end keeps outstanding.
    pub ord: u16,
    /// IRD: Reads and Atomics of the peer that this end serves at a time.
    pub ird: u16,
    /// Idle timeout in nanoseconds; the smaller of both ends' values holds.
    pub idle_ns: u64,
    /// Whether this end sends keep-alives before the idle timeout.
    pub keep_alive: bool,
    /// Silence until the first keep-alive, in nanoseconds; doubles with each further one, up to a
    /// third of `idle_ns` and 10 s.
    pub keep_alive_ns: u64,
    /// Handshake timeout in nanoseconds.
    pub handshake_ns: u64,
    /// The peer may delay its answer to a Request: the handshake does not measure the round trip.
    pub may_wait: bool,
    /// This end's Request can be withdrawn, and is if it is given up before it was answered (S-25).
    pub may_withdraw: bool,
    /// A responder whose initiator withdraws its Request waits for another one, until it is closed.
    pub outlives_withdrawal: bool,
    /// Assumed round trip in nanoseconds until one is measured.
    pub initial_rtt_ns: u64,
    /// Reassembly buffer of a stream in bytes: segments held until they may be placed.
    pub held_octets: usize,
    /// Rate limit for the peer over all paths, in bits of UDP payload per second; `u64::MAX` for
    /// none.
    pub receive_rate_bps: u64,
    /// Path properties saved from an earlier connection to this peer
    /// ([`crate::ShuttleConnection::saved`]); used if the round trip is within a fifth of the saved
    /// one.
    pub saved: Option<cc::Saved>,
    /// Address-validation cookie from the peer's answer to a Probe with this end's [`Identity`]
    /// (S-9); it saves a Retry. May be empty.
    pub cookie: Vec<u8>,
    /// Time of day in milliseconds since 1970, by which a responder with the same pre-shared key
    /// may grant the Request without a Retry (S-24); `None` if unknown.
    pub unix_ms: Option<u64>,
    /// Further addresses of this end, of which the first
    /// [`MAX_ADDRESSES`](weft_wire::shuttle::hello::MAX_ADDRESSES) are named to a peer that wants
    /// several paths too (S-75); `None` if this end wants one only.
    pub addresses: Option<Vec<SocketAddr>>,
    /// Constructor of each path's rate controller.
    pub controller: cc::Make,
    /// Parameters of the controller.
    pub controller_params: cc::Params,
}

impl Default for ShuttleConfig {
    fn default() -> Self {
        Self {
            protection: protection::CRC32C,
            credentials: Credentials::Anonymous,
            placement: placement::TAIL,
            packets_per_key: PACKETS_PER_KEY,
            recovery: recovery::FULL,
            lost_twice: false,
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
            may_withdraw: false,
            outlives_withdrawal: false,
            initial_rtt_ns: 100_000_000,
            held_octets: 16 << 20,
            receive_rate_bps: u64::MAX,
            saved: None,
            cookie: Vec::new(),
            unix_ms: None,
            addresses: None,
            controller: cc::fixed,
            controller_params: cc::Params {
                initial_rate_bps: Some(100_000_000),
                ..cc::Params::default()
            },
        }
    }
}

/// Random values of a connection, supplied by its owner.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Connection id that the peer's packets carry: unique among the owner's connections, random,
    /// its low byte zero.
    pub cid: ConnectionId,
    /// This end's half of the connection's secret: 64 random bits.
    pub nonce: u64,
    /// Seed of the connection's other random numbers: 64 random bits.
    pub seed: u64,
    /// Entropy of the ephemeral key with which a Request under a cipher is made. The responder
    /// passes its own to [`crate::PeerRequest::parse`].
    pub entropy: [u8; 32],
}

impl ShuttleConfig {
    pub(crate) fn check(&self) -> Result<(), ShuttleMisuse> {
        let valid = (1..=MAX_STREAMS).contains(&self.streams)
            && (MIN_DATAGRAM..=MAX_DATAGRAM).contains(&self.datagram_octets)
            && self.datagram_octets <= self.datagram_octets_max
            && (1..=PACKETS_PER_KEY).contains(&self.packets_per_key)
            && self.protection & SUPPORTED != 0;
        if valid { Ok(()) } else { Err(ShuttleMisuse::Config) }
    }

    pub(crate) fn modules(&self) -> Modules {
        Modules {
            protection: self.protection & SUPPORTED,
            placement: self.placement,
            recovery: self.recovery,
        }
    }

    pub(crate) fn limits(&self) -> HelloLimits {
        HelloLimits {
            datagram_octets: self.datagram_octets_max,
            streams: self.streams,
            ord: self.ord,
            ird: self.ird,
            idle_ms: u32::try_from(self.idle_ns / 1_000_000).unwrap_or(u32::MAX),
            // Rounded up: 0 on the wire would mean no limit.
            rate_kbps: self.receive_rate_bps.div_ceil(1000),
        }
    }
}

/// Protections that this build supports.
const SUPPORTED: u8 = CIPHERS | protection::NONE | protection::CRC32C;
/// Protections that need key agreement.
pub(crate) const CIPHERS: u8 = protection::AES128GCM | protection::CHACHA20POLY1305;

/// Most preferred module of each kind that both sets contain; `None` if a kind has none in common.
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

/// Loss recovery of a chosen module.
pub(crate) fn repair_of(modules: Modules, lost_twice: bool) -> Option<Repair> {
    match modules.recovery {
        recovery::FULL if lost_twice => Some(Repair::LostTwice),
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
        assert_eq!(ShuttleConfig::default().check(), Ok(()));
        for config in [
            ShuttleConfig { streams: 0, ..ShuttleConfig::default() },
            ShuttleConfig { streams: 257, ..ShuttleConfig::default() },
            ShuttleConfig { datagram_octets: 100, ..ShuttleConfig::default() },
            ShuttleConfig {
                datagram_octets_max: 1400,
                datagram_octets: 1500,
                ..ShuttleConfig::default()
            },
            ShuttleConfig { protection: 0, ..ShuttleConfig::default() },
            ShuttleConfig { packets_per_key: 0, ..ShuttleConfig::default() },
            ShuttleConfig { packets_per_key: PACKETS_PER_KEY + 1, ..ShuttleConfig::default() },
        ] {
            assert_eq!(config.check(), Err(ShuttleMisuse::Config));
        }
    }
}
