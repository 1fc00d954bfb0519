//! What happens in a process, as qlog: draft-ietf-quic-qlog-main-schema, in JSON text sequences
//! (RFC 7464).
//!
//! Events of Shuttle have the names of draft-ietf-quic-qlog-quic-events where they fit, so that
//! tools for QUIC show them; those of verbs have names of their own.

use std::fmt::{self, Write as _};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process;
use std::sync::Arc;

use weft_os::{clock, own_file};
use weft_sync::Mutex;

use crate::names::{claim, program_name};
use crate::qlog::TraceTap;

/// What each record of a JSON text sequence begins with.
const RECORD: char = '\u{1e}';

/// What a process writes of its events.
pub struct EventTrace {
    path: PathBuf,
    /// When it began, in nanoseconds since 1970: times of events count from here.
    began_ns: u64,
    output: Mutex<TraceOutput>,
}

enum TraceOutput {
    /// Nothing has happened yet.
    Waiting,
    /// The file, and the process that opened it: a forked child has a file of its own.
    Open(File, u32),
    /// It could not be written.
    Ended,
}

impl EventTrace {
    /// A trace into `path`, where `%p` is the process id. Its file is made when something happens.
    pub fn new(path: PathBuf) -> Arc<Self> {
        let output = Mutex::new(TraceOutput::Waiting);
        Arc::new(Self { path, began_ns: clock::time_of_day_ns(), output })
    }

    /// What sees the packets of a connection of the queue pair with this number.
    pub fn tap(self: &Arc<Self>, qp: u32) -> TraceTap {
        TraceTap::new(Arc::clone(self), qp)
    }

    /// Writes an event of a queue pair, if it is one's; `data` is the members of a JSON object. If
    /// that fails, it says so once, and nothing is written any more.
    pub fn event(&self, qp: Option<u32>, name: &str, data: fmt::Arguments<'_>) {
        let time_ms = clock::time_of_day_ns().saturating_sub(self.began_ns) as f64 / 1e6;
        let mut record = String::new();
        // Writing to a String cannot fail.
        let _ = write!(record, "{RECORD}{{\"time\":{time_ms:.6},\"name\":\"{name}\"");
        if let Some(qp) = qp {
            let _ = write!(record, ",\"group_id\":\"{qp:#x}\"");
        }
        let _ = writeln!(record, ",\"data\":{{{data}}}}}");
        let mut output = self.output.lock();
        if let Err(error) = self.write(&mut output, &record) {
            *output = TraceOutput::Ended;
            log::warn!("the trace into {} ends: {error}", self.path.display());
        }
    }

    fn write(&self, output: &mut TraceOutput, record: &str) -> io::Result<()> {
        let stale = match output {
            TraceOutput::Waiting => true,
            TraceOutput::Open(_, owner) => *owner != process::id(),
            TraceOutput::Ended => return Ok(()),
        };
        if stale {
            let (_, mut file) = claim(&self.path, false, process::id())?;
            own_file::writing(|| file.write_all(self.head().as_bytes()))?;
            *output = TraceOutput::Open(file, process::id());
        }
        match output {
            TraceOutput::Open(file, _) => own_file::writing(|| file.write_all(record.as_bytes())),
            _ => Ok(()),
        }
    }

    /// The record that says what the others are.
    fn head(&self) -> String {
        let title = format!("{}, process {}", json_text(&program_name()), process::id());
        let reference_ms = self.began_ns as f64 / 1e6;
        format!(
            "{RECORD}{{\"qlog_version\":\"0.3\",\"qlog_format\":\"JSON-SEQ\",\
             \"title\":\"{title}\",\"trace\":{{\"vantage_point\":{{\"name\":\"Weft\",\
             \"type\":\"unknown\"}},\"common_fields\":{{\"time_format\":\"relative\",\
             \"reference_time\":{reference_ms:.6},\"protocol_type\":[\"SHUTTLE\"]}}}}}}\n"
        )
    }
}

/// Text as it may stand between the quotes of a JSON string.
pub fn json_text(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_cannot_break_a_record() {
        assert_eq!(json_text("a\"b\\c\n"), "a\\\"b\\\\c\\u000a");
    }
}
