//! `weft run --pcap`: makes room for the files that CMD's processes will write.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, absolute};

use anyhow::{Context, Result, bail};
use weft_capture::CaptureSpec;

/// What a pcapng file begins with.
const MAGIC: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];

/// What `WEFT_PCAP` is to say for `text`: with a name that holds in every directory. An earlier
/// capture of that name is removed, as that of any capture is; any other file stays.
///
/// # Errors
/// The file is no capture, or its directory cannot be written to.
pub fn make_room(text: &str) -> Result<OsString> {
    let spec = CaptureSpec::parse(text)?;
    let path = absolute(&spec.path).context("--pcap")?;
    let directory = path.parent().unwrap_or(Path::new("/"));
    if !directory.is_dir() {
        bail!("--pcap: there is no directory {}", directory.display());
    }
    remove_capture(&path)?;
    let mut value = path.into_os_string();
    if let Some(at) = text.find(',') {
        value.push(&text[at..]);
    }
    Ok(value)
}

fn remove_capture(path: &Path) -> Result<()> {
    let mut head = Vec::new();
    match File::open(path).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut head)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.with_context(|| format!("--pcap: reading {}", path.display()))?,
    };
    if !head.is_empty() && head != MAGIC {
        bail!("--pcap: {} exists and is no capture; name another file", path.display());
    }
    fs::remove_file(path).with_context(|| format!("--pcap: removing {}", path.display()))
}
