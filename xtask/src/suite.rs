//! Runs the tests of the workspace by part, several test binaries at a time.
//!
//! `cargo test` runs one binary after the other, and most of those that drive real applications
//! wait. Invariant: every binary that `cargo test --workspace` would run belongs to one part and is
//! run, in its package's directory, whatever fails before; the end names what has failed. Binaries
//! of measurements are run by themselves, when all others have ended.

mod load;
mod part;
mod verdict;

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::load::Load;
use self::part::{PARTS, SuitePart};
use self::verdict::{ATTEMPTS_MAX, Attempts, MeasurementVerdict};
use crate::finding::Finding;

/// Binaries that take longest. They are started first, so that none is left over at the end.
const LONG: [&str; 13] = [
    "weft-interop/perftest",
    "weft-preload/semantics",
    "weft-interop/sandbox",
    "weft-interop/peer_suites",
    "weft-interop/adapter",
    "weft-interop/stopped",
    "weft-cli/cli",
    "weft-cli/remote",
    "weft-interop/endings",
    "weft-shuttle/rate_control",
    "weft-shuttle/random_operations",
    "weft-interop/faults",
    "weft-interop/shell",
];
/// Text on stderr of a test that is skipped.
const SKIPPED: &str = "SKIPPED";
/// Text on stderr of a measurement that could not be made.
const UNFIT: &str = "this machine did not keep up";
/// The word for the unit tests of libraries and programs alone.
const QUICK: &str = "quick";

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    /// Package and target: `weft-host/cm`.
    name: String,
    /// Whether it holds the unit tests of a library or binary.
    is_product: bool,
    /// Working directory.
    directory: PathBuf,
    executable: PathBuf,
}

impl Binary {
    fn part(&self) -> SuitePart {
        SuitePart::of(&self.name, self.is_product)
    }
}

/// Builds and runs the tests of the part that `word` names, or all without one. What has failed is
/// printed whole, and found.
pub fn check(root: &Path, word: Option<&str>) -> Result<Vec<Finding>> {
    let quick = word == Some(QUICK);
    let parts: Vec<SuitePart> = match word {
        None => PARTS.to_vec(),
        Some(QUICK) => vec![SuitePart::Units],
        Some(word) => vec![SuitePart::named(word).with_context(|| format!("no part {word:?}"))?],
    };
    let mut binaries = if quick { build(root, &["--lib", "--bins"])? } else { build(root, &[])? };
    binaries.retain(|binary| !quick || binary.is_product);
    binaries.sort_by_key(|binary| (rank(&binary.name), binary.name.clone()));
    let logs = target(root).join("test-logs");
    fs::create_dir_all(&logs).context("a directory for what tests write")?;
    let mut findings = Vec::new();
    for part in parts {
        let of_part = binaries.iter().filter(|binary| binary.part() == part).cloned().collect();
        findings.extend(run_part(part, of_part, &logs)?);
        if part == SuitePart::Units && !quick {
            findings.extend(documentation(root)?);
        }
    }
    Ok(findings)
}

fn run_part(part: SuitePart, binaries: VecDeque<Binary>, logs: &Path) -> Result<Vec<Finding>> {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    let at_once = if part == SuitePart::Measurements { 1 } else { processors.max(2) };
    println!("{}: {} test binaries, {at_once} at a time", part.name(), binaries.len());
    if part == SuitePart::Measurements {
        println!("{} processors, which nobody else should use now", processors);
    }
    run_all(binaries, logs, at_once)
}

fn cargo(root: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["test", "--workspace", "--locked"]).args(args).current_dir(root);
    command
}

fn target(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from)
}

/// Builds the test binaries that `which` selects; returns them.
fn build(root: &Path, which: &[&str]) -> Result<Vec<Binary>> {
    let mut command = cargo(root, &["--no-run", "--message-format=json-render-diagnostics"]);
    command.args(which);
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
    let kinds = message["target"]["kind"].as_array()?;
    let is_product = !kinds.iter().any(|kind| matches!(kind.as_str(), Some("test" | "example")));
    Some(Binary { name: format!("{package}/{target}"), is_product, directory, executable })
}

/// Sort key of the order of starts.
fn rank(name: &str) -> usize {
    LONG.iter().position(|long| *long == name).unwrap_or(LONG.len())
}

