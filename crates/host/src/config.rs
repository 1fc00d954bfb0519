//! What the environment sets. Values that make no sense are reported by the preload, and the
//! default holds.

use std::thread;
use std::time::Duration;

use weft_net::ports::PortBounds;
use weft_reactor::THREADS_MAX;

/// The names of all variables that Weft reads, in any of its parts; docs/environment.md has them.
pub const VARIABLES: [&str; 34] = [
    "WEFT",
    "WEFT_LOG",
    "WEFT_LOG_FORMAT",
    "WEFT_LIB",
    "WEFT_SEED",
    "WEFT_CRC",
    "WEFT_MARKERS",
    "WEFT_LANE",
    "WEFT_PROGRESS",
    "WEFT_PORTS",
    "WEFT_STALL_TIMEOUT_MS",
    "WEFT_THREADS",
    "WEFT_DEV",
    "WEFT_DEVICES",
    "WEFT_FAULT",
    "WEFT_PASSTHROUGH",
    "WEFT_PCAP",
    "WEFT_TRACE",
    "WEFT_STATS",
    "WEFT_OBSERVE",
    "WEFT_TALLY",
    "WEFT_JOURNAL",
    "WEFT_UNKNOWN",
    "WEFT_KEY",
    "WEFT_INSECURE",
    "WEFT_TRANSPORT",
    "WEFT_SOCKETS",
    "WEFT_SOCKETS_RULES",
    "WEFT_SOCKETS_VERBOSE",
    "WEFT_SOCKETS_STYLE",
    "WEFT_SOCKETS_PATIENCE_MS",
    "WEFT_PATHS",
    "WEFT_MULTIPATH",
    "WEFT_STATIC",
];

/// Who makes progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressMode {
    /// The threads that post and poll, whenever they do; the engine only when nobody does for a
    /// while.
    Inline,
    /// The engine alone.
    Engine,
    /// Threads that post and poll, and the engine for everything else.
    Hybrid,
}

/// Which transport the connection manager uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmTransport {
    /// Shuttle where the peer takes it, else iWARP.
    Auto,
    /// Shuttle over UDP.
    Shuttle,
    /// iWARP over TCP.
    Iwarp,
}

/// Whether connections between processes of one host go by shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneUse {
    /// They go by the network.
    Off,
    /// They do, all bytes of them.
    Copy,
    /// They do; where the system allows it, a receiver reads long payloads from the sender's
    /// process.
    On,
}

/// The settings of this process.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// `WEFT_CRC`: ask for CRCs. Without it a peer that asks still gets them.
    pub crc: bool,
    /// `WEFT_MARKERS`: ask the peer for markers.
    pub markers: bool,
    /// `WEFT_TRANSPORT`, of a device that `WEFT_DEVICES` leaves.
    pub transport: CmTransport,
    /// `WEFT_PROGRESS`.
    pub progress: ProgressMode,
    /// `WEFT_STALL_TIMEOUT_MS`: how long a frame may stay incomplete; a millisecond at least and
    /// [`STALL_TIMEOUT_MS_MAX`] at most.
    pub stall_after: Duration,
    /// `WEFT_LANE`: carry connections between processes of one host by shared memory.
    pub lane: LaneUse,
    /// `WEFT_PORTS`: which ports are taken where nobody names one.
    pub ports: PortBounds,
    /// Which ports further paths take; those of `ports` by the environment.
    pub path_ports: PortBounds,
    /// `WEFT_THREADS`: threads of the engine, at least one and at most [`THREADS_MAX`].
    pub threads: usize,
    /// Connections by Shuttle send twice what is lost at the end (S-57). No variable asks for it.
    pub lost_twice: bool,
}

/// Milliseconds that a connection waits for a silent peer at most: a year. Sums with the clock do
/// not overflow.
pub const STALL_TIMEOUT_MS_MAX: u64 = 365 * 24 * 3600 * 1000;

/// Threads that the engine has at most, unless `WEFT_THREADS` asks for more.
const THREADS: usize = 4;

/// Of the processors that this process may use, as many as serve connections by themselves.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from).min(THREADS)
}

impl Settings {
    /// The settings, by what the variables say.
    pub fn read(variable: impl Fn(&str) -> Option<String>) -> Self {
        let switch = |name, default: bool| match variable(name).as_deref() {
            Some("on") => true,
            Some("off") => false,
            _ => default,
        };
        let progress = match variable("WEFT_PROGRESS").as_deref() {
            Some("inline") => ProgressMode::Inline,
            Some("engine") => ProgressMode::Engine,
            _ => ProgressMode::Hybrid,
        };
        let transport = match variable("WEFT_TRANSPORT").as_deref() {
            Some("shuttle") => CmTransport::Shuttle,
            Some("iwarp") => CmTransport::Iwarp,
            _ => CmTransport::Auto,
        };
        let stall_ms = variable("WEFT_STALL_TIMEOUT_MS").and_then(|v| v.parse().ok());
        let stall_ms = stall_ms.filter(|ms| (1..=STALL_TIMEOUT_MS_MAX).contains(ms));
        let threads = variable("WEFT_THREADS").and_then(|v| v.parse().ok());
        let threads = threads.filter(|threads| (1..=THREADS_MAX).contains(threads));
        let ports = variable("WEFT_PORTS").and_then(|v| PortBounds::parse(&v)).unwrap_or_default();
        Self {
            crc: switch("WEFT_CRC", true),
            markers: switch("WEFT_MARKERS", false),
            transport,
            progress,
            lane: match variable("WEFT_LANE").as_deref() {
                Some("off") => LaneUse::Off,
                Some("copy") => LaneUse::Copy,
                _ => LaneUse::On,
            },
            stall_after: Duration::from_millis(stall_ms.unwrap_or(60_000)),
            ports,
            path_ports: ports,
            threads: threads.unwrap_or_else(processors),
            lost_twice: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_makes_no_sense_leaves_the_default() {
        let settings = Settings::read(|name| match name {
            "WEFT_CRC" => Some("off".into()),
            "WEFT_THREADS" => Some("17".into()),
            "WEFT_MARKERS" => Some("perhaps".into()),
            "WEFT_STALL_TIMEOUT_MS" => Some(u64::MAX.to_string()),
            _ => None,
        });
        assert!(!settings.crc && !settings.markers);
        assert_eq!(settings.progress, ProgressMode::Hybrid);
        assert_eq!(settings.transport, CmTransport::Auto);
        assert_eq!(settings.stall_after, Duration::from_secs(60));
        assert_eq!(settings.threads, processors());
    }
}
