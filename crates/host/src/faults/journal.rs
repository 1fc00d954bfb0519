//! What a process tells `weft run --scenario` of its faults: lines that it appends to a file.
//!
//! `begin PID NS RANK NAME` when its plan is read, `start PID NS` when times of connections begin
//! to count, `fault PID NS PLACE` when the fault at a place of the plan happens. NS is of
//! `CLOCK_MONOTONIC`; RANK is `-` for a process that has none.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::{own_file, sys};

use super::identity::ProcessIdentity;

/// The variable that names the file.
pub const VARIABLE: &str = "WEFT_JOURNAL";

/// Lines about one fault of one process at most: a share would fill the disk.
const LINES_MAX: u32 = 16;

/// The open file, and how much was said of each fault.
pub(super) struct FaultJournal {
    file: File,
    said: Vec<AtomicU32>,
}

impl FaultJournal {
    /// The file that the environment names, if it can be written, for a plan of `faults` faults.
    pub fn from_environment(identity: &ProcessIdentity, faults: usize) -> Option<Self> {
        let path = std::env::var_os(VARIABLE)?;
        let file = OpenOptions::new().append(true).open(path).ok()?;
        let said = (0..faults).map(|_| AtomicU32::new(0)).collect();
        let journal = Self { file, said };
        let rank = identity.rank.map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        journal.say("begin", &format!("{rank} {}", identity.name));
        Some(journal)
    }

    /// Times begin to count.
    pub fn start(&self) {
        self.say("start", "");
    }

    /// The fault at `place` of the plan happens.
    pub fn fault(&self, place: usize) {
        let said = self.said.get(place).map(|said| said.fetch_add(1, Ordering::Relaxed));
        if said.is_some_and(|said| said < LINES_MAX) {
            self.say("fault", &place.to_string());
        }
    }

    /// The same, said once.
    pub fn fault_once(&self, place: usize) {
        let said = self.said.get(place).map(|said| said.fetch_max(LINES_MAX, Ordering::Relaxed));
        if said == Some(0) {
            self.say("fault", &place.to_string());
        }
    }

    fn say(&self, what: &str, more: &str) {
        let (pid, ns) = (std::process::id(), sys::monotonic_ns());
        let line = format!("{what} {pid} {ns} {more}\n");
        // One write, so that lines of several processes stay whole. A disk that is full is no
        // reason to disturb the application.
        let _ = own_file::writing(|| (&self.file).write_all(line.as_bytes()));
    }
}
