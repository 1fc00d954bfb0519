//! Paths that are real: what programs see on them, and what the commands do.
//!
//! Each check runs `degen` around real programs. Where this machine cannot have name spaces, every
//! check is reported as ignored, by name. This binary is also the program that sends and counts:
//! called with `tool`, it does that instead.

mod commands;
mod honesty;
mod traffic;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Failed, Trial};

/// A check: what is wrong, if something is.
type Check = fn() -> Result<(), String>;

/// How the text begins that says that a measurement counts for nothing.
const UNFIT: &str = "wan: this machine did not keep up";
/// How often a measurement is made until the machine is fit for it.
const ATTEMPTS_MAX: usize = 5;

const DEGEN: &str = env!("CARGO_BIN_EXE_degen");

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    if args.get(1).is_some_and(|word| word == "tool") {
        return traffic::run(&args[2..]);
    }
    let mut arguments = Arguments::from_args();
    // Two paths at once would take the processor from each other.
    arguments.test_threads = Some(1);
    let obstacle = obstacle();
    if let Some(why) = &obstacle {
        eprintln!("every check is ignored: {why}");
    }
    let trials = commands::CHECKS.iter().chain(&honesty::CHECKS).map(|(name, check)| {
        let trial = Trial::test(*name, move || persevere(*check).map_err(Failed::from));
        let lacks_bbr = name.contains("bbr") && !honesty::has_bbr();
        trial.with_ignored_flag(obstacle.is_some() || lacks_bbr)
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// Makes a check again while others keep the machine from it. Where they do not cease to, there is
/// no verdict, and that is said.
fn persevere(check: Check) -> Result<(), String> {
    let unfit =
        |result: &Result<(), String>| result.as_ref().is_err_and(|error| error.starts_with(UNFIT));
    let mut results = (0..ATTEMPTS_MAX).map(|_| check()).skip_while(unfit);
    results.next().unwrap_or_else(|| {
        eprintln!("SKIPPED: {UNFIT}, {ATTEMPTS_MAX} times");
        Ok(())
    })
}

/// Why there can be no path on this machine.
fn obstacle() -> Option<String> {
    let output = Command::new(DEGEN).args(["lan", "--", "true"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    is_no_fault(&said).then_some(said)
}

/// Whether degen says that the kernel or the machine does not allow it.
fn is_no_fault(said: &str) -> bool {
    ["cannot make any", "are not allowed to do anything", "/dev/net/tun: no device"]
        .iter()
        .any(|text| said.contains(text))
}

/// A call of this binary's own tool.
fn tool(words: &str) -> String {
    format!("'{}' tool {words}", std::env::current_exe().unwrap().display())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A file of a check's own.
fn scratch(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("degen-paths-{}-{name}", std::process::id()))
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}
