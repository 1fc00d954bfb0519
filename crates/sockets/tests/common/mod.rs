//! Builds C programs and runs them with libweft_sockets.so preloaded, or without.

#![allow(dead_code, reason = "each test file uses its part")]

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

pub use weft_testkit::Dir;
use weft_testkit::limited;

/// Seconds after which a program that hangs is ended.
const LIMIT_SECONDS: u32 = 60;

/// The library under test: cargo puts it beside the test programs.
pub fn library() -> PathBuf {
    weft_testkit::beside("libweft_sockets.so")
}

/// A directory that goes away with the value, where programs of `tests/c` are built.
pub fn dir(name: &str) -> Dir {
    Dir::of(env!("CARGO_MANIFEST_DIR"), &format!("sockets-{name}"))
}

/// Builds a program of `tests/c` in `dir`.
pub fn build(dir: &Dir, source: &str) -> PathBuf {
    dir.build(source, source.trim_end_matches(".c"), &[])
}

/// A program that is to be run.
pub struct Program(Command);

impl Program {
    /// `program`, with the library if it is to be `ours`, and none of Weft's variables but the one
    /// that has it say which way connections go.
    pub fn new(program: &Path, ours: bool) -> Self {
        let mut command = limited(program, LIMIT_SECONDS);
        if ours {
            command.env("LD_PRELOAD", library()).env("WEFT_SOCKETS_VERBOSE", "on");
            // This machine may be busy with other tests.
            command.env("WEFT_SOCKETS_PATIENCE_MS", "5000");
        }
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        Self(command)
    }

    /// Adds arguments.
    pub fn args<T: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = T>) -> &mut Self {
        self.0.args(args);
        self
    }

    /// Sets a variable.
    pub fn env(&mut self, name: &str, value: &str) -> &mut Self {
        self.0.env(name, value);
        self
    }

    /// Says where its output goes.
    pub fn stdout(&mut self, to: Stdio) -> &mut Self {
        self.0.stdout(to);
        self
    }

    /// Says where its input comes from.
    pub fn stdin(&mut self, from: Stdio) -> &mut Self {
        self.0.stdin(from);
        self
    }

    /// Says where it begins.
    pub fn dir(&mut self, dir: &Path) -> &mut Self {
        self.0.current_dir(dir);
        self
    }

    /// Starts it.
    pub fn start(&mut self) -> Running {
        let mut child = self.0.spawn().expect("the program starts");
        let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        Running { child, stderr, said: String::new() }
    }
}

/// A program that runs.
pub struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    said: String,
}

impl Running {
    /// Reads what it says until a line that begins with `start`; gives the rest of that.
    pub fn line(&mut self, start: &str) -> String {
        loop {
            let mut line = String::new();
            let count = self.stderr.read_line(&mut line).expect("text");
            assert!(count > 0, "it ended before it said `{start}`: {}", self.said);
            self.said.push_str(&line);
            if let Some(rest) = line.strip_prefix(start) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Reads what it says until a line that has `part` in it.
    pub fn line_with(&mut self, part: &str) {
        loop {
            let mut line = String::new();
            let count = self.stderr.read_line(&mut line).expect("text");
            assert!(count > 0, "it ended before it said `{part}`: {}", self.said);
            self.said.push_str(&line);
            if line.contains(part) {
                return;
            }
        }
    }

    /// Whether it has not ended.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    /// Sends a signal to it and its children.
    pub fn signal(&self, signal: &str) {
        let group = format!("-{}", self.child.id());
        let sent = Command::new("kill").args([signal, "--", &group]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{group} is there");
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it has ended somehow; gives all that it said on stderr.
    pub fn rest(mut self) -> String {
        let mut said = std::mem::take(&mut self.said);
        self.stderr.read_to_string(&mut said).expect("text");
        let _status = self.child.wait().expect("it ends");
        said
    }

    /// The port that it says.
    pub fn port(&mut self) -> String {
        self.line("port ")
    }

    /// Waits until it has ended well; gives all that it said on stderr.
    pub fn end(mut self) -> String {
        let mut said = std::mem::take(&mut self.said);
        self.stderr.read_to_string(&mut said).expect("text");
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {said}");
        let mut out = String::new();
        if let Some(mut stdout) = self.child.stdout.take() {
            stdout.read_to_string(&mut out).expect("text");
        }
        said + &out
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has mostly ended by itself; `timeout` leads a group that its children are in.
        if self.runs() {
            let group = format!("-{}", self.child.id());
            let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            let _ = self.child.wait();
        }
    }
}
