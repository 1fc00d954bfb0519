//! What the commands do, and that they leave nothing behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::common::{Check, DEGEN, expect, is_no_fault, scratch, text, tool};

pub const CHECKS: [(&str, Check); 16] = [
    ("the_exit_status_is_that_of_cmd", the_exit_status_is_that_of_cmd),
    ("stdin_and_stdout_are_those_of_cmd", stdin_and_stdout_are_those_of_cmd),
    ("each_side_knows_where_it_is", each_side_knows_where_it_is),
    ("a_server_that_fails_is_told", a_server_that_fails_is_told),
    ("nothing_is_left_behind", nothing_is_left_behind),
    ("a_path_can_stand_and_be_joined", a_path_can_stand_and_be_joined),
    (
        "a_path_whose_name_nobody_hears_does_not_stand",
        a_path_whose_name_nobody_hears_does_not_stand,
    ),
    ("a_request_to_end_reaches_cmd", a_request_to_end_reaches_cmd),
    ("an_interrupt_from_a_process_reaches_cmd", an_interrupt_from_a_process_reaches_cmd),
    ("what_is_wrong_is_said_once", what_is_wrong_is_said_once),
    ("no_program_outlives_a_path_that_is_killed", no_program_outlives_a_path_that_is_killed),
    ("orphans_are_buried", orphans_are_buried),
    ("the_report_says_what_happened", the_report_says_what_happened),
    ("a_capture_replaces_captures_only", a_capture_replaces_captures_only),
    ("a_capture_that_cannot_be_written_is_told", a_capture_that_cannot_be_written_is_told),
    ("nobody_needs_to_be_root", nobody_needs_to_be_root),
];

/// A directory in which a check's paths are registered, and nobody else's.
struct Registry(PathBuf);