/// Runs these, `at_once` at a time, in their order.
fn run_all(binaries: VecDeque<Binary>, logs: &Path, at_once: usize) -> Result<Vec<Finding>> {
    let (queue, findings) = (Mutex::new(binaries), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no thread panics").pop_front();
    let work = || -> Result<()> {
        while let Some(binary) = next() {
            let found = match binary.part() {
                SuitePart::Measurements => measure(&binary, logs)?,
                SuitePart::Units | SuitePart::Clients => run(&binary, logs)?,
            };
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

/// A run of a binary that has ended.
struct FinishedBinary {
    status: ExitStatus,
    log: PathBuf,
    text: String,
}

/// Runs a binary, or one test of it, and says how it ended in a line, or with all that it wrote if
/// it failed.
fn start(binary: &Binary, test: Option<&str>, logs: &Path) -> Result<FinishedBinary> {
    let name = test.map_or(binary.name.clone(), |test| format!("{}/{test}", binary.name));
    let log = logs.join(name.replace(['/', ':'], "-")).with_extension("log");
    let file = File::create(&log).with_context(|| format!("creating {}", log.display()))?;
    let began = now();
    let mut command = Command::new(&binary.executable);
    command.current_dir(&binary.directory).env("CARGO_MANIFEST_DIR", &binary.directory);
    command.args(test.map(|test| ["--exact", test]).into_iter().flatten());
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().with_context(|| format!("starting {name}"))?;
    let took = now().duration_since(began);
    let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    println!("{}", account(&name, took, status.success(), &text));
    Ok(FinishedBinary { status, log, text })
}

fn run(binary: &Binary, logs: &Path) -> Result<Option<Finding>> {
    let run = start(binary, None, logs)?;
    Ok((!run.status.success()).then(|| failure(&binary.name, &run)))
}

/// Runs a binary of measurements, and those that fail again.
fn measure(binary: &Binary, logs: &Path) -> Result<Option<Finding>> {
    let before = Load::now()?;
    let first = start(binary, None, logs)?;
    let load = load_during(before, &first)?;
    if first.status.success() {
        return Ok(None);
    }
    let failed = failed_tests(&first.text);
    if failed.is_empty() {
        return Ok(Some(failure(&binary.name, &first)));
    }
    for test in failed {
        let mut attempts = Attempts::default();
        attempts.add(false, load);
        while attempts.verdict() == MeasurementVerdict::Open {
            let before = Load::now()?;
            let again = start(binary, Some(&test), logs)?;
            attempts.add(again.status.success(), load_during(before, &again)?);
            if attempts.verdict() == MeasurementVerdict::Failed {
                return Ok(Some(failure(&binary.name, &again)));
            }
        }
        if let MeasurementVerdict::Unfit(least) = attempts.verdict() {
            println!(
                "NO VERDICT on {}, {test}: in {ATTEMPTS_MAX} attempts others used {least:.1} \
                 processors or more; run `make test-measurements` on an idle machine",
                binary.name
            );
        }
    }
    Ok(None)
}

/// Load by others during a run. A test that has not kept up lacked a CPU, whoever had it.
fn load_during(before: Load, run: &FinishedBinary) -> Result<f64> {
    let load = Load::now()?.of_others_since(before);
    Ok(if run.text.contains(UNFIT) { load.max(1.0) } else { load })
}

/// The finding for a run that has failed.
fn failure(name: &str, run: &FinishedBinary) -> Finding {
    let tests = failed_tests(&run.text).join(", ");
    Finding::new(&run.log, 1, format!("{name} has failed ({}): {tests}", run.status))
}

/// The tests that failed, as the harness says.
fn failed_tests(text: &str) -> Vec<String> {
    let name = |line: &str| {
        let name = line.strip_prefix("test ")?.strip_suffix("FAILED")?.trim_end();
        Some(name.strip_suffix("...")?.trim_end().to_owned())
    };
    text.lines().filter_map(name).collect()
}

/// Line printed for a binary that has ended.
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

/// Clock for the printed durations only.
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
                "manifest_path": "/w/crates/host/Cargo.toml",
                "package_id": id,
                "target": { "name": "cm", "kind": ["test"] },
            })
        };
        let found = binary(&message(true, "path+file:///w/crates/host#weft-host@0.1.0")).unwrap();
        assert_eq!(found.name, "weft-host/cm");
        assert_eq!(found.directory, Path::new("/w/crates/host"));
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
            is_product: false,
            directory: directory.clone(),
            executable: Path::new("/bin").join(name),
        };
        let both = VecDeque::from([of("false"), of("true")]);
        let findings = run_all(both, &directory, 2).unwrap();
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(findings.len(), 1);
        assert!(findings[0].path.ends_with("false.log"), "{findings:?}");
        assert!(findings[0].message.starts_with("false has failed"), "{findings:?}");
        let took = Duration::from_secs(2);
        assert!(account("a/b", took, false, "one\ntwo").contains("FAILED\none\ntwo"));
        let text = "SKIPPED x: y\ntest result: ok. 1 passed\n";
        let said = account("a/b", took, true, text);
        assert!(said.contains("a/b: 1 passed\nSKIPPED x: y"), "{said}");
    }

    #[test]
    fn failed_tests_are_named() {
        let text = "test a::b ... ok\ntest a::c ... FAILED\ntest d   ... FAILED\nFAILED\n";
        assert_eq!(failed_tests(text), ["a::c", "d"]);
    }
}
