//! Lines of the log, as text or as JSON: one form for the verbs library, the sockets library and
//! programs that have a host of their own.
//!
//! A line is formatted first and handed to its writer as a whole, so that one `write` has it and
//! lines of several threads and processes do not mix. Lines of text of the usual length allocate
//! nothing, since a process may end in a handler of a signal.

use std::borrow::Cow;
use std::fmt::{self, Write as _};
use std::io::Write as _;

use log::kv::{self, Key, Value, VisitSource};
use log::{Level, Record};
use weft_capture::json_text;
use weft_net::report::level_label;

/// Bytes of a line that need no allocation.
const LINE_USUAL: usize = 256;
/// Characters that a complaint has of its beginning and of its end where it is longer: what it
/// repeats of the environment may have any length.
const BEGINNING: usize = 400;
const END: usize = 600;

/// The variable that names a [`LogFormat`].
const VARIABLE: &str = "WEFT_LOG_FORMAT";

/// The form of a line of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// `weft: LEVEL: MESSAGE`.
    #[default]
    Text,
    /// An object, with the fields of the line's event.
    Json,
}

impl LogFormat {
    /// The format that a value of `WEFT_LOG_FORMAT` names.
    pub fn parse(value: &[u8]) -> Option<Self> {
        match value {
            b"text" => Some(Self::Text),
            b"json" => Some(Self::Json),
            _ => None,
        }
    }

    /// The format that the environment asks for: text where it names none.
    pub fn of_environment() -> Self {
        let value = std::env::var_os(VARIABLE);
        value.and_then(|value| Self::parse(value.as_encoded_bytes())).unwrap_or_default()
    }

    /// Hands the line of `record` to `write`.
    pub fn put_record(self, record: &Record<'_>, write: &dyn Fn(&[u8])) {
        let fields = |line: &mut String| put_fields(record, line);
        self.put_with(record.level(), *record.args(), &fields, write);
    }

    /// Hands a line with the text fields of its event, which JSON alone has, to `write`.
    pub fn put(
        self,
        level: Level,
        message: fmt::Arguments<'_>,
        fields: &[(&str, &str)],
        write: &dyn Fn(&[u8]),
    ) {
        let put_all = |line: &mut String| {
            fields.iter().for_each(|(key, text)| put_text(key, text, line));
        };
        self.put_with(level, message, &put_all, write);
    }

    fn put_with(
        self,
        level: Level,
        message: fmt::Arguments<'_>,
        fields: &dyn Fn(&mut String),
        write: &dyn Fn(&[u8]),
    ) {
        if self == Self::Json {
            return write(json(level, message, fields).as_bytes());
        }
        let mut room = [0; LINE_USUAL];
        let mut rest = &mut room[..];
        let whole = format_args!("weft: {}: {message}\n", level_label(level));
        match rest.write_fmt(whole) {
            Ok(()) => {
                let left = rest.len();
                write(&room[..LINE_USUAL - left]);
            }
            Err(_) => {
                let message = message.to_string();
                let message = abridged(level, &message);
                write(format!("weft: {}: {message}\n", level_label(level)).as_bytes());
            }
        }
    }
}

/// A complaint without its middle, if it is very long.
pub fn abridged(level: Level, message: &str) -> Cow<'_, str> {
    if level > Level::Warn || message.chars().count() <= BEGINNING + END {
        return message.into();
    }
    let end = message.char_indices().rev().nth(END - 1).map_or(0, |(at, _)| at);
    let beginning = message.chars().take(BEGINNING);
    beginning.chain("...".chars()).chain(message[end..].chars()).collect()
}

/// An object on a line: time, level, process, message, and the fields of the event.
fn json(level: Level, message: fmt::Arguments<'_>, fields: &dyn Fn(&mut String)) -> String {
    let time_s = weft_os::clock::time_of_day_ns() as f64 / 1e9;
    let (label, process) = (level_label(level), std::process::id());
    let mut line = format!("{{\"time\":{time_s:.6},\"level\":\"{label}\",\"pid\":{process}");
    put_text("message", &abridged(level, &message.to_string()), &mut line);
    fields(&mut line);
    line.push_str("}\n");
    line
}

/// Appends a member with a text.
fn put_text(key: &str, text: &str, line: &mut String) {
    let _cannot_fail = write!(line, ",\"{key}\":\"{}\"", json_text(text));
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn put_of(put: impl Fn(&dyn Fn(&[u8]))) -> Vec<String> {
        let lines = RefCell::new(Vec::new());
        put(&|line| lines.borrow_mut().push(String::from_utf8_lossy(line).into_owned()));
        lines.into_inner()
    }

    #[test]
    fn a_line_of_json_has_the_fields_of_its_event() {
        let pairs =
            [("qp", Value::from(0x11)), ("peer", Value::from("a\"b")), ("none", Value::null())];
        let args = format_args!("up\n");
        let record = Record::builder().key_values(&pairs).level(Level::Info).args(args).build();
        let lines = put_of(|write| LogFormat::Json.put_record(&record, write));
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with("{\"time\":") && line.contains("\"level\":\"info\""), "{line}");
        let rest = ",\"message\":\"up\\u000a\",\"qp\":17,\"peer\":\"a\\\"b\"}\n";
        assert!(line.ends_with(rest), "{line}");
        let fields = [("peer", "a")];
        let lines = put_of(|write| {
            LogFormat::Json.put(Level::Warn, format_args!("down"), &fields, write);
        });
        assert!(lines[0].ends_with(",\"message\":\"down\",\"peer\":\"a\"}\n"), "{lines:?}");
    }

    #[test]
    fn a_line_of_text_is_one_piece_whatever_its_length() {
        for length in [0, LINE_USUAL - 21, LINE_USUAL - 20, BEGINNING + END] {
            let text = "x".repeat(length);
            let lines = put_of(|write| {
                LogFormat::Text.put(Level::Warn, format_args!("{text}"), &[("a", "b")], write);
            });
            assert_eq!(lines, [format!("weft: warning: {text}\n")]);
        }
    }

    #[test]
    fn what_a_complaint_repeats_is_cut_and_what_it_says_of_it_stays() {
        let value = "\u{e4}".repeat(100_000);
        for format in [LogFormat::Text, LogFormat::Json] {
            let lines = put_of(|write| {
                let text = format_args!("WEFT_PCAP is ignored: {value} is no number");
                format.put(Level::Warn, text, &[], write);
            });
            let [line] = &lines[..] else { panic!("{lines:?}") };
            assert!(line.len() < 2500, "{line}");
            assert!(line.contains("WEFT_PCAP is ignored: ") && line.contains("is no number"));
        }
        let long = abridged(Level::Debug, &value);
        assert_eq!(long.len(), value.len(), "who asks for it gets all of it");
    }
}
