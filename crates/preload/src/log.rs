//! Diagnostics: one line each, to stderr or to the file that `VERBS_LOG_FILE` names, never to
//! stdout. [`weft_host::LogFormat`] is the form of a line, which is written with one `write`.
//! Failures to write are not reported: there is nowhere to report them.

use std::ffi::{CStr, OsStr, c_int};
use std::fmt;
use std::fs::OpenOptions;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::sync::OnceLock;

use ::log::{Level, LevelFilter, Log, Metadata, Record};
use weft_os::thread::Uncancelled;
use weft_os::{fds, own_file, stderr};

use crate::env;

/// How severe a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Nothing is written at this level; it silences all others.
    Silent,
    /// Something the application asked for could not be done.
    Error,
    /// Something is probably not as the user believes.
    Warn,
    /// A connection or device changed state.
    Info,
    /// Every change of state.
    Debug,
    /// Everything but the data path.
    Trace,
}

impl LogLevel {
    /// The level that `WEFT_LOG` names.
    pub fn parse(value: &[u8]) -> Option<Self> {
        let level = match value.to_ascii_lowercase().as_slice() {
            b"error" => Self::Error,
            b"warn" => Self::Warn,
            b"info" => Self::Info,
            b"debug" => Self::Debug,
            b"trace" => Self::Trace,
            b"off" => Self::Silent,
            _ => return None,
        };
        Some(level)
    }

    /// The level that `VERBS_LOG_LEVEL` numbers: 0 is silent, 4 and more are everything.
    pub fn parse_number(value: &[u8]) -> Option<Self> {
        let number: u32 = std::str::from_utf8(value).ok()?.trim().parse().ok()?;
        let levels = [Self::Silent, Self::Error, Self::Warn, Self::Info, Self::Debug];
        Some(levels[(number as usize).min(levels.len() - 1)])
    }

    fn filter(self) -> LevelFilter {
        self.level().map_or(LevelFilter::Off, |level| level.to_level_filter())
    }

    fn level(self) -> Option<Level> {
        match self {
            Self::Silent => None,
            Self::Error => Some(Level::Error),
            Self::Warn => Some(Level::Warn),
            Self::Info => Some(Level::Info),
            Self::Debug => Some(Level::Debug),
            Self::Trace => Some(Level::Trace),
        }
    }
}

/// Writes the log of Weft's crates.
struct PreloadLog;

impl Log for PreloadLog {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= ::log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            env::settings().log_format.put_record(record, &write_line);
        }
    }

    fn flush(&self) {}
}

/// Writes the log from now on, up to `level`.
pub fn install(level: LogLevel) {
    // Only the first call can succeed, and there is one.
    let _set = ::log::set_logger(&PreloadLog);
    ::log::set_max_level(level.filter());
}

/// Writes one line if `level` is severe enough.
pub fn write(level: LogLevel, message: fmt::Arguments<'_>) {
    let settings = env::settings();
    if let Some(level_of_line) = level.level().filter(|_| level <= settings.log) {
        settings.log_format.put(level_of_line, message, &[], &write_line);
    }
}

fn write_line(line: &[u8]) {
    let _uncancelled = Uncancelled::begin();
    match own_log(env::settings().log_file.as_deref()) {
        Some(fd) => own_file::put_line(fd, line),
        None => stderr::put_line(line),
    }
}

/// Writes a line: `log!(Warn, "port {} is down", port)`.
macro_rules! log {
    ($level:ident, $($text:tt)*) => {
        $crate::log::write($crate::log::LogLevel::$level, format_args!($($text)*))
    };
}
pub(crate) use log;

/// The file that lines go to in place of standard error.
fn own_log(file: Option<&CStr>) -> Option<c_int> {
    static FD: OnceLock<Option<c_int>> = OnceLock::new();
    if fds::are_lost() {
        // It has closed ours, and its own file may have the number.
        return None;
    }
    *FD.get_or_init(|| file.and_then(open))
}

/// A FIFO is not opened: without a reader it would be waited for, and one that goes away would end
/// the application by SIGPIPE.
fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o644).custom_flags(flags);
    let file = options.open(OsStr::from_bytes(path.to_bytes())).ok()?;
    let is_fifo = file.metadata().ok()?.file_type().is_fifo();
    (!is_fifo).then(|| file.into_raw_fd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_agree_on_severity() {
        assert_eq!(LogLevel::parse(b"WARN"), Some(LogLevel::Warn));
        assert_eq!(LogLevel::parse(b"loud"), None);
        assert_eq!(LogLevel::parse_number(b"0"), Some(LogLevel::Silent));
        assert_eq!(LogLevel::parse_number(b"99"), Some(LogLevel::Debug));
        assert_eq!(LogLevel::parse_number(b"x"), None);
        assert!(LogLevel::Error < LogLevel::Warn && LogLevel::Info < LogLevel::Debug);
    }
    #[test]
    fn a_pipe_is_no_log_and_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weft-log-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
        let without_reader = open(&name);
        let flags = libc::O_NONBLOCK;
        let reader = OpenOptions::new().read(true).custom_flags(flags).open(&path).unwrap();
        let with_reader = open(&name);
        drop(reader);
        std::fs::remove_file(&path).unwrap();
        assert_eq!([without_reader, with_reader], [None; 2]);
    }
}
