//! Reports on stderr, one line each; nothing ever goes to stdout. [`weft_host::LogFormat`] is the
//! form of a line.

use std::fmt::Arguments;
use std::net::SocketAddr;
use std::sync::OnceLock;

use log::{Level, LevelFilter, Log, Metadata, Record};
use weft_host::LogFormat;
use weft_net::report::ToldLines;
use weft_os::{clock, stderr};
use weft_sync::Mutex;

/// How the user makes SDP possible, or permits TCP.
const REMEDY: &str = "run the program there by `weft run --sockets` with the same WEFT_KEY and \
    have firewalls let UDP through to that port, or permit TCP by WEFT_SOCKETS=prefer or a rule in \
    WEFT_SOCKETS_RULES";

/// The carrier of a connection, or of those that a listener gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier<'a> {
    /// SDP over a fabric, in a style.
    Sdp(&'a str, &'a str),
    /// A pair of sockets, both ends on this host.
    Pair,
    /// The kernel's TCP, for this reason.
    Tcp(&'a str),
}

/// The reports of a process.
pub struct Reports {
    verbose: bool,
    /// Lines that are written once.
    told: Mutex<ToldLines>,
}

/// Writes the log lines of Weft's crates to stderr.
struct StderrLog;

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            format().put_record(record, &stderr::put_line);
        }
    }

    fn flush(&self) {}
}

/// The form of the lines of this process.
fn format() -> LogFormat {
    static FORMAT: OnceLock<LogFormat> = OnceLock::new();
    *FORMAT.get_or_init(LogFormat::of_environment)
}

/// From now on writes the log, up to the level of `WEFT_LOG`.
pub fn write_engine_log() {
    // Only the first call can succeed, and there is one.
    let _set = log::set_logger(&StderrLog);
    let level = std::env::var("WEFT_LOG").ok().and_then(|value| value.parse().ok());
    log::set_max_level(level.unwrap_or(LevelFilter::Warn));
}

/// Warns that something failed, or differs from what the user asked for.
pub fn warn(text: Arguments<'_>) {
    format().put(Level::Warn, text, &[], &stderr::put_line);
}

impl Reports {
    /// Those of a process. A child of a fork does not repeat the lines of its `parent`, unless
    /// another thread of that held the lock at the fork.
    pub fn new(verbose: bool, parent: Option<&Self>) -> Self {
        let told = parent.and_then(|parent| parent.told.try_lock().map(|told| told.clone()));
        Self { verbose, told: Mutex::new(told.unwrap_or_default()) }
    }

    /// There is no connection to `peer`: SDP has failed, and TCP is forbidden.
    pub fn refused(&self, peer: SocketAddr, why: &str) {
        let text = format!("refused to connect to {peer} by clear TCP: {why}; {REMEDY}");
        self.once(Level::Error, &text);
    }

    /// `peer` has not answered by UDP, and TCP is forbidden.
    pub fn silent(&self, peer: SocketAddr) {
        let (ip, port) = (peer.ip(), peer.port());
        let text = format!(
            "no answer by UDP from {ip} port {port}, which is not connected to by clear TCP: \
             {REMEDY}"
        );
        self.once(Level::Error, &text);
    }

    /// A listener at `at` serves this machine alone.
    pub fn unserved(&self, at: SocketAddr, why: &str) {
        let text = format!(
            "callers of other hosts are refused at {at}: {why}, and clear TCP is for this machine; \
             WEFT_SOCKETS=prefer or a rule in WEFT_SOCKETS_RULES permits it"
        );
        self.once(Level::Warn, &text);
    }

    /// Writes a line once: applications try again and again.
    fn once(&self, level: Level, text: &str) {
        let mut told = self.told.lock();
        if told.admit(clock::now(), level, text) {
            format().put(level, format_args!("{text}"), &[], &stderr::put_line);
        }
    }

    /// A connection to `peer` was made.
    pub fn connected(&self, peer: SocketAddr, carrier: Carrier<'_>) {
        self.tell("connected", "connected to", peer, carrier);
    }

    /// A connection from `peer` was made.
    pub fn accepted(&self, peer: SocketAddr, carrier: Carrier<'_>) {
        self.tell("accepted", "accepted", peer, carrier);
    }

    /// An application listens at `at`.
    pub fn listens(&self, at: SocketAddr, carrier: Carrier<'_>) {
        self.tell("listens", "listens at", at, carrier);
    }

    fn tell(&self, event: &str, what: &str, address: SocketAddr, carrier: Carrier<'_>) {
        if !self.verbose {
            return;
        }
        let carrier = match carrier {
            Carrier::Sdp(fabric, style) => format!("SDP over {fabric}, {style}"),
            Carrier::Pair => "a pair on this host".to_owned(),
            Carrier::Tcp(why) => format!("TCP, {why}"),
        };
        let text = format!("{what} {address}: {carrier}");
        match format() {
            LogFormat::Text => {
                stderr::put_line(format!("weft: {}: {text}\n", std::process::id()).as_bytes());
            }
            LogFormat::Json => {
                let whose = if event == "listens" { "at" } else { "peer" };
                let address = address.to_string();
                let fields = [("event", event), (whose, &address), ("carrier", &carrier)];
                format().put(Level::Info, format_args!("{text}"), &fields, &stderr::put_line);
            }
        }
    }
}
