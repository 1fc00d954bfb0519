//! `weft top` in a terminal.

use std::io::Write;
use std::process::{Command, Stdio};

use weft_testkit::{LIMIT, find, now, skip};

use crate::common::weft;

#[test]
fn keys_that_come_together_are_all_heeded() {
    if find("script").is_none() {
        return skip("script is not installed");
    }
    let program = weft().get_program().to_owned();
    let mut script = Command::new("script");
    script.args(["-qec", &format!("{} top --delay 1", program.display()), "/dev/null"]);
    let mut child = script.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    // Open to the end: what follows the keys would be the end of the terminal's input.
    let mut keys = child.stdin.take().unwrap();
    keys.write_all(b"tq").unwrap();
    let deadline = now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if now() >= deadline {
            child.kill().unwrap();
            panic!("`q` was not heeded");
        }
        std::thread::yield_now();
    };
    assert!(status.success(), "{status}");
}
