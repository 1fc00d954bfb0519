//! How far a query is, on a terminal only.

use std::io::{self, IsTerminal, Write};

/// A line on stderr that is written over; nothing if nobody watches.
#[derive(Debug)]
pub struct ProgressLine {
    what: &'static str,
    percent: Option<u64>,
    shown: bool,
}

impl ProgressLine {
    /// Nothing of `what` is done yet.
    pub fn new(what: &'static str) -> Self {
        Self { what, percent: None, shown: io::stderr().is_terminal() }
    }

    /// So many parts of `all` are done.
    pub fn show(&mut self, done: u64, all: u64) {
        let percent = done * 100 / all.max(1);
        if self.shown && self.percent.replace(percent) != Some(percent) {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "\r{}: {percent} %\x1b[K", self.what);
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.percent.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
