//! C programs with libweft.so preloaded, as a user's programs are.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::Command;

use weft_testkit::{Dir, library, limited};

/// A directory that goes away with the value, where programs of `tests/c` are built.
pub fn dir(name: &str) -> Dir {
    Dir::of(env!("CARGO_MANIFEST_DIR"), name)
}

/// `program` with the library preloaded and none of Weft's variables set. A program that hangs is
/// ended after three minutes: several tests run at a time.
pub fn preloaded(program: &Path) -> Command {
    let mut command = plain(program);
    command.env("LD_PRELOAD", library());
    command
}

/// `program` as it is.
pub fn plain(program: &Path) -> Command {
    limited(program, 180)
}

/// The library `name` that the compiler links.
pub fn installed(name: &str) -> PathBuf {
    let found = Command::new("cc").arg(format!("-print-file-name={name}")).output();
    let path = String::from_utf8(found.expect("cc runs").stdout).expect("a path");
    path.trim().into()
}

/// A sanitizer's library, and ours behind it, as it insists.
pub fn behind(sanitizer: &str) -> String {
    format!("{}:{}", installed(sanitizer).display(), library().display())
}
