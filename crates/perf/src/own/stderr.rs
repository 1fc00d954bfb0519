//! The log of Weft's crates on stderr, in the form that it has under `libweft.so`.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};
use weft_host::level_label;

struct PerfLog;

impl Log for PerfLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        let label = level_label(record.level());
        let line = format!("weft: {label}: {}\n", record.args());
        // Without a stderr there is nobody to tell.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}

/// Writes the log from now on, up to the level of `WEFT_LOG`; of later calls nothing comes.
pub fn write_log() {
    if log::set_logger(&PerfLog).is_ok() {
        let level = std::env::var("WEFT_LOG").ok().and_then(|value| value.parse().ok());
        log::set_max_level(level.unwrap_or(LevelFilter::Warn));
    }
}
