//! What the user must be told and no verb can say: one line each, to whoever asked for them.

use std::collections::BTreeSet;
use std::fmt::Arguments;
use std::sync::OnceLock;

use weft_sync::Mutex;

/// Different lines that are told in the life of a process.
const LINES_MAX: usize = 64;

static SINK: OnceLock<fn(Arguments<'_>)> = OnceLock::new();

/// Has errors told to `sink` from now on. The first call counts.
pub fn to(sink: fn(Arguments<'_>)) {
    SINK.get_or_init(|| sink);
}

/// Tells an error, once: peers repeat themselves, and so do programs with many queue pairs.
pub(crate) fn error(line: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock();
    if told.len() < LINES_MAX
        && !told.contains(&line)
        && let Some(sink) = SINK.get()
    {
        sink(format_args!("{line}"));
        told.insert(line);
    }
}
