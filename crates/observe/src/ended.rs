//! What ended processes did over each device, so that the counters of a device do not shrink when a
//! process ends. One that is killed takes its part along.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use weft_os::{clock, fds, own_file, sys};

use rustix::fs::OFlags;

use crate::report::{Counters, DeviceReport, ProcessReport};
use crate::text::DEVICES_MAX;

const NAME: &str = "ended";
/// Length of the file in bytes, at most.
const LENGTH_MAX: u64 = 16 << 10;
/// How long a reader waits for a process that is ending, which has the lock for moments.
const SETTLED: Duration = Duration::from_millis(100);
/// How long a process that ends waits for others that do. One that holds the lock may wait for a
/// processor meanwhile, for tens of milliseconds on a busy machine.
const WAIT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(1);

/// The sums of ended processes, by device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastSums(Vec<DeviceReport>);

impl PastSums {
    /// What ended processes did over each device.
    pub fn devices(&self) -> &[DeviceReport] {
        &self.0
    }

    /// What ended processes did over the device of this name.
    pub fn of(&self, name: &str) -> Counters {
        let device = self.0.iter().find(|device| device.name == name);
        device.map_or_else(Counters::default, |device| device.counters)
    }

    /// Adds what was done over a device. There is no room for more devices than a process has.
    fn note(&mut self, device: &DeviceReport) {
        let known = self.0.iter().position(|known| known.name == device.name);
        if let Some(known) = known.and_then(|at| self.0.get_mut(at)) {
            known.counters.add(&device.counters);
        } else if self.0.len() < DEVICES_MAX {
            self.0.push(device.clone());
        }
    }

    /// The sums in `dir`; nothing if there is no file, or one of somebody else's making.
    pub fn read(dir: &Path) -> Self {
        let read = crate::place::check(dir).and_then(|()| open(dir, false)).and_then(content);
        read.unwrap_or_default()
    }

    /// The same, not of the moment in which a process goes over to those that have ended.
    pub(crate) fn read_settled(dir: &Path) -> Self {
        let settled = |file: File| {
            // What cannot be locked in time is read as it is.
            let _ = lock(&file, File::try_lock_shared, SETTLED);
            content(file)
        };
        let read = crate::place::check(dir).and_then(|()| open(dir, false)).and_then(settled);
        read.unwrap_or_default()
    }

    /// Adds what a process did that ends now, if `vanish` takes it from those that can be asked.
    ///
    /// # Errors
    /// The file cannot be made, locked in time, or written.
    pub fn add(
        dir: &Path,
        devices: &[DeviceReport],
        vanish: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        crate::place::check(dir)?;
        let mut file = open(dir, true)?;
        lock(&file, File::try_lock, WAIT)?;
        if !vanish() {
            return Ok(());
        }
        let mut sums = content(file.try_clone()?).unwrap_or_default();
        for device in devices {
            sums.note(device);
        }
        let text = sums.report().to_text();
        file.rewind()?;
        own_file::writing(|| {
            file.write_all(text.as_bytes())?;
            file.set_len(text.len() as u64)
        })
    }

    fn report(&self) -> ProcessReport {
        ProcessReport { devices: self.0.clone(), ..ProcessReport::default() }
    }
}

fn open(dir: &Path, write: bool) -> io::Result<File> {
    // A link is not followed, and a FIFO does not block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(write).create(write).mode(0o600).truncate(false);
    let file = options.custom_flags(flags.bits() as i32).open(dir.join(NAME))?;
    // Who has closed its stderr may yet write to that number.
    Ok(File::from(fds::high(OwnedFd::from(file))))
}

/// A lock on a file has no time limit of its own.
fn lock(
    file: &File,
    take: fn(&File) -> Result<(), TryLockError>,
    wait: Duration,
) -> io::Result<()> {
    let until = clock::now() + wait;
    while take(file).is_err() {
        if clock::now() >= until {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        sys::pause(PAUSE);
    }
    Ok(())
}

fn content(mut file: File) -> io::Result<PastSums> {
    let mut text = String::new();
    file.rewind()?;
    file.take(LENGTH_MAX).read_to_string(&mut text)?;
    let mut ended = PastSums::default();
    let report = ProcessReport::parse(&text).unwrap_or_default();
    report.devices.iter().for_each(|device| ended.note(device));
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::report::DeviceType;

    #[test]
    fn sums_grow_and_a_damaged_file_counts_from_nothing() {
        let dir = std::env::temp_dir().join(format!("weft-ended-{}", std::process::id()));
        crate::place::make(&dir).unwrap();
        let counters = Counters { bytes_out: 7, ..Counters::default() };
        let device = DeviceReport { kind: DeviceType::Iwarp, name: "x".into(), counters };
        assert_eq!(PastSums::read(&dir), PastSums::default());
        PastSums::add(&dir, std::slice::from_ref(&device), || true).unwrap();
        PastSums::add(&dir, std::slice::from_ref(&device), || true).unwrap();
        assert_eq!(PastSums::read(&dir).of("x").bytes_out, 14);
        std::fs::write(dir.join(NAME), [0xff; 100_000]).unwrap();
        assert_eq!(PastSums::read(&dir), PastSums::default());
        PastSums::add(&dir, std::slice::from_ref(&device), || true).unwrap();
        PastSums::add(&dir, &[device], || false).unwrap();
        assert_eq!(PastSums::read(&dir).of("x").bytes_out, 7);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_file_takes_no_number_that_the_application_may_write_to() {
        let dir = std::env::temp_dir().join(format!("weft-ended-high-{}", std::process::id()));
        crate::place::make(&dir).unwrap();
        let file = open(&dir, true).unwrap();
        assert!(file.as_raw_fd() >= sys::descriptor_limit() / 2);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "how long the lock is held is what is tested")]
    fn a_process_that_is_held_up_while_it_writes_is_waited_for() {
        let dir = std::env::temp_dir().join(format!("weft-ended-slow-{}", std::process::id()));
        crate::place::make(&dir).unwrap();
        let counters = Counters { bytes_out: 7, ..Counters::default() };
        let device = DeviceReport { kind: DeviceType::Iwarp, name: "x".into(), counters };
        let adds = || {
            let held = open(&dir, true).unwrap();
            lock(&held, File::try_lock, WAIT).unwrap();
            let began = clock::now();
            let added = std::thread::scope(|scope| {
                let adds =
                    scope.spawn(|| PastSums::add(&dir, std::slice::from_ref(&device), || true));
                std::thread::sleep(WAIT / 5);
                drop(held);
                adds.join().unwrap()
            });
            (added, began.elapsed())
        };
        // Where this thread was held up itself, the other one has rightly waited in vain.
        let mut outcome = adds();
        while outcome.0.is_err() && outcome.1 >= WAIT {
            outcome = adds();
        }
        outcome.0.unwrap();
        assert_eq!(PastSums::read(&dir).of("x").bytes_out, 7);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
