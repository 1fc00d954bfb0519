//! Runs every test of the workspace, several test binaries at a time.
//!
//! `cargo test` runs one binary after the other, and most of those that drive real applications
//! wait. Invariant: every binary that `cargo test --workspace` would run is run, in its package's
//! directory; what measures this machine is run by itself, when all others have ended.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::finding::Finding;

/// Binaries that take longest. They are started first, so that none is left over at the end.
const LONG: [&str; 12] = [
    "weft-interop/perftest",
    "weft-preload/semantics",
    "weft-interop/sandbox",
    "weft-interop/peer_suites",
    "weft-interop/adapter",
    "weft-interop/stopped",
    "weft-cli/cli",
    "weft-bench/suites",
    "weft-interop/endings",
    "weft-shuttle/rate_control",
    "weft-shuttle/random_operations",
    "weft-interop/faults",
];
/// Binaries whose verdict needs the machine for itself: they are started when all others are done.
const ALONE: [&str; 1] = ["degen/paths"];
/// What a test writes to stderr in place of running.
const SKIPPED: &str = "SKIPPED";

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    /// Package and target: `weft-io/cm`.
    name: String,
    /// Where it is run.
    directory: PathBuf,
    executable: PathBuf,
}

/// Builds and runs all tests; what has failed is printed whole, and found.
pub fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut binaries = build(root)?;
    binaries.sort_by_key(|binary| (rank(&binary.name), binary.name.clone()));
    let logs = target(root).join("test-logs");
    fs::create_dir_all(&logs).context("a directory for what tests write")?;
    let at_once = thread::available_parallelism().map_or(2, usize::from).max(2);
    let (alone, together): (VecDeque<_>, VecDeque<_>) =
        binaries.into_iter().partition(|binary| ALONE.contains(&binary.name.as_str()));
    println!("{} test binaries, {at_once} at a time", alone.len() + together.len());
    let mut findings = run_all(together, &logs, at_once)?;
    findings.extend(run_all(alone, &logs, 1)?);
    findings.extend(documentation(root)?);
    Ok(findings)
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace", "--locked"]).args(args).current_dir(root);
    command
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

/// Builds every test binary; gives them.
fn build(root: &Path) -> Result<Vec<Binary>> {
    let mut command = cargo(root, &["--no-run", "--message-format=json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().context("running cargo test")?;
    ensure!(output.status.success(), "the tests do not build");
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let binaries: Vec<Binary> =
        messages.lines().filter_map(|line| binary(&serde_json::from_str(line).ok()?)).collect();
    ensure!(!binaries.is_empty(), "cargo names no test binary");
    Ok(binaries)
}

/// The test binary that one of cargo's messages is about.
fn binary(message: &Value) -> Option<Binary> {
    let executable = PathBuf::from(message["executable"].as_str()?);
    if !message["profile"]["test"].as_bool()? {
        return None;
    }
    let directory = Path::new(message["manifest_path"].as_str()?).parent()?.to_owned();
    // The id ends with `#NAME@VERSION`, or with `/NAME#VERSION` where the directory is so called.
    let id = message["package_id"].as_str()?;
    let package = match id.rsplit_once('#')? {
        (_, end) if end.contains('@') => end.split('@').next()?,
        (path, _) => path.rsplit('/').next()?,
    };
    let target = message["target"]["name"].as_str()?;
    Some(Binary { name: format!("{package}/{target}"), directory, executable })
}

/// Where a binary comes in the order.
fn rank(name: &str) -> usize {
    LONG.iter().position(|long| *long == name).unwrap_or(LONG.len())
}

/// Runs these, `at_once` at a time, in their order.
fn run_all(binaries: VecDeque<Binary>, logs: &Path, at_once: usize) -> Result<Vec<Finding>> {
    let (queue, findings) = (Mutex::new(binaries), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no thread panics").pop_front();
    let work = || -> Result<()> {
        while let Some(binary) = next() {
            let found = run(&binary, logs)?;
            findings.lock().expect("no thread panics").extend(found);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(findings.into_inner().expect("no thread panics"))
}

/// Runs a binary and says how it ended in a line, or with all that it wrote if it failed.
fn run(binary: &Binary, logs: &Path) -> Result<Option<Finding>> {
    let log = logs.join(binary.name.replace('/', "-")).with_extension("log");
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let began = now();
    let mut command = Command::new(&binary.executable);
    command.current_dir(&binary.directory).env("CARGO_MANIFEST_DIR", &binary.directory);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("starting {}", binary.name))?;
    let took = now().duration_since(began);
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    println!("{}", account(&binary.name, took, status.success(), &text));
    Ok((!status.success()).then(|| Finding::new(&log, 1, format!("{status}"))))
}

/// What is said of a binary that has ended.
fn account(name: &str, took: Duration, succeeded: bool, text: &str) -> String {
    let mut said = format!("{:7.1} s  {name}: ", took.as_secs_f32());
    if !succeeded {
        return said + "FAILED\n" + text;
    }
    let mut counts = text.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    said += counts.next_back().unwrap_or("it says nothing of its tests");
    for line in text.lines().filter(|line| line.contains(SKIPPED)) {
        said = said + "\n" + line;
    }
    said
}

/// The examples in the documentation, which cargo compiles as it runs them.
fn documentation(root: &Path) -> Result<Option<Finding>> {
    let status = cargo(root, &["--doc", "--quiet"]).status().context("running cargo test --doc")?;
    Ok((!status.success()).then(|| Finding::new(root, 1, "an example does not hold".to_owned())))
}

/// For how long tests took, which nothing depends on.
#[allow(clippy::disallowed_methods)]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_known_by_package_and_target() {
        let message = |test: bool, id: &str| {
            serde_json::json!({
                "executable": "/t/debug/deps/cm-1",
                "profile": { "test": test },
                "manifest_path": "/w/crates/io/Cargo.toml",
                "package_id": id,
                "target": { "name": "cm" },
            })
        };
        let found = binary(&message(true, "path+file:///w/crates/io#weft-io@0.1.0")).unwrap();
        assert_eq!(found.name, "weft-io/cm");
        assert_eq!(found.directory, Path::new("/w/crates/io"));
        let found = binary(&message(true, "path+file:///w/crates/degen#0.1.0")).unwrap();
        assert_eq!(found.name, "degen/cm");
        assert_eq!(binary(&message(false, "path+file:///w/crates/degen#0.1.0")), None);
        assert_eq!(binary(&serde_json::json!({ "reason": "build-finished" })), None);
    }

    #[test]
    fn failures_are_found_and_told_whole_and_what_was_skipped_is_told() {
        let directory = std::env::temp_dir().join(format!("xtask-suite-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let of = |name: &str| Binary {
            name: name.into(),
            directory: directory.clone(),
            executable: Path::new("/bin").join(name),
        };
        let both = VecDeque::from([of("false"), of("true")]);
        let findings = run_all(both, &directory, 2).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].path.ends_with("false.log"), "{findings:?}");
        let took = Duration::from_secs(2);
        assert!(account("a/b", took, false, "one\ntwo").contains("FAILED\none\ntwo"));
        let text = "SKIPPED x: y\ntest result: ok. 1 passed\n";
        let said = account("a/b", took, true, text);
        assert!(said.contains("a/b: 1 passed\nSKIPPED x: y"), "{said}");
    }
}
