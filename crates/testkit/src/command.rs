//! Commands that neither hang nor see the settings of whoever runs the tests.

use std::path::Path;
use std::process::{Command, Output};

/// `program`, ended after so many `seconds`, with none of Weft's variables and nothing preloaded.
pub fn limited(program: &Path, seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string()).arg(program);
    without_settings(&mut command);
    command
}

/// Takes Weft's variables, those of rdma-core, `LD_PRELOAD` and `CI` from the environment.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let settings = text.starts_with("WEFT") || text.starts_with("VERBS_");
        if settings || text == "LD_PRELOAD" || text == "CI" {
            command.env_remove(&name);
        }
    }
}

/// Runs to the end.
///
/// # Panics
/// When it fails, or writes to stdout.
pub fn succeed(command: &mut Command) -> Output {
    let out = command.output().expect("the program starts");
    assert!(out.status.success(), "{command:?}: {}\n{}", out.status, stderr(&out));
    assert_eq!(text(&out.stdout), "", "{command:?} wrote to stdout");
    out
}

/// What a program wrote to stderr.
pub fn stderr(out: &Output) -> String {
    text(&out.stderr)
}

/// The text of a stream.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
