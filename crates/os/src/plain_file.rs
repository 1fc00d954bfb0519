//! Files that the environment names: opened without waiting, and only where they are regular files.
//!
//! An environment variable may name anything. A pipe without a writer would be waited for, and one
//! with a writer would have something to read in the first of several processes only.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens the regular file at `path` to read it.
///
/// # Errors
/// Those of the system, and `InvalidInput` for what is no regular file.
pub fn open(path: &Path) -> io::Result<(File, Metadata)> {
    open_as(path, OpenOptions::new().read(true))
}

/// Opens the regular file at `path` as `options` say, whose flags of the system are replaced.
///
/// # Errors
/// As of [`open`].
pub fn open_as(path: &Path, options: &mut OpenOptions) -> io::Result<(File, Metadata)> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
    let file = options.custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    Ok((file, metadata))
}

/// Reads the text in the regular file at `path`, of at most `octets_max` bytes.
///
/// # Errors
/// Those of [`open`], `FileTooLarge`, and `InvalidData` for what is not UTF-8.
pub fn read_text(path: &Path, octets_max: u64) -> io::Result<String> {
    let (file, _) = open(path)?;
    let mut text = String::new();
    if file.take(octets_max + 1).read_to_string(&mut text)? as u64 > octets_max {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is too long"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_without_a_writer_is_not_waited_for() {
        let path = std::env::temp_dir().join(format!("weft-pipe-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let read = read_text(&path, 10).map(drop);
        let both = open_as(&path, OpenOptions::new().read(true).append(true)).map(drop);
        std::fs::remove_file(&path).unwrap();
        assert_eq!([read, both].map(|o| o.unwrap_err().kind()), [io::ErrorKind::InvalidInput; 2]);
    }

    #[test]
    fn no_more_is_read_than_may_be() {
        let path = std::env::temp_dir().join(format!("weft-text-{}", std::process::id()));
        std::fs::write(&path, "0123456789").unwrap();
        let read = [10, 9].map(|octets_max| read_text(&path, octets_max).map_err(|e| e.kind()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read, [Ok("0123456789".to_owned()), Err(io::ErrorKind::FileTooLarge)]);
    }
}
