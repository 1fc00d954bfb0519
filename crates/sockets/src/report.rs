//! Reports on stderr, one line each; nothing ever goes to stdout.

use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::net::SocketAddr;

use log::{LevelFilter, Log, Metadata, Record};
use weft_net::report::level_label;
use weft_sync::Mutex;

/// Different lines about refused connections, in the life of a process.
const REFUSALS_MAX: usize = 64;

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
    told: Mutex<BTreeSet<String>>,
}

/// Writes the log lines of Weft's crates to stderr.
struct StderrLog;

impl Log for StderrLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let label = level_label(record.level());
        line(format_args!("weft: {label}: {}", record.args()));
    }

    fn flush(&self) {}
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
    line(format_args!("weft: warning: {text}"));
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
        self.once(format!(
            "weft: error: refused to connect to {peer} by clear TCP: {why}; {REMEDY}"
        ));
    }

    /// `peer` has not answered by UDP, and TCP is forbidden.
    pub fn silent(&self, peer: SocketAddr) {
        let (ip, port) = (peer.ip(), peer.port());
        self.once(format!(
            "weft: error: no answer by UDP from {ip} port {port}, which is not connected to by \
             clear TCP: {REMEDY}"
        ));
    }

    /// A listener at `at` serves this machine alone.
    pub fn unserved(&self, at: SocketAddr, why: &str) {
        self.once(format!(
            "weft: warning: callers of other hosts are refused at {at}: {why}, and clear TCP is \
             for this machine; WEFT_SOCKETS=prefer or a rule in WEFT_SOCKETS_RULES permits it"
        ));
    }

    /// Writes a line once: applications try again and again.
    fn once(&self, text: String) {
        let mut told = self.told.lock();
        if told.len() < REFUSALS_MAX && !told.contains(&text) {
            line(format_args!("{text}"));
            told.insert(text);
        }
    }

    /// A connection to `peer` was made.
    pub fn connected(&self, peer: SocketAddr, carrier: Carrier<'_>) {
        self.tell("connected to", peer, carrier);
    }

    /// A connection from `peer` was made.
    pub fn accepted(&self, peer: SocketAddr, carrier: Carrier<'_>) {
        self.tell("accepted", peer, carrier);
    }

    /// An application listens at `at`.
    pub fn listens(&self, at: SocketAddr, carrier: Carrier<'_>) {
        self.tell("listens at", at, carrier);
    }

    fn tell(&self, what: &str, peer: SocketAddr, carrier: Carrier<'_>) {
        if !self.verbose {
            return;
        }
        let id = std::process::id();
        match carrier {
            Carrier::Sdp(fabric, style) => {
                line(format_args!("weft: {id}: {what} {peer}: SDP over {fabric}, {style}"));
            }
            Carrier::Pair => line(format_args!("weft: {id}: {what} {peer}: a pair on this host")),
            Carrier::Tcp(why) => line(format_args!("weft: {id}: {what} {peer}: TCP, {why}")),
        }
    }
}

/// One write, so that lines of several threads and processes do not mix; without a stderr it fails,
/// and nobody is there to be told.
fn line(text: Arguments<'_>) {
    let text = format!("{text}\n");
    // SAFETY: the buffer is `text`, alive and of this length.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
