//! What is said on stderr: one line each, never anything on stdout.

use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::net::SocketAddr;

use log::{Level, LevelFilter, Log, Metadata, Record};
use weft_sync::Mutex;

use crate::settings::Settings;

/// Different lines about peers that were not connected to, in the life of a process.
const REFUSALS_MAX: usize = 64;

/// What makes SDP possible, or TCP permitted.
const REMEDY: &str = "run the program there by `weft run --sockets` with the same WEFT_KEY and \
    have firewalls let UDP through to that port, or permit TCP by WEFT_SOCKETS=prefer or a rule in \
    WEFT_SOCKETS_RULES";

/// Which way a connection went, or a listener is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way<'a> {
    /// SDP over a device, in a style.
    Sdp(&'a str, &'a str),
    /// The kernel's TCP, for this reason.
    Tcp(&'a str),
}

/// Writes what the engine logs.
struct EngineLog;

impl Log for EngineLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let label = match record.level() {
            Level::Error => "error",
            Level::Warn => "warning",
            Level::Info => "info",
            Level::Debug | Level::Trace => "debug",
        };
        line(format_args!("weft: {label}: {}", record.args()));
    }

    fn flush(&self) {}
}

/// Has the engine's lines written from now on, as far as `WEFT_LOG` says.
pub fn take_engine_lines() {
    // Only the first call can succeed, and there is one.
    let _set = log::set_logger(&EngineLog);
    let level = std::env::var("WEFT_LOG").ok().and_then(|value| value.parse().ok());
    log::set_max_level(level.unwrap_or(LevelFilter::Warn));
}

/// Says what went wrong, or will not be as the user believes.
pub fn warn(text: Arguments<'_>) {
    line(format_args!("weft: warning: {text}"));
}

/// Says that there is no connection to `peer`, which may not be reached by TCP in place of SDP.
pub fn refused(peer: SocketAddr, why: &str) {
    once(format!("weft: error: refused to connect to {peer} by clear TCP: {why}; {REMEDY}"));
}

/// Says that `peer` has not said anything by UDP, and may not be reached by TCP in place of SDP.
pub fn silent(peer: SocketAddr) {
    let (ip, port) = (peer.ip(), peer.port());
    once(format!(
        "weft: error: no answer by UDP from {ip} port {port}, which is not connected to by clear \
         TCP: {REMEDY}"
    ));
}

/// Says that a listener at `at` serves this machine alone.
pub fn unserved(at: SocketAddr, why: &str) {
    once(format!(
        "weft: warning: callers of other hosts are refused at {at}: {why}, and clear TCP is for \
         this machine; WEFT_SOCKETS=prefer or a rule in WEFT_SOCKETS_RULES permits it"
    ));
}

/// Programs try again and again.
fn once(text: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    // In the child of a fork the lock may be taken for ever.
    let Some(mut told) = TOLD.try_lock() else { return };
    if told.len() < REFUSALS_MAX && !told.contains(&text) {
        line(format_args!("{text}"));
        told.insert(text);
    }
}

/// Says which way a connection to `peer` went.
pub fn connected(peer: SocketAddr, way: Way<'_>) {
    told("connected to", peer, way);
}

/// Says which way a connection from `peer` came.
pub fn accepted(peer: SocketAddr, way: Way<'_>) {
    told("accepted", peer, way);
}

/// Says how a listener at `at` is reached.
pub fn listens(at: SocketAddr, way: Way<'_>) {
    told("listens at", at, way);
}

fn told(what: &str, peer: SocketAddr, way: Way<'_>) {
    if !Settings::get().verbose {
        return;
    }
    let id = std::process::id();
    match way {
        Way::Sdp(device, style) => {
            line(format_args!("weft: {id}: {what} {peer}: SDP over {device}, {style}"));
        }
        Way::Tcp(why) => line(format_args!("weft: {id}: {what} {peer}: TCP, {why}")),
    }
}

/// One write, so that lines of several threads and processes do not mix. Without a stderr there is
/// nobody to tell.
fn line(text: Arguments<'_>) {
    let text = format!("{text}\n");
    // SAFETY: the buffer is `text`, alive and of this length.
    unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}
