//! Builds C programs and runs them with libweft.so preloaded, as a user's programs are.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library under test: cargo puts it beside the test programs.
pub fn library() -> PathBuf {
    let program = std::env::current_exe().expect("the test has a path");
    let library = program.parent().expect("a directory").join("libweft.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// A directory that goes away with the value.
pub struct Dir(PathBuf);

impl Dir {
    /// A new empty directory.
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weft-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("a temporary directory");
        Self(path)
    }

    /// The path of `name` in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles `tests/c/SOURCE` to `name` here, with further arguments for the compiler.
    pub fn build(&self, source: &str, name: &str, flags: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
        let program = self.path(name);
        let mut cc = Command::new("cc");
        cc.args(["-g", "-Wall", "-Werror", "-pthread", "-o"]).arg(&program).arg(&source);
        let done = cc.args(flags).output().expect("a C compiler is installed");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        program
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
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

/// The same, ended after so many seconds.
pub fn limited(program: &Path, seconds: u32) -> Command {
    let mut command = Command::new("timeout");
    command.arg(seconds.to_string()).arg(program);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        if name.starts_with("WEFT") || name.starts_with("VERBS_") || name == "LD_PRELOAD" {
            command.env_remove(name.as_ref());
        }
    }
    command
}

/// Runs to the end; it must succeed and say nothing on stdout.
pub fn succeed(command: &mut Command) -> Output {
    let out = command.output().expect("the program starts");
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {}\n{stderr}", out.status);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "{command:?} wrote to stdout");
    out
}

/// What a program wrote to stderr.
pub fn stderr(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}
