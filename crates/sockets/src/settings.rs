//! What the environment asks for, read at the first socket of IP that connects or listens.

use std::sync::OnceLock;
use std::time::Duration;

use weft_io::Transport;
use weft_net::secrecy::Secrecy;

use crate::report;
use crate::rules::Rules;

/// How long the answer for SDP may take.
const PATIENCE: Duration = Duration::from_millis(50);

/// The settings of this process.
#[derive(Debug)]
pub struct Settings {
    /// `WEFT=off`: nothing is intercepted.
    pub off: bool,
    /// `WEFT_SOCKETS_VERBOSE=on`: which connection went which way is told.
    pub verbose: bool,
    /// `WEFT_SOCKETS_STYLE=basic`: SDP as over an adapter that does everything.
    pub basic: bool,
    /// `WEFT_SOCKETS=strict`, or a key and nothing else said: other hosts are spoken to by SDP or
    /// not at all.
    pub strict: bool,
    /// `WEFT_TRANSPORT=iwarp`: the layer below is iWARP instead of Shuttle.
    pub iwarp: bool,
    /// `WEFT_SOCKETS_PATIENCE_MS`: how long the answer for SDP may take after that for TCP, at
    /// least.
    pub patience: Duration,
    /// `WEFT_SOCKETS_RULES`.
    pub rules: Rules,
}

impl Settings {
    /// The settings, read at the first call.
    pub fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            report::take_engine_lines();
            let is = |name: &str, value: &str| std::env::var_os(name).is_some_and(|v| v == value);
            let rules = std::env::var("WEFT_SOCKETS_RULES").unwrap_or_default();
            let patience = std::env::var("WEFT_SOCKETS_PATIENCE_MS");
            let patience = patience.ok().and_then(|value| value.parse().ok());
            let strict = match std::env::var("WEFT_SOCKETS").as_deref() {
                Ok("strict") => true,
                Ok("prefer") => false,
                _ => Secrecy::get().has_key(),
            };
            let mut off = is("WEFT", "off");
            let rules = Rules::read(&rules).unwrap_or_else(|error| {
                let instead = if strict { "none of them holds" } else { "all go by TCP" };
                report::warn(format_args!("WEFT_SOCKETS_RULES: {error}; {instead}"));
                // Rules keep programs from peers that they must not reach in another way; but what
                // is to go by SDP alone does not go by TCP because of a mistake.
                off |= !strict;
                Rules::default()
            });
            Self {
                off,
                verbose: is("WEFT_SOCKETS_VERBOSE", "on"),
                strict,
                basic: is("WEFT_SOCKETS_STYLE", "basic"),
                patience: patience.map_or(PATIENCE, Duration::from_millis),
                iwarp: weft_io::Settings::get().transport == Transport::Iwarp,
                rules,
            }
        })
    }
}