impl Registry {
    fn new(check: &str) -> Self {
        let path = scratch(check);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn degen(&self, words: &[&str]) -> Command {
        let mut call = Command::new(DEGEN);
        call.args(words).env("XDG_RUNTIME_DIR", &self.0);
        call
    }

    fn output(&self, words: &[&str]) -> String {
        let output = self.degen(words).output().unwrap();
        text(&output.stdout) + &text(&output.stderr)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

fn run(words: &[&str]) -> Output {
    Command::new(DEGEN).args(words).output().unwrap()
}

fn the_exit_status_is_that_of_cmd() -> Result<(), String> {
    for (words, expected) in [
        (&["lan", "--", "sh", "-c", "exit 7"][..], 7),
        (&["lan", "--", "sh", "-c", "kill -9 $$"], 137),
        (&["lan", "--", "/nonexistent/program"], 127),
        (&["lan", "--", "/etc/passwd"], 126),
        (&["rate=fast", "--", "true"], 125),
        (&["lan", "--json", "/dev/full", "--", "true"], 125),
        (&["lan", "--json", "/dev/full", "--", "sh", "-c", "exit 7"], 7),
        (&["--bogus"], 125),
    ] {
        let code = run(words).status.code();
        expect(code == Some(expected), || format!("{words:?}: {code:?}"))?;
    }
    Ok(())
}

fn stdin_and_stdout_are_those_of_cmd() -> Result<(), String> {
    let server = format!("echo noise; exec {}", tool("sink"));
    let script = "printf 'a b' | \"$0\" lan --server \"$1\" -- cat";
    let output = Command::new("sh").args(["-c", script, DEGEN, &server]).output().unwrap();
    expect(text(&output.stdout) == "a b", || format!("{output:?}"))?;
    expect(text(&output.stderr).contains("noise"), || format!("{output:?}"))
}

fn each_side_knows_where_it_is() -> Result<(), String> {
    let output = run(&["lan", "--", "sh", "-c", "echo $WAN_SIDE $WAN_NEAR $WAN_FAR $WAN_NEAR6"]);
    let expected = "near 10.77.0.1 10.77.0.2 fd77::1\n";
    expect(text(&output.stdout) == expected, || format!("{output:?}"))
}

fn a_server_that_fails_is_told() -> Result<(), String> {
    let output = run(&["lan", "--server", "exit 3", "--", "echo", "no"]);
    let told = text(&output.stderr).contains("exit status: 3");
    expect(told && output.stdout.is_empty(), || format!("{output:?}"))
}

/// Whether a process has `word` among its arguments.
fn is_running(word: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.into_iter().any(|line| line.split(|byte| *byte == 0).any(|arg| arg == word.as_bytes()))
}

/// Waits until no process has `word` among its arguments; tells whether that came true.
fn is_gone(word: &str) -> bool {
    (0..1000).any(|_| {
        std::thread::yield_now();
        std::thread::park_timeout(std::time::Duration::from_millis(5));
        !is_running(word)
    })
}

fn nothing_is_left_behind() -> Result<(), String> {
    // A number of seconds that nobody else sleeps.
    let word = format!("86{}", std::process::id());
    let command = format!("setsid sleep {word} & sleep {word} & exit 0");
    let output = run(&["lan", "--", "sh", "-c", &command]);
    expect(output.status.success(), || format!("{output:?}"))?;
    expect(!is_running(&word), || "a child of CMD still runs".into())
}

fn a_path_whose_name_nobody_hears_does_not_stand() -> Result<(), String> {
    let registry = Registry::new("unheard");
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut up = registry.degen(&["up", "20ms"]);
    let status = up.stdout(full).stderr(Stdio::null()).status().unwrap();
    expect(!status.success(), || format!("{status}"))?;
    let left = registry.output(&["list"]);
    expect(left.trim().is_empty(), || left)
}

fn a_path_can_stand_and_be_joined() -> Result<(), String> {
    let registry = Registry::new("standing");
    // Started by somebody who holds a file open.
    let word = format!("a{}", std::process::id());
    let script = "exec 9< /etc/passwd; exec \"$@\"";
    let mut call = Command::new("sh");
    call.args([
        "-c",
        script,
        "sh",
        DEGEN,
        "up",
        "20ms",
        "--name",
        &word,
        "--server",
        &tool("sink"),
    ]);
    let up = text(&call.env("XDG_RUNTIME_DIR", &registry.0).output().unwrap().stdout);
    expect(up.trim() == word, || up)?;
    let again = registry.output(&["up", "20ms", "--name", &word]);
    expect(again.contains("already"), || again)?;
    for side in ["near", "far"] {
        let said = registry.output(&["exec", side, "--", "sh", "-c", "echo $WAN_SIDE"]);
        expect(said.trim() == side, || said)?;
    }
    let ping = registry.output(&["exec", "--", "ping", "-c", "1", "10.77.0.2"]);
    expect(ping.contains("1 received"), || ping)?;
    let report: Value = serde_json::from_str(&registry.output(&["stat", "--json"])).unwrap();
    expect(report["forward"]["link"]["delivered"].as_u64() > Some(0), || report.to_string())?;
    let table = registry.output(&["stat", &word]);
    expect(table.contains("queue now"), || table)?;
    expect(registry.output(&["list"]).trim() == word, || "list".into())?;
    expect(keeps_only_its_own(&word), || "it keeps what it inherited".into())?;
    let guest = ["exec", "far", "--", "sh", "-c", "echo in; exec sleep 999"];
    let mut guest = registry.degen(&guest).stdout(Stdio::piped()).spawn().unwrap();
    BufReader::new(guest.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let down = registry.output(&["down"]);
    let guest = guest.wait().unwrap();
    expect(down.is_empty() && !guest.success(), || format!("{down} {guest}"))?;
    expect(registry.output(&["list"]).is_empty(), || "it is still there".into())?;
    let missing = registry.output(&["exec", "--", "true"]);
    expect(missing.contains("no WAN is up"), || missing)
}

/// Whether the process that keeps the path `name` has no file of those who started it.
fn keeps_only_its_own(name: &str) -> bool {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let serving = |path: &PathBuf| {
        let line = fs::read(path.join("cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        words.nth(1) == Some(b"serve") && words.any(|word| word == name.as_bytes())
    };
    let keeper = processes.filter(|path| path.join("fd").exists()).find(serving).unwrap();
    let files = fs::read_dir(keeper.join("fd")).unwrap().flatten();
    files
        .filter_map(|fd| fs::read_link(fd.path()).ok())
        .all(|file| file != Path::new("/etc/passwd"))
}

/// Starts a path whose CMD says `ready`; gives the path's process and what CMD says after.
fn start_path(command: &str) -> (std::process::Child, impl BufRead + use<>) {
    let mut path = Command::new(DEGEN)
        .args(["lan", "--", "sh", "-c", command])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(path.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    (path, said)
}

fn a_request_to_end_reaches_cmd() -> Result<(), String> {
    let word = format!("87{}", std::process::id());
    let command = format!("trap 'echo ended; exit 5' TERM; echo ready; sleep {word} & wait");
    let (mut path, mut said) = start_path(&command);
    kill_process(Pid::from_child(&path), Signal::TERM).unwrap();
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let code = path.wait().unwrap().code();
    expect(line == "ended\n" && code == Some(5), || format!("{line:?} {code:?}"))?;
    expect(!is_running(&word), || "a child of CMD still runs".into())
}

fn an_interrupt_from_a_process_reaches_cmd() -> Result<(), String> {
    let word = format!("89{}", std::process::id());
    let command = format!("trap 'echo stopped; exit 6' INT; echo ready; sleep {word} & wait");
    let (mut path, mut said) = start_path(&command);
    kill_process(Pid::from_child(&path), Signal::INT).unwrap();
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    let code = path.wait().unwrap().code();
    expect(line == "stopped\n" && code == Some(6), || format!("{line:?} {code:?}"))
}

fn what_is_wrong_is_said_once() -> Result<(), String> {
    for (word, wrong) in [
        ("loss=2", "weft: loss: `2` is not a share such as 0.1%, from 0% to 100%\n"),
        ("nosuch.toml", "weft: nosuch.toml: No such file or directory (os error 2)\n"),
    ] {
        let output = run(&[word, "--", "true"]);
        let said = text(&output.stderr);
        expect(said == wrong && output.status.code() == Some(125), || format!("{output:?}"))?;
    }
    Ok(())
}

fn no_program_outlives_a_path_that_is_killed() -> Result<(), String> {
    let word = format!("88{}", std::process::id());
    let (mut path, _said) = start_path(&format!("echo ready; exec sleep {word}"));
    path.kill().unwrap();
    path.wait().unwrap();
    expect(is_gone(&word), || "CMD still runs".into())
}

fn orphans_are_buried() -> Result<(), String> {
    // Each subshell leaves a child to whoever adopts it; then we look again and again whether one
    // of them stays unburied.
    let script = "for i in 1 2 3 4 5 6 7 8 9; do (sleep 0.01 &); done; \
                  for i in $(seq 100); do \
                  cat /proc/$PPID/task/*/children | xargs -n1 | while read p; do \
                  grep State /proc/$p/status; done 2>/dev/null | grep -q Z || \
                  { echo buried; exit; }; sleep 0.02; done";
    let output = run(&["lan", "--", "sh", "-c", script]);
    expect(text(&output.stdout) == "buried\n", || format!("{output:?}"))
}

fn the_report_says_what_happened() -> Result<(), String> {
    let json = scratch("report.json");
    let file = json.to_str().unwrap();
    let output = run(&["2ms", "--report", "--json", file, "--", "ping", "-c", "3", "10.77.0.2"]);
    let report: Value = serde_json::from_slice(&fs::read(&json).unwrap()).unwrap();
    fs::remove_file(&json).unwrap();
    let offered = report["forward"]["link"]["offered"].as_u64();
    expect(offered >= Some(3), || report.to_string())?;
    expect(report["complaints"].is_array(), || report.to_string())?;
    expect(text(&output.stderr).contains("packets offered"), || format!("{output:?}"))
}

fn a_capture_replaces_captures_only() -> Result<(), String> {
    let file = scratch("near.pcapng");
    let name = file.to_str().unwrap();
    let capture = || run(&["1ms", "--pcap-near", name, "--", "true"]);
    for _ in 0..2 {
        let output = capture();
        expect(output.status.success(), || format!("{output:?}"))?;
    }
    fs::write(&file, "mine").unwrap();
    let output = capture();
    let left = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let wrong = format!("weft: --pcap-near: {name} exists and is no capture; name another file\n");
    expect(text(&output.stderr) == wrong && output.status.code() == Some(125), || {
        format!("{output:?}")
    })?;
    expect(left == b"mine", || text(&left))
}

fn a_capture_that_cannot_be_written_is_told() -> Result<(), String> {
    let ping = ["1ms", "--pcap-near", "/dev/full", "--", "ping", "-c", "1", "10.77.0.2"];
    let said = text(&run(&ping).stderr);
    let told = "weft: a capture is not whole: No space left on device (os error 28)\n";
    expect(said.contains(told), || said)
}

fn nobody_needs_to_be_root() -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        // Then all of the other checks have shown it.
        return Ok(());
    }
    // A user who can read neither this build nor its directory needs a copy.
    let copy = scratch("degen");
    fs::copy(DEGEN, &copy).unwrap();
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["2ms", "--", "ping", "-c", "1", "10.77.0.2"])
        .current_dir(Path::new("/"))
        .env_remove("XDG_RUNTIME_DIR")
        .output()
        .unwrap();
    fs::remove_file(copy).unwrap();
    let said = text(&output.stdout) + &text(&output.stderr);
    // A kernel that does not allow it must be explained.
    expect(said.contains("1 received") || is_no_fault(&said), || said)
}
