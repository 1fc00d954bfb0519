//! A test in a network of its own.
//!
//! The network is that of a process, with all its threads, and so are many settings. So such a test
//! runs itself again, and the copy has them.

use std::process::{Command, Stdio};

use crate::command::without_settings;
use crate::lab::skip;
use crate::machine::is_root;

/// Set in the copy.
const APART: &str = "WEFT_TEST_APART";

/// Whether this is the copy of `test`, which has these variables and a network without anything in
/// it but loopback. The test itself goes on once its copy has succeeded, or where the system has no
/// such network for it, which a line on stderr says.
///
/// # Panics
/// When the copy fails.
pub fn is_apart(test: &str, variables: &[(&str, &str)]) -> bool {
    if std::env::var_os(APART).is_some() {
        return true;
    }
    if !unshare().arg("true").status().is_ok_and(|status| status.success()) {
        skip("no network name space can be made");
        return false;
    }
    let mut copy = unshare();
    copy.arg(std::env::current_exe().expect("the test has a path"));
    copy.args(["--exact", test, "--nocapture"]);
    without_settings(&mut copy);
    let status = copy.env(APART, "1").envs(variables.iter().copied()).status();
    let status = status.expect("unshare of util-linux");
    assert!(status.success(), "{test} has failed in a network of its own");
    false
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command.arg(if is_root() { "-n" } else { "-rn" }).stdin(Stdio::null());
    command
}
