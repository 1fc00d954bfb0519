//! The log of Weft's crates on stderr, in the form that it has under `libweft.so`.

use std::io::Write;
use std::sync::OnceLock;

use log::{LevelFilter, Log, Metadata, Record};
use weft_host::LogFormat;

struct PerfLog {
    format: LogFormat,
}

impl Log for PerfLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        self.format.put_record(record, &|line| {
            // Without a stderr there is nobody to tell.
            let _ = std::io::stderr().write_all(line);
        });
    }

    fn flush(&self) {}
}

/// Writes the log from now on, up to the level of `WEFT_LOG` and in the form of `WEFT_LOG_FORMAT`;
/// of later calls nothing comes.
pub fn write_log() {
    static LOG: OnceLock<PerfLog> = OnceLock::new();
    let log = LOG.get_or_init(|| PerfLog { format: LogFormat::of_environment() });
    if log::set_logger(log).is_ok() {
        let level = std::env::var("WEFT_LOG").ok().and_then(|value| value.parse().ok());
        log::set_max_level(level.unwrap_or(LevelFilter::Warn));
    }
}
