//! Diagnostics: one line each, to stderr or to the file that `VERBS_LOG_FILE` names, never to
//! stdout. With `WEFT_LOG_FORMAT=json` a line is an object, with the fields of its event.
//!
//! A line is formatted first and written with one `write`, so lines of several threads and
//! processes do not mix. Failures to write are not reported: there is nowhere to report them. Lines
//! of the usual length allocate nothing, since a process may end in a handler of a signal.

use std::ffi::{CStr, c_int};
use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::OnceLock;

use ::log::kv::{self, Key, Value, VisitSource};
use ::log::{LevelFilter, Log, Metadata, Record};

use crate::env;

/// Bytes of a line that need no allocation.
const LINE_USUAL: usize = 256;

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
        match self {
            Self::Silent => LevelFilter::Off,
            Self::Error => LevelFilter::Error,
            Self::Warn => LevelFilter::Warn,
            Self::Info => LevelFilter::Info,
            Self::Debug => LevelFilter::Debug,
            Self::Trace => LevelFilter::Trace,
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Silent => "",
            Self::Error => "error",
            Self::Warn => "warning",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

impl From<::log::Level> for LogLevel {
    fn from(level: ::log::Level) -> Self {
        match level {
            ::log::Level::Error => Self::Error,
            ::log::Level::Warn => Self::Warn,
            ::log::Level::Info => Self::Info,
            ::log::Level::Debug => Self::Debug,
            ::log::Level::Trace => Self::Trace,
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
        let fields = |line: &mut String| put_fields(record, line);
        write_with(record.level().into(), *record.args(), &fields);
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
    write_with(level, message, &|_| ());
}

/// The same; in JSON with further `fields`.
fn write_with(level: LogLevel, message: fmt::Arguments<'_>, fields: &dyn Fn(&mut String)) {
    let settings = env::settings();
    if level > settings.log {
        return;
    }
    if settings.log_json {
        let fd = destination(settings.log_file.as_deref());
        return write_to(fd, json(level, message, fields).as_bytes());
    }
    let mut room = [0; LINE_USUAL];
    let mut rest = &mut room[..];
    let whole = format_args!("weft: {}: {message}\n", level.label());
    let fd = destination(settings.log_file.as_deref());
    match rest.write_fmt(whole) {
        Ok(()) => {
            let left = rest.len();
            write_to(fd, &room[..LINE_USUAL - left]);
        }
        Err(_) => write_to(fd, whole.to_string().as_bytes()),
    }
}

/// An object on a line: time, level, process, message, and the fields of the event.
fn json(level: LogLevel, message: fmt::Arguments<'_>, fields: &dyn Fn(&mut String)) -> String {
    let time_s = weft_os::clock::time_of_day_ns() as f64 / 1e9;
    let (label, process) = (level.label(), std::process::id());
    let mut line = format!("{{\"time\":{time_s:.6},\"level\":\"{label}\",\"pid\":{process}");
    put_text("message", &message.to_string(), &mut line);
    fields(&mut line);
    line.push_str("}\n");
    line
}

/// Appends a member with a text.
fn put_text(key: &str, text: &str, line: &mut String) {
    let _cannot_fail = write!(line, ",\"{key}\":\"{}\"", weft_host::json_text(text));
}

/// Appends the fields that an event was told with.
fn put_fields(record: &Record<'_>, line: &mut String) {
    struct Fields<'a>(&'a mut String);
    impl<'kvs> VisitSource<'kvs> for Fields<'_> {
        fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), kv::Error> {
            if let Some(number) = value.to_u64() {
                let _cannot_fail = write!(self.0, ",\"{key}\":{number}");
                return Ok(());
            }
            let text = value.to_string();
            // What is not known, and what has no reason.
            if !text.is_empty() && text != "None" {
                put_text(key.as_str(), &text, self.0);
            }
            Ok(())
        }
    }
    let _cannot_fail = record.key_values().visit(&mut Fields(line));
}

fn write_to(fd: c_int, line: &[u8]) {
    // SAFETY: the buffer is `line`, alive and of this length.
    unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
}

/// Writes a line: `log!(Warn, "port {} is down", port)`.
macro_rules! log {
    ($level:ident, $($text:tt)*) => {
        $crate::log::write($crate::log::LogLevel::$level, format_args!($($text)*))
    };
}
pub(crate) use log;

fn destination(file: Option<&CStr>) -> c_int {
    static FD: OnceLock<c_int> = OnceLock::new();
    *FD.get_or_init(|| file.and_then(open).unwrap_or(libc::STDERR_FILENO))
}

fn open(path: &CStr) -> Option<c_int> {
    let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
    // SAFETY: the path is NUL-terminated; the mode is the variadic argument O_CREAT wants.
    let fd = unsafe { libc::open(path.as_ptr(), flags, 0o644 as libc::c_uint) };
    (fd >= 0).then_some(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_the_fields_of_its_event() {
        let pairs =
            [("qp", Value::from(0x11)), ("peer", Value::from("a\"b")), ("none", Value::null())];
        let record = Record::builder().key_values(&pairs).build();
        let fields = |line: &mut String| put_fields(&record, line);
        let line = json(LogLevel::Info, format_args!("up\n"), &fields);
        assert!(line.starts_with("{\"time\":") && line.ends_with("}\n"), "{line}");
        let rest = ",\"message\":\"up\\u000a\",\"qp\":17,\"peer\":\"a\\\"b\"}\n";
        assert!(line.contains("\"level\":\"info\"") && line.ends_with(rest), "{line}");
    }

    #[test]
    fn numbers_and_names_agree_on_severity() {
        assert_eq!(LogLevel::parse(b"WARN"), Some(LogLevel::Warn));
        assert_eq!(LogLevel::parse(b"loud"), None);
        assert_eq!(LogLevel::parse_number(b"0"), Some(LogLevel::Silent));
        assert_eq!(LogLevel::parse_number(b"99"), Some(LogLevel::Debug));
        assert_eq!(LogLevel::parse_number(b"x"), None);
        assert!(LogLevel::Error < LogLevel::Warn && LogLevel::Info < LogLevel::Debug);
    }
}
