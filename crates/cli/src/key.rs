//! `weft key`: makes keys, and names them.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Error, Result, anyhow};
use weft_net::secrecy::{Key, new_key, read_key, read_key_file};

use crate::args::KeyCommand;

/// Mode of a key file: only its owner may read and write it.
const MODE: u32 = 0o600;

/// Runs `weft key`.
pub fn key(command: &KeyCommand) -> Result<()> {
    match command {
        KeyCommand::New { file: None } => print(&new_key().to_text()),
        KeyCommand::New { file: Some(file) } => {
            let key = new_key();
            write(file, &key).map_err(|error| not_written(file, error))?;
            print(&format!("{}: key {}", file.display(), key.name()))
        }
        KeyCommand::Name { file: Some(file) } => print(&read_key_file(file)?.name().to_string()),
        KeyCommand::Name { file: None } => {
            let value = std::env::var_os("WEFT_KEY");
            let value = value.context("WEFT_KEY is not set; set it, or name the file of a key")?;
            print(&read_key(&value)?.name().to_string())
        }
    }
}

fn not_written(file: &Path, error: io::Error) -> Error {
    let name = file.display();
    match error.kind() {
        ErrorKind::AlreadyExists => anyhow!("{name} exists, and is kept: name another file"),
        _ => Error::from(error).context(format!("cannot write a key into {name}")),
    }
}

/// Writes a file that was not there and that nobody else could ever read.
fn write(file: &Path, key: &Key) -> io::Result<()> {
    let mut new = OpenOptions::new().write(true).create_new(true).mode(MODE).open(file)?;
    let text = format!("# weft key {}\n{}\n", key.name(), key.to_text());
    let written = new.write_all(text.as_bytes()).and_then(|()| new.sync_all());
    written.inspect_err(|_| {
        // Half a key is of no use; what cannot be removed is at least not taken for one.
        let _ = std::fs::remove_file(file);
    })
}

fn print(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("writing to stdout")
}
