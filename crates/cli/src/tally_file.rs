//! The file that the processes of a run count into ([`Tally`]): its name, its owner, its end.
//!
//! The owner keeps the file locked while it lives, so a file without a lock was left by an owner
//! that was killed, and whoever makes the next one removes it. A process id would not tell: ids are
//! used again, and mean other processes in other namespaces.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use weft_host::tally::{Tally, Totals};

/// Directory of files in memory (tmpfs), if there is one.
const MEMORY_DIR: &str = "/dev/shm";
/// What the names of all such files begin with; the owner's process id and a number follow.
const PREFIX: &str = "weft-tally-";
/// Names tried until one is free.
const NAMES_MAX: u32 = 100;

/// A file to count into, as its owner has it; it is removed when this is dropped.
pub struct TallyFile {
    path: PathBuf,
    _lock: File,
}

impl TallyFile {
    /// Makes a file with nothing counted yet, and removes those whose owners are dead.
    ///
    /// # Errors
    /// No file can be made, neither in memory nor in the directory of temporary files.
    pub fn create() -> io::Result<Self> {
        let mut result = Err(io::ErrorKind::NotFound.into());
        for dir in [PathBuf::from(MEMORY_DIR), std::env::temp_dir()] {
            sweep(&dir);
            for number in 0..NAMES_MAX {
                let path = dir.join(format!("{PREFIX}{}-{number}", std::process::id()));
                result = Self::create_at(path);
                match &result {
                    Ok(_) => return result,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(_) => break,
                }
            }
        }
        result
    }

    fn create_at(path: PathBuf) -> io::Result<Self> {
        Tally::create(&path)?;
        // Another process may take it for one that was left, until it is locked.
        let lock = File::open(&path).map_err(|_| io::Error::from(io::ErrorKind::AlreadyExists))?;
        // Without a file system that has locks nobody removes it either.
        let _ = lock.lock();
        if lock.metadata()?.nlink() == 0 {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Self { path, _lock: lock })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Counts until now.
    ///
    /// # Errors
    /// Somebody removed or changed the file.
    pub fn totals(&self) -> io::Result<Totals> {
        Tally::read(&self.path)
    }
}

impl Drop for TallyFile {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Removes the files of dead owners in a directory, as far as they are this user's.
fn sweep(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for entry in entries.flatten() {
        if entry.file_name().to_str().is_some_and(is_name) {
            // A file that cannot be opened belongs to another user.
            let _ = remove_left(&entry.path());
        }
    }
}

/// Whether a file of this name may be a tally.
fn is_name(name: &str) -> bool {
    let numbers = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-'));
    let is_number = |text: &str| text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty();
    numbers.is_some_and(|(pid, number)| is_number(pid) && is_number(number))
}

fn remove_left(path: &Path) -> io::Result<()> {
    // The directory is world-writable: symbolic links are not followed, and a FIFO must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let found = file.metadata()?;
    let is_own = found.is_file() && found.uid() == weft_os::sys::user();
    let is_left = is_own && file.try_lock().is_ok() && file.metadata()?.nlink() > 0;
    if is_left && Tally::content(&file).is_ok() { std::fs::remove_file(path) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_one_process_differ_and_are_removed() {
        let files = [TallyFile::create().unwrap(), TallyFile::create().unwrap()];
        assert_ne!(files[0].path(), files[1].path());
        for file in files {
            assert_eq!(Tally::read(file.path()).unwrap(), Totals::default());
            let path = file.path().to_owned();
            drop(file);
            assert!(!path.exists());
        }
    }

    /// A directory of this test's own; and one of its tallies, by the number in its name.
    fn in_own_dir(test: &str) -> (PathBuf, impl Fn(u32) -> PathBuf) {
        let dir = std::env::temp_dir().join(format!("weft-sweep-{}-{test}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let base = dir.clone();
        (dir, move |number| base.join(format!("{PREFIX}1-{number}")))
    }

    #[test]
    fn only_what_has_no_owner_is_removed() {
        let (dir, path) = in_own_dir("left");
        let owned = TallyFile::create_at(path(0)).unwrap();
        Tally::create(&path(1)).unwrap();
        sweep(&dir);
        assert!(owned.path().exists());
        assert!(!path(1).exists());
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn only_tallies_are_removed() {
        let (dir, path) = in_own_dir("others");
        std::fs::write(path(0), "a file of somebody else").unwrap();
        std::fs::write(path(1), "").unwrap();
        assert!(std::process::Command::new("mkfifo").arg(path(2)).status().unwrap().success());
        let names = ["", "1", "1-", "1-x", "old-1-0"].map(|rest| format!("{PREFIX}{rest}"));
        names.iter().for_each(|name| Tally::create(&dir.join(name)).unwrap());
        sweep(&dir);
        let left = std::fs::read_dir(&dir).unwrap().count();
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(left, 3 + names.len());
    }
}
