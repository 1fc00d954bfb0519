//! What ended processes did over each device, so that the counters of a device do not shrink when a
//! process ends. One that is killed takes its part along.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use weft_os::clock;

use rustix::fs::OFlags;

use crate::report::{Counters, DeviceReport, DeviceType, ProcessReport};

const NAME: &str = "ended";
/// Length of the file in bytes, at most.
const LENGTH_MAX: u64 = 16 << 10;
/// How long a process that ends waits for others that do.
const WAIT: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(1);

/// The sums of ended processes, by device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PastSums([Counters; 2]);

impl PastSums {
    /// What ended processes did over the device of this kind.
    pub fn of(&self, kind: DeviceType) -> &Counters {
        &self.0[kind as usize]
    }

    /// The sums in `dir`; nothing if there is no file, or one of somebody else's making.
    pub fn read(dir: &Path) -> Self {
        let read = crate::place::check(dir).and_then(|()| open(dir, false)).and_then(content);
        read.unwrap_or_default()
    }

    /// Adds what a process did that ends now.
    ///
    /// # Errors
    /// The file cannot be made, locked in time, or written.
    pub fn add(dir: &Path, devices: &[DeviceReport]) -> io::Result<()> {
        crate::place::check(dir)?;
        let mut file = open(dir, true)?;
        lock(&file)?;
        let mut sums = content(file.try_clone()?).unwrap_or_default();
        for device in devices {
            sums.0[device.kind as usize].add(&device.counters);
        }
        let text = sums.report().to_text();
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.set_len(text.len() as u64)
    }

    fn report(&self) -> ProcessReport {
        let device = |kind: DeviceType| {
            let (name, counters) = (kind.word().to_owned(), *self.of(kind));
            DeviceReport { kind, name, counters }
        };
        let devices = vec![device(DeviceType::Roce), device(DeviceType::Iwarp)];
        ProcessReport { devices, ..ProcessReport::default() }
    }
}

fn open(dir: &Path, write: bool) -> io::Result<File> {
    // A link is not followed, and a FIFO does not block.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let mut options = OpenOptions::new();
    options.read(true).write(write).create(write).mode(0o600).truncate(false);
    options.custom_flags(flags.bits() as i32).open(dir.join(NAME))
}

#[expect(clippy::disallowed_methods, reason = "a lock on a file has no time limit of its own")]
fn lock(file: &File) -> io::Result<()> {
    let until = clock::now() + WAIT;
    while file.try_lock().is_err() {
        if clock::now() >= until {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn content(mut file: File) -> io::Result<PastSums> {
    let mut text = String::new();
    file.rewind()?;
    file.take(LENGTH_MAX).read_to_string(&mut text)?;
    let mut ended = PastSums::default();
    let report = ProcessReport::parse(&text).unwrap_or_default();
    for device in report.devices {
        ended.0[device.kind as usize].add(&device.counters);
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_grow_and_a_damaged_file_counts_from_nothing() {
        let dir = std::env::temp_dir().join(format!("weft-ended-{}", std::process::id()));
        crate::place::make(&dir).unwrap();
        let counters = Counters { bytes_out: 7, ..Counters::default() };
        let device = DeviceReport { kind: DeviceType::Iwarp, name: "x".into(), counters };
        assert_eq!(PastSums::read(&dir), PastSums::default());
        PastSums::add(&dir, std::slice::from_ref(&device)).unwrap();
        PastSums::add(&dir, std::slice::from_ref(&device)).unwrap();
        assert_eq!(PastSums::read(&dir).of(DeviceType::Iwarp).bytes_out, 14);
        std::fs::write(dir.join(NAME), [0xff; 100_000]).unwrap();
        assert_eq!(PastSums::read(&dir), PastSums::default());
        PastSums::add(&dir, &[device]).unwrap();
        assert_eq!(PastSums::read(&dir).of(DeviceType::Iwarp).bytes_out, 7);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
