//! `weft perf` between two processes on this machine.

mod bandwidth;
mod endings;
mod latency;
mod sessions;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Output, Stdio};

use serde_json::Value;

use crate::common::{text, weft};

/// What both devices are chosen by.
const TRANSPORTS: [(&str, &str); 2] = [("shuttle", "weft0"), ("iwarp", "weft_iw0")];

/// A server at a port that the system chose. It ends with the test.
struct Server {
    child: Child,
    lines: BufReader<ChildStdout>,
    port: u16,
}

impl Server {
    fn start(args: &[&str]) -> Self {
        let mut command = weft();
        command.args(["perf", "server", "-p", "0"]).args(args).stdout(Stdio::piped());
        let mut child = command.spawn().expect("weft starts");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let port = line.trim().rsplit(' ').next().and_then(|port| port.parse().ok());
        Self { child, lines, port: port.unwrap_or_else(|| panic!("{line}")) }
    }

    /// A client of it, not started yet.
    fn client(&self, line: &str) -> std::process::Command {
        let mut command = weft();
        let port = self.port.to_string();
        command.args(["perf", "127.0.0.1", "-p", &port]).args(line.split_whitespace());
        command
    }

    /// What a client came to.
    fn run(&self, line: &str) -> Output {
        self.client(line).output().expect("weft starts")
    }

    /// The document of a client that must succeed.
    fn json(&self, line: &str) -> Value {
        let output = self.run(&format!("{line} --json"));
        let (said, wrong) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{line}: {wrong}{said}");
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
