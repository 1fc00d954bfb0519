//! Settings from the environment, read when the first TCP socket connects, listens or is watched.

use std::ffi::CStr;
use std::net::SocketAddr;
use std::time::Duration;

use weft_host::CmTransport;

use crate::near::TcpUse;
use crate::rules::{RuleWay, Rules, SocketRole};
use crate::{rdma, report};

/// How long the answer by SDP may take after that by TCP.
const ANSWER_LIMIT: Duration = Duration::from_millis(50);

unsafe extern "C" {
    /// The last part of the path of the executable, from the C library.
    static program_invocation_short_name: *const libc::c_char;
}

/// The settings of this process.
#[derive(Debug)]
pub struct SocketSettings {
    /// `WEFT=off`: no function is intercepted.
    pub off: bool,
    /// `WEFT_SOCKETS_VERBOSE=on`: each connection is reported.
    pub verbose: bool,
    /// `WEFT_SOCKETS_STYLE=basic`: SDP as over an adapter that does everything.
    pub basic: bool,
    /// `WEFT_SOCKETS=strict`, or a key and nothing else said: other hosts are reached by SDP or not
    /// at all.
    pub strict: bool,
    /// `WEFT_TRANSPORT=iwarp`: the fabric is iWARP instead of Shuttle.
    pub iwarp: bool,
    /// Two applications of one host get a pair: without `WEFT_LANE=off`, a key, or faults.
    pairs: bool,
    /// Hosts that are near are connected to by TCP: nothing is to be sealed, and nothing asks for a
    /// fabric.
    near_by_tcp: bool,
    /// `WEFT_SOCKETS_PATIENCE_MS`: how long the answer by SDP may take after that by TCP, at least.
    pub answer_limit: Duration,
    /// `WEFT_SOCKETS_RULES`: the sockets that SDP may carry.
    rules: Rules,
    /// The name of the executable, which rules may name.
    executable: String,
}

impl SocketSettings {
    /// Reads the environment, and installs the log from then on.
    pub fn read() -> Self {
        report::write_engine_log();
        let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|v| v == value);
        let rules = std::env::var_os("WEFT_SOCKETS_RULES").unwrap_or_default();
        let limit = std::env::var("WEFT_SOCKETS_PATIENCE_MS");
        let limit = limit.ok().and_then(|value| value.parse().ok());
        let strict = match std::env::var("WEFT_SOCKETS").as_deref() {
            Ok("strict") => true,
            Ok("prefer") => false,
            _ => rdma::host().secrecy().has_key(),
        };
        let iwarp = rdma::host().settings().transport == CmTransport::Iwarp;
        let mut off = is("WEFT", "off");
        let rules = Rules::read(&rules.to_string_lossy()).unwrap_or_else(|error| {
            let instead = if strict { "none of them holds" } else { "all go by TCP" };
            report::warn(format_args!("WEFT_SOCKETS_RULES: {error}; {instead}"));
            // Rules keep applications from peers that they must not reach by SDP; but what is for
            // SDP alone does not go by TCP because of a mistake.
            off |= !strict;
            Rules::default()
        });
        Self {
            off,
            verbose: is("WEFT_SOCKETS_VERBOSE", "on"),
            strict,
            basic: is("WEFT_SOCKETS_STYLE", "basic"),
            answer_limit: limit.map_or(ANSWER_LIMIT, Duration::from_millis),
            pairs: !is("WEFT_LANE", "off") && !rdma::host().is_observed(),
            near_by_tcp: !strict && !iwarp && !rdma::host().secrecy().has_key(),
            iwarp,
            rules,
            executable: executable(),
        }
    }

    /// Whether pairs may be offered to a listener at `at`.
    pub fn pairs_server(&self, at: SocketAddr) -> bool {
        self.pairs && self.rules.way(SocketRole::Server, at, &self.executable) == RuleWay::Both
    }

    /// Whether a peer at `remote` may be offered a pair.
    pub fn pairs_client(&self, remote: SocketAddr) -> bool {
        self.pairs && self.rules.way(SocketRole::Client, remote, &self.executable) == RuleWay::Both
    }

    /// What TCP is for on the way to a peer at `remote`; `is_forbidden` says that it may not take
    /// the place of SDP.
    pub fn tcp_use(&self, remote: SocketAddr, is_forbidden: bool) -> TcpUse {
        let way = self.rules.way(SocketRole::Client, remote, &self.executable);
        match way {
            _ if is_forbidden => TcpUse::Forbidden,
            RuleWay::Both if self.near_by_tcp => TcpUse::WhereNear,
            RuleWay::Both | RuleWay::Sdp | RuleWay::Tcp => TcpUse::Fallback,
        }
    }

    /// Whether a listener at `at` may be reached by SDP.
    pub fn permits_server(&self, at: SocketAddr) -> bool {
        self.rules.permit(SocketRole::Server, at, &self.executable)
    }

    /// Whether a peer at `remote` may be reached by SDP.
    pub fn permits_client(&self, remote: SocketAddr) -> bool {
        self.rules.permit(SocketRole::Client, remote, &self.executable)
    }
}

fn executable() -> String {
    // SAFETY: the C library sets it before any application code runs.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: it is a string that lives as long as the process.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}
