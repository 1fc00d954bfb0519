//! What the processes of one run did, counted in a file that all of them have mapped.
//!
//! `weft run` makes the file with [`Tally::create`] and names it in [`VARIABLE`]; each process
//! that comes to a connection adds to it what was done since it last did, and so what is in it is
//! right although a process forks, becomes another program or is killed; but for what a thread
//! has moved through shared memory in the last millisecond before. Without the variable nothing is
//! counted.
//!
//! Invariant: a number in the file only grows. Where somebody has made the file shorter, the
//! process counts nothing more, and says so once.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use weft_os::sys::SharedWords;
use weft_os::{own_file, plain_file};

use crate::device_kind::DeviceId;

/// The variable that names the file.
pub const VARIABLE: &str = "WEFT_TALLY";

/// What the first word of the file is.
const MAGIC: u64 = u64::from_le_bytes(*b"weftsum3");
const DEVICES: usize = DeviceId::SLOTS;
const NUMBERS: usize = 6;
const WORDS: usize = 1 + DEVICES * NUMBERS;

/// What was done over one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceWork {
    /// Contexts that were opened.
    pub contexts: u64,
    /// Ends of connections that were made: a connection whose ends both count is two.
    pub connections: u64,
    /// Of these, those by shared memory.
    pub lanes: u64,
    /// Sends, Writes, Reads and Atomics that completed without an error.
    pub operations: u64,
    /// Bytes of payload that left: of own requests, and in answer to the peer's.
    pub octets_out: u64,
    /// Bytes of payload that arrived in memory.
    pub octets_in: u64,
}

impl DeviceWork {
    fn numbers(&self) -> [u64; NUMBERS] {
        let DeviceWork { contexts, connections, lanes, operations, octets_out, octets_in } = *self;
        [contexts, connections, lanes, operations, octets_out, octets_in]
    }

    fn of(numbers: &[u64]) -> Self {
        let [contexts, connections, lanes, operations, octets_out, octets_in] = numbers else {
            return Self::default();
        };
        Self {
            contexts: *contexts,
            connections: *connections,
            lanes: *lanes,
            operations: *operations,
            octets_out: *octets_out,
            octets_in: *octets_in,
        }
    }

    /// Whether data was moved, by this side or by its peer.
    pub fn is_traffic(&self) -> bool {
        self.operations > 0 || self.octets_in > 0 || self.octets_out > 0
    }
}

/// What was done by a whole run over each device, by its slot: `weft0`, `weft_iw0`, `weft1`, ...
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals(pub [DeviceWork; DEVICES]);

/// The mapped file.
pub struct Tally {
    words: SharedWords,
    /// Whether the file is shorter than it was made.
    is_cut: AtomicBool,
}

impl Tally {
    /// Makes the file, with nothing done yet. Only its owner may read or write it.
    ///
    /// # Errors
    /// There is such a file, or none can be made there.
    pub fn create(path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let mut octets = [0; WORDS * 8];
        octets[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        let written = own_file::writing(|| file.write_all(&octets));
        if written.is_err() {
            // Nobody else knows of it.
            let _ = fs::remove_file(path);
        }
        written
    }

    /// What the file says now.
    ///
    /// # Errors
    /// It is not there, or not what [`Tally::create`] made.
    pub fn read(path: &Path) -> io::Result<Totals> {
        Self::content(&plain_file::open(path)?.0)
    }

    /// As [`Tally::read`], of a regular file that was just opened to be read.
    ///
    /// # Errors
    /// It is not what [`Tally::create`] made.
    pub fn content(file: &File) -> io::Result<Totals> {
        let mut octets = Vec::new();
        file.take(WORDS as u64 * 8 + 1).read_to_end(&mut octets)?;
        let words: Vec<u64> = octets.chunks_exact(8).map(word).collect();
        if octets.len() != WORDS * 8 || words[0] != MAGIC {
            return Err(stranger());
        }
        let mut totals = Totals::default();
        for (work, numbers) in totals.0.iter_mut().zip(words[1..].chunks(NUMBERS)) {
            *work = DeviceWork::of(numbers);
        }
        Ok(totals)
    }

    /// Adds `totals` to the file at `path`, for a run inside another one.
    ///
    /// # Errors
    /// As [`Tally::read`].
    pub fn add(path: &Path, totals: &Totals) -> io::Result<()> {
        let tally = Self::open(path)?;
        for (device, work) in totals.0.iter().enumerate() {
            tally.note(device, work);
        }
        Ok(())
    }

    /// Maps the file for as long as the process lives.
    fn open(path: &Path) -> io::Result<Self> {
        let (file, _) = plain_file::open_as(path, OpenOptions::new().read(true).write(true))?;
        Self::content(&file)?;
        Ok(Self { words: SharedWords::map(&file, WORDS)?, is_cut: AtomicBool::new(false) })
    }

    /// The tally that this process adds to, if there is one.
    pub(crate) fn from_environment() -> Option<Self> {
        let path = std::env::var_os(VARIABLE)?;
        let tally = Self::open(Path::new(&path));
        // After setuid or chroot, most often.
        tally
            .inspect_err(|error| {
                let path = path.display();
                log::warn!("what this process does is not counted: {path}: {error}");
            })
            .ok()
    }

    /// Notes that a device was opened.
    pub(crate) fn note_context(&self, device: DeviceId) {
        self.note(device.slot(), &DeviceWork { contexts: 1, ..DeviceWork::default() });
    }

    /// Adds what was done on a connection since `noted`, which then is what was `done`.
    pub(crate) fn note_since(&self, device: DeviceId, done: DeviceWork, noted: &mut DeviceWork) {
        if done != *noted {
            let before = std::mem::replace(noted, done);
            let [now, then] = [done, before].map(|work| work.numbers());
            let grown: Vec<u64> = now.iter().zip(then).map(|(n, t)| n.saturating_sub(t)).collect();
            self.note(device.slot(), &DeviceWork::of(&grown));
        }
    }

    fn note(&self, device: usize, work: &DeviceWork) {
        if self.is_cut.load(Ordering::Relaxed) {
            return;
        }
        let start = 1 + device * NUMBERS;
        let mut more = work.numbers().into_iter().enumerate().filter(|(_, more)| *more > 0);
        let is_whole = more.all(|(number, more)| self.words.add(start + number, more));
        if !is_whole && !self.is_cut.swap(true, Ordering::Relaxed) {
            log::warn!("what this process does is not counted: {VARIABLE} was truncated");
        }
    }
}

fn word(octets: &[u8]) -> u64 {
    octets.try_into().map_or(0, u64::from_ne_bytes)
}

fn stranger() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a tally of this version of Weft")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_kind::DeviceKind;

