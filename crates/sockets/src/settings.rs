//! What the environment asks for, read at the first socket of IP that connects or listens.

use std::sync::OnceLock;
use std::time::Duration;

use weft_io::Transport;

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
            let mut off = is("WEFT", "off");
            let rules = Rules::read(&rules).unwrap_or_else(|error| {
                // Rules keep programs from peers that they must not reach in another way.
                report::warn(format_args!("WEFT_SOCKETS_RULES: {error}; all go by TCP"));
                off = true;
                Rules::default()
            });
            Self {
                off,
                verbose: is("WEFT_SOCKETS_VERBOSE", "on"),
                basic: is("WEFT_SOCKETS_STYLE", "basic"),
                patience: patience.map_or(PATIENCE, Duration::from_millis),
                iwarp: weft_io::Settings::get().transport == Transport::Iwarp,
                rules,
            }
        })
    }
}
