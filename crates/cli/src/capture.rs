//! `weft run --pcap` and `--trace`: make room for the files that CMD's processes will write.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf, absolute};

use anyhow::{Context, Result, bail};
use degen::files::{CAPTURE_MAGIC, OutputKind};
use weft_capture::CaptureSpec;

const CAPTURE: OutputKind =
    OutputKind { option: "--pcap", name: "no capture", magic: CAPTURE_MAGIC };
const TRACE: OutputKind = OutputKind { option: "--trace", name: "no trace", magic: &[0x1e] };

/// What `WEFT_PCAP` is to say for `text`: with a name that holds in every directory.
///
/// # Errors
/// As of [`make_room_for_trace`].
pub fn make_room(text: &str) -> Result<OsString> {
    let spec = CaptureSpec::parse(text)?;
    let mut value = make_room_for(&CAPTURE, &spec.path)?.into_os_string();
    if let Some(at) = text.find(',') {
        value.push(&text[at..]);
    }
    Ok(value)
}

/// What `WEFT_TRACE` is to say for `path`. An earlier trace of that name is removed; any other
/// file stays.
///
/// # Errors
/// There is no such directory, or the file is something else.
pub fn make_room_for_trace(path: &Path) -> Result<OsString> {
    Ok(make_room_for(&TRACE, path)?.into_os_string())
}

fn make_room_for(kind: &OutputKind, path: &Path) -> Result<PathBuf> {
    let option = kind.option;
    let path = absolute(path).context(option)?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        bail!("{option}: there is no directory {}", directory.display());
    }
    let cannot_read = || format!("{option}: cannot read {}", path.display());
    let known = match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
        known => known.with_context(cannot_read)?,
    };
    // Removing a link would not remove the file that it leads to, but perhaps /dev/stdout.
    if known.is_symlink() {
        let target = fs::read_link(&path).with_context(cannot_read)?;
        let target = target.display();
        bail!("{option}: {} is a link to {target}; name that file", path.display());
    }
    if !known.is_file() {
        bail!("{option}: {} is not a regular file; name another", path.display());
    }
    kind.check(&path)?;
    fs::remove_file(&path)
        .with_context(|| format!("{option}: cannot remove {}", path.display()))?;
    Ok(path)
}
