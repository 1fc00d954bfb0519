//! The benchmark commands end to end, over the workspace's debug build: what the numbers are does
//! not matter here, only that programs run, check what they get, and leave nothing behind.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use weft_testkit::{Dir, text, weft, without_settings};

fn bench() -> Command {
    let library = weft().with_file_name("libweft.so");
    assert!(library.is_file(), "{} is missing: run `make build` first", library.display());
    let mut command = Command::new(weft());
    without_settings(&mut command);
    command.arg("bench");
    command
}

fn run(line: &str) -> Output {
    bench().args(line.split_whitespace()).output().expect("weft starts")
}

#[test]
fn the_demonstration_shows_devices_and_what_they_cost() {
    let output = run("demo --act 1 --act 2 --seconds 0.1");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    for part in ["hca_id: weft0", "hca_id: weft_iw0", "every byte compared by rping: all right"] {
        assert!(said.contains(part), "{part} is not in\n{said}");
    }
    for row in ["weft0 over UDP", "weft_iw0 over TCP, ", "blocking TCP, ", "libfabric tcp, "] {
        assert_eq!(said.matches(row).count(), 2, "{row} in\n{said}");
    }
    assert!(said.is_ascii() && !said.contains('\x1b'), "no terminal, no colours: {said}");
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn the_demonstration_crosses_a_wan_or_says_why_not() {
    let output = run("demo --act 3 --act 4 --megabytes 2 --json");
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let report: Value = serde_json::from_str(&said).unwrap();
    for act in report["acts"].as_array().unwrap() {
        let list = |name: &str| act[name].as_array().unwrap().len();
        assert!(list("measured") + list("skipped") > 0, "{act}");
        let is_copy = act["act"] == 4 && list("measured") > 0;
        assert_eq!(list("verified"), if is_copy { 2 } else { 0 }, "{act}");
    }
}

#[test]
fn a_measurement_comes_out_as_json() {
    let output = run("table lan --rounds 1 --seconds 0.1 --json --only spinning");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for aspect in ["p50", "mean"] {
        let series = &report["series"][format!("floor: TCP ping-pong, spinning, {aspect}")];
        assert_eq!(series["unit"], "us");
        assert!(series["values"][0][1].as_f64().expect("a number") > 0.0);
    }
}

#[test]
fn deliveries_across_a_wan_are_timed() {
    let path = "--rtt 5ms --gbps 0.1 --loss 0 --megabytes 1";
    let line = format!("table wan --quick --json {path} --only");
    let output = bench().args(line.split_whitespace()).arg("1 MB").output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for mover in ["weft0", "bbr", "cubic"] {
        let series = &report["series"][format!("{mover}, 0 %, 1 MB")];
        let seconds = series["values"][0][1].as_f64().expect("a number");
        assert!((0.08..30.0).contains(&seconds), "{mover} took {seconds} s");
    }
}

#[test]
fn rates_across_a_wan_leave_the_start_out() {
    let line = "table wan --quick --json --rtt 5ms --gbps 0.1 --loss 0 --omit 1 --seconds 1 --only";
    for mover in ["weft0", "bbr"] {
        let only = format!("{mover}, 0 %, streams");
        let output = bench().args(line.split_whitespace()).arg(only).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let ceiling = report["path"]["ceilings"][0]["gbps"].as_f64().expect("a ceiling");
        let value = |aspect: &str| {
            let series = &report["series"][format!("{mover}, 0 %, streams 1{aspect}")];
            series["values"][0][1].as_f64().unwrap_or_else(|| panic!("{mover}{aspect}: {report}"))
        };
        let share = value("") / ceiling;
        assert!((0.5..1.05).contains(&share), "{mover} has {share} of the ceiling");
        let lost = value(", lost to the start");
        assert!((-1.0..1.0).contains(&lost), "{mover} lost {lost} s to the start");
        assert!(value(", sender's CPU") >= 0.0 && value(", receiver's CPU") >= 0.0);
    }
}

#[test]
fn what_is_missing_is_named() {
    let output = bench().arg("demo").env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("is not installed"), "{}", text(&output.stderr));
    assert_eq!(run("table lan --only nothing-is-called-this").status.code(), Some(125));
}

#[test]
fn an_interrupt_leaves_nothing_behind() {
    let scratch = Dir::new("bench-test");
    let mut child = bench()
        .args(["table", "lan", "--rounds", "1", "--seconds", "60", "--only", "blocking"])
        .env("TMPDIR", scratch.root())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id().to_string();
    while children(&pid).len() < 2 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
    }
    let started = children(&pid);
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let mut said = String::new();
    child.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    for pid in started {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} is still there");
    }
    assert_eq!(std::fs::read_dir(scratch.root()).unwrap().count(), 0);
}

/// The processes that `pid`'s main thread has started.
fn children(pid: &str) -> Vec<String> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    list.unwrap_or_default().split_whitespace().map(str::to_owned).collect()
}