    fn path(test: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("weft-tally-{}-{test}", std::process::id()))
    }

    #[test]
    fn what_is_noted_adds_up_and_never_shrinks() {
        let path = path("sum");
        Tally::create(&path).unwrap();
        let tally = Tally::open(&path).unwrap();
        let mut noted = DeviceWork::default();
        let done =
            DeviceWork { connections: 1, operations: 3, octets_out: 7, ..DeviceWork::default() };
        tally.note_since(DeviceKind::Iwarp.into(), done, &mut noted);
        tally.note_since(DeviceKind::Iwarp.into(), done, &mut noted);
        tally.note_since(
            DeviceKind::Iwarp.into(),
            DeviceWork { operations: 5, ..done },
            &mut noted,
        );
        tally.note_since(DeviceKind::Iwarp.into(), done, &mut noted);
        let whole = Tally::read(&path).unwrap();
        assert_eq!(whole.0[1], DeviceWork { operations: 5, ..done });
        assert_eq!(whole.0.iter().filter(|work| **work != DeviceWork::default()).count(), 1);
        Tally::add(&path, &whole).unwrap();
        assert_eq!(Tally::read(&path).unwrap().0[1].operations, 10);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn other_files_are_left_alone() {
        let path = path("other");
        assert!(Tally::read(&path).is_err());
        for content in [vec![], vec![0; WORDS * 8], vec![1; 1000]] {
            std::fs::write(&path, &content).unwrap();
            assert!(Tally::open(&path).is_err());
            assert!(Tally::create(&path).is_err());
            assert_eq!(std::fs::read(&path).unwrap(), content);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_tally_that_is_truncated_counts_nothing_more_and_is_no_tally() {
        let path = path("cut");
        Tally::create(&path).unwrap();
        let tally = Tally::open(&path).unwrap();
        tally.note_context(DeviceKind::Roce.into());
        std::fs::write(&path, "").unwrap();
        tally.note_context(DeviceKind::Roce.into());
        assert!(tally.is_cut.load(Ordering::Relaxed));
        assert_eq!(Tally::read(&path).unwrap_err().kind(), io::ErrorKind::InvalidData);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_pipe_is_no_tally_and_is_not_waited_for() {
        let path = path("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let opened = [Tally::read(&path).map(drop), Tally::open(&path).map(drop)];
        std::fs::remove_file(&path).unwrap();
        assert_eq!(opened.map(|o| o.unwrap_err().kind()), [io::ErrorKind::InvalidInput; 2]);
    }

    #[test]
    fn traffic_is_what_moved_data() {
        let idle = DeviceWork { contexts: 2, connections: 4, ..DeviceWork::default() };
        assert!(!idle.is_traffic());
        assert!(DeviceWork { octets_in: 1, ..idle }.is_traffic());
        assert!(DeviceWork { operations: 1, ..idle }.is_traffic());
    }
}
