//! What is going on, on a terminal only.

use std::io::{self, IsTerminal, Write};

/// A line on stderr that is written over and over; nothing if nobody watches.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
}

impl Progress {
    /// A line that is still empty.
    pub fn new() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    /// Shows `text` instead of what was there.
    pub fn show(&self, text: &str) {
        if self.shown {
            // Progress that cannot be shown is no reason to stop.
            let _ = write!(io::stderr(), "\r{text}\x1b[K");
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.show("");
    }
}
