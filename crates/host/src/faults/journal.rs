//! What a process tells `weft run --scenario` of its faults: lines that it appends to a file.
//!
//! `begin PID NS RANK NAME` when its plan is read, `start PID NS` when times of connections begin
//! to count, `fault PID NS PLACE` when the fault at a place of the plan happens. NS is of
//! `CLOCK_MONOTONIC`; RANK is `-` for a process that has none.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_os::{own_file, plain_file, sys};

use super::identity::ProcessIdentity;

/// The variable that names the file.
pub const VARIABLE: &str = "WEFT_JOURNAL";

/// Lines about one fault of one process at most: a share would fill the disk.
const LINES_MAX: u32 = 16;
/// Bytes of the first line that tell whether a file is a journal: more than its first three words.
const HEAD_OCTETS: u64 = 64;

/// The open file, and how much was said of each fault.
pub(super) struct FaultJournal {
    file: File,
    said: Vec<AtomicU32>,
}

impl FaultJournal {
    /// The file that the environment names, if it is a journal that can be written, for a plan of
    /// `faults` faults.
    pub fn from_environment(identity: &ProcessIdentity, faults: usize) -> Option<Self> {
        let path = std::env::var_os(VARIABLE)?;
        let file = open(Path::new(&path)).inspect_err(|error| {
            log::warn!("{VARIABLE} is ignored: {}: {error}", path.display());
        });
        let file = file.ok()?;
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

/// Opens a journal: an empty file, or one that begins as a process begins its part.
fn open(path: &Path) -> io::Result<File> {
    let (file, _) = plain_file::open_as(path, OpenOptions::new().read(true).append(true))?;
    let mut head = Vec::new();
    (&file).take(HEAD_OCTETS).read_to_end(&mut head)?;
    match head.is_empty() || is_begin(&head) {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidData, "not a journal of faults")),
    }
}

/// Whether a line begins with `begin PID NS` and a rank.
fn is_begin(line: &[u8]) -> bool {
    let mut words = line.split(|octet| *octet == b' ');
    let is_number = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    words.next() == Some(b"begin")
        && words.by_ref().take(2).filter(|word| is_number(word)).count() == 2
        && words.next().is_some_and(|rank| rank == b"-" || is_number(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weft-journal-{}-{test}", std::process::id()))
    }

    #[test]
    fn only_a_journal_is_appended_to() {
        let path = path("other");
        for text in ["notes\n", "begin 644 victim\n", "begin 7 100 x\n", "\n"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(open(&path).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
        }
        std::fs::write(&path, "").unwrap();
        for rank in ["-", "3"] {
            let journal = FaultJournal { file: open(&path).unwrap(), said: Vec::new() };
            journal.say("begin", &format!("{rank} ib_write_bw"));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text.matches("begin ").count(), 2, "{text}");
    }

    #[test]
    fn a_pipe_is_no_journal_and_is_not_waited_for() {
        let path = path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let opened = open(&path);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
