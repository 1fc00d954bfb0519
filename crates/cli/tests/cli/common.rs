//! What the tests of the command share: the command itself.

use std::path::Path;
use std::process::{Command, Output};

use weft_testkit::without_settings;
pub use weft_testkit::{Dir, text};

/// The `weft` of this build, with none of Weft's variables, no preload of the caller's, and not in
/// CI.
pub fn weft() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_weft"));
    let library = program.with_file_name("libweft.so");
    assert!(library.is_file(), "{} is missing: run `make build` first", library.display());
    let mut command = Command::new(program);
    // What runs in CI says more.
    without_settings(&mut command);
    command
}

/// Runs `weft run` with these arguments.
pub fn run(args: &[&str]) -> Output {
    weft().arg("run").args(args).output().expect("weft starts")
}
