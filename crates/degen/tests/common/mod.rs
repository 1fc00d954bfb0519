//! What the tests of real paths share: checks with names, and where they can be made.
//!
//! A binary of them is also the program that sends and counts: called with `tool`, it does that.

mod traffic;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// A check: what is wrong, if something is.
pub type Check = fn() -> Result<(), String>;

pub const DEGEN: &str = env!("CARGO_BIN_EXE_degen");

/// Runs the checks one after the other: two paths at once would take the CPU from each other.
/// Those for which `lacks` holds are ignored, and all where there can be no path.
pub fn run(checks: &'static [(&'static str, Check)], lacks: fn(&str) -> bool) -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|word| word == "tool") {
        return traffic::run(&args[2..]);
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let obstacle = obstacle();
    if let Some(why) = &obstacle {
        eprintln!("every check is ignored: {why}");
    }
    let trials = checks.iter().map(|(name, check)| {
        let trial = Trial::test(*name, move || check().map_err(Failed::from));
        trial.with_ignored_flag(obstacle.is_some() || lacks(name))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Why there can be no path on this machine.
fn obstacle() -> Option<String> {
    let output = Command::new(DEGEN).args(["lan", "--", "true"]).output().unwrap();
    let said = text(&output.stderr);
    is_no_fault(&said).then_some(said)
}

/// Whether degen says that the kernel or the machine does not allow it.
pub fn is_no_fault(said: &str) -> bool {
    ["cannot make any", "are not allowed to do anything", "/dev/net/tun: no device"]
        .iter()
        .any(|text| said.contains(text))
}

/// A call of this binary's own tool.
pub fn tool(words: &str) -> String {
    format!("'{}' tool {words}", std::env::current_exe().unwrap().display())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of a check's own.
pub fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("degen-paths-{}-{name}", std::process::id()))
}

pub fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
