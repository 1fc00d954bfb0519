//! What a person must be told and no verb can say: one line each, through the [`log`] facade, to
//! the logger of the library that this engine is part of.
//!
//! What went wrong is told once, however often it happens; the attempts and changes of state that
//! led to it are for who asks for `debug`.

use std::collections::BTreeSet;

use log::Level;
use weft_sync::Mutex;

/// Different lines that are told in the life of a process.
const LINES_MAX: usize = 64;

/// Tells what the application asked for and cannot have.
pub(crate) fn error(line: String) {
    once(Level::Error, line);
}

/// Tells what is probably not as the person believes.
pub(crate) fn warning(line: String) {
    once(Level::Warn, line);
}

/// Tells a line once: peers repeat themselves, and so do applications with many queue pairs.
fn once(level: Level, line: String) {
    static TOLD: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut told = TOLD.lock();
    if told.len() < LINES_MAX && !told.contains(&line) {
        log::log!(level, "{line}");
        told.insert(line);
    }
}
