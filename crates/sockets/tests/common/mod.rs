//! Builds C programs and runs them with libweft_sockets.so preloaded, or without.

#![allow(dead_code, reason = "each test file uses its part")]

use std::path::{Path, PathBuf};

pub use weft_testkit::{Dir, Program, Running};

/// Rules under which whatever can go by SDP does.
pub const BY_SDP: &str = "use sdp * * *:*";

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

/// The program at `path`, with the library if it is to be `ours`, and none of Weft's variables but
/// those that have it say which way connections go, and take SDP for them.
pub fn program(path: &Path, ours: bool) -> Program {
    program_as_it_comes(path, ours).env("WEFT_LANE", "off").env("WEFT_SOCKETS_RULES", BY_SDP)
}

/// The same, going by pairs or near peers' TCP where it can.
pub fn program_as_it_comes(path: &Path, ours: bool) -> Program {
    let program = Program::at(path);
    if !ours {
        return program;
    }
    // This machine may be busy with other tests.
    let program = program.env("WEFT_SOCKETS_PATIENCE_MS", "5000");
    program.env("WEFT_SOCKETS_VERBOSE", "on").env("LD_PRELOAD", library())
}

/// Waits until it has ended well; gives all that it said.
pub fn end(running: Running) -> String {
    let ended = running.wait_group().success();
    ended.stderr + &ended.stdout
}

/// Runs it, which must end well; gives all that it said.
pub fn run(program: &Program) -> String {
    end(program.start())
}
