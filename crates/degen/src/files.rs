//! Files that commands read settings from, and files that they replace.
//!
//! Invariant: no input takes more memory than `SETTINGS_OCTETS_MAX`, and no output replaces a
//! file of another kind.
//!
//! Order: any.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Bytes of a file with settings, at most.
const SETTINGS_OCTETS_MAX: u64 = 1 << 20;

/// The text of a file with settings.
///
/// # Errors
/// It cannot be read, is no text, or is too large, as a device that has no end is.
pub fn read_settings(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(SETTINGS_OCTETS_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > SETTINGS_OCTETS_MAX {
        return Err(io::Error::other("too large for settings"));
    }
    Ok(text)
}

/// A kind of file that a command writes.
pub struct OutputKind {
    /// The option that names such a file.
    pub option: &'static str,
    /// What other files are called, such as "no capture".
    pub name: &'static str,
    /// What files of this kind begin with.
    pub magic: &'static [u8],
}

/// What captures in the form of pcapng begin with.
pub const CAPTURE_MAGIC: &[u8] = &[0x0a, 0x0d, 0x0d, 0x0a];

impl OutputKind {
    /// Refuses a path at which a file of another kind is, unless it is empty. What is no regular
    /// file loses nothing when it is written to.
    ///
    /// # Errors
    /// There is such a file, or it cannot be read.
    pub fn check(&self, path: &Path) -> Result<()> {
        let Self { option, name, magic } = self;
        let cannot_read = || format!("{option}: cannot read {}", path.display());
        let known = match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            known => known.with_context(cannot_read)?,
        };
        if !known.is_file() {
            return Ok(());
        }
        let mut head = Vec::new();
        let file = File::open(path).with_context(cannot_read)?;
        file.take(magic.len() as u64).read_to_end(&mut head).with_context(cannot_read)?;
        if !head.is_empty() && head != *magic {
            bail!("{option}: {} exists and is {name}; name another file", path.display());
        }
        Ok(())
    }
}
