//! Files that commands read settings from.
//!
//! Invariant: none takes more memory than [`SETTINGS_OCTETS_MAX`].
//!
//! Order: any.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

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
