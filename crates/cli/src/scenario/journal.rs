//! What the processes of a run say of their faults, as it stands in the file that they append to
//! (`weft_host::JOURNAL_VARIABLE`).

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A line of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    /// Which process.
    pub pid: u32,
    /// When, on the monotonic clock.
    pub at_ns: u64,
    /// What happened.
    pub what: JournalEvent,
}

/// What happened in a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEvent {
    /// It has read its plan.
    Begin {
        /// Its rank in its job, if it has one.
        rank: Option<u32>,
        /// The name of its program.
        name: String,
    },
    /// The times of its connections begin to count.
    Start,
    /// The fault at this place of the plan happens.
    Fault(usize),
}

/// The file, which is removed when this is dropped.
pub struct JournalFile(PathBuf);

impl JournalFile {
    /// Makes an empty file for this user alone.
    ///
    /// # Errors
    /// None can be made in the directory of temporary files.
    pub fn create() -> io::Result<Self> {
        let dir = std::env::temp_dir();
        for number in 0..u32::MAX {
            let path = dir.join(format!("weft-journal-{}-{number}", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path) {
                Ok(_) => return Ok(Self(path)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Everything that stands in it, in the order of time.
    pub fn read(&self) -> Vec<JournalEntry> {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        let mut entries: Vec<_> = text.lines().filter_map(entry).collect();
        entries.sort_by_key(|entry| entry.at_ns);
        entries
    }
}

impl Drop for JournalFile {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.0);
    }
}

fn entry(line: &str) -> Option<JournalEntry> {
    let mut words = line.splitn(4, ' ');
    let (what, pid, at_ns) = (words.next()?, words.next()?.parse().ok()?, words.next()?);
    let rest = words.next().unwrap_or_default();
    let what = match what {
        "begin" => {
            let (rank, name) = rest.split_once(' ')?;
            JournalEvent::Begin { rank: rank.parse().ok(), name: name.to_owned() }
        }
        "start" => JournalEvent::Start,
        "fault" => JournalEvent::Fault(rest.parse().ok()?),
        _ => return None,
    };
    Some(JournalEntry { pid, at_ns: at_ns.parse().ok()?, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_in_the_order_of_time_and_others_are_left_out() {
        let file = JournalFile::create().unwrap();
        let text =
            "fault 7 300 2\nbegin 7 100 - ib write\nnonsense\nstart 8 200 \nbegin 8 150 3 x\n";
        fs::write(file.path(), text).unwrap();
        let begin = |rank, name: &str| JournalEvent::Begin { rank, name: name.into() };
        let expected = [
            (7, 100, begin(None, "ib write")),
            (8, 150, begin(Some(3), "x")),
            (8, 200, JournalEvent::Start),
            (7, 300, JournalEvent::Fault(2)),
        ];
        let expected = expected.map(|(pid, at_ns, what)| JournalEntry { pid, at_ns, what });
        assert_eq!(file.read(), expected);
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }
}
