//! `weft run --scenario` and `--fuzz-faults`: what is judged, and what is said of it. What needs
//! traffic is in interop/clients/tests/gallery.rs.

use weft_testkit::{Dir, LIMIT, now};

use crate::common::{run, text};

/// The exit status and stderr of `command` under a scenario of this text.
fn judged(name: &str, scenario: &str, options: &[&str], command: &[&str]) -> (Option<i32>, String) {
    let dir = Dir::new(&format!("scenario-{name}"));
    let file = dir.path("test.toml");
    std::fs::write(&file, scenario).unwrap();
    let file = file.display().to_string();
    let line = [options, &["--scenario", &file, "--"], command].concat();
    let output = run(&line);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn a_status_is_judged() {
    let (status, said) = judged("ok", "[expect]\nexit = [3, 4]", &[], &["sh", "-c", "exit 3"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("weft: ok: exit: exit status 3 or 4; it was exit status 3\n"), "{said}");
    assert!(said.ends_with("weft: scenario test: passed\n"), "{said}");
    let (status, said) = judged("bad", "[expect]\nexit = 0", &[], &["sh", "-c", "exit 3"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("weft: FAILED: exit: exit status 0; it was exit status 3\n"), "{said}");
}

#[test]
fn a_signal_is_no_status() {
    let any = "[expect]\nexit = \"any\"";
    let (status, said) = judged("signal", any, &[], &["sh", "-c", "kill -SEGV $$"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("it was killed by signal 11"), "{said}");
}

#[test]
fn what_hangs_is_killed_with_what_it_has_started() {
    let dir = Dir::new("scenario-group");
    let left = dir.path("pid");
    let script = format!("sleep 3600 & echo $! > {0}; wait", left.display());
    // A busy machine may take longer than the shortest to start what hangs.
    let started = ["200ms", "2s", "20s"].into_iter().find_map(|within| {
        let scenario = format!("[expect]\nexit = \"any\"\nwithin = \"{within}\"");
        let (status, said) = judged("hang", &scenario, &[], &["sh", "-c", &script]);
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains("no end in time"), "{said}");
        std::fs::read_to_string(&left).ok().filter(|pid| pid.ends_with('\n'))
    });
    let stat = format!("/proc/{}/stat", started.expect("it was started").trim());
    // A process is there for moments after it was killed.
    let deadline = now() + LIMIT;
    let state = || std::fs::read_to_string(&stat).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        assert!(now() < deadline, "{}", state());
        std::thread::yield_now();
    }
}

#[test]
fn the_plan_reaches_cmd_and_the_outcome_is_json_on_request() {
    let steps = "name = \"flap\"\nseed = 7\n[[step]]\nfault = \"drop=1%\"\nat = \"1s\"\n\
                 until = \"2s\"\nprocess = 3";
    let show = ["sh", "-c", "echo \"$WEFT_FAULT\" >&2"];
    let (status, said) = judged("json", steps, &["--json"], &show);
    assert_eq!(status, Some(1), "{said}");
    let plan = "drop=1%:at=1s,until=2s,rank=3; seed=7";
    assert!(said.contains(&format!("weft: scenario flap: {plan}\n{plan}\n")), "{said}");
    let json: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!((&json["scenario"], &json["ok"]), (&"flap".into(), &false.into()));
    assert_eq!(json["expectations"][0]["expectation"], "exit");
    // A shell uses no device, so nothing was tried.
    let faults = &json["expectations"][2];
    assert_eq!((&faults["expectation"], &faults["ok"]), (&"faults".into(), &false.into()));
    assert_eq!(faults["got"], "none: no process has used a device of Weft");
    assert_eq!(json["timeline"][0]["what"], "exit status 0");
}

#[test]
fn what_cannot_be_measured_has_failed() {
    let stall = "[expect]\nmax_stall = \"1s\"\nrecovers_to = 0.5";
    let (status, said) = judged("nothing", stall, &[], &["true"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("nothing to measure: no process moved data"), "{said}");
    assert!(said.contains("nothing to measure: no fault happened"), "{said}");
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_line() {
    let (status, said) = judged("wrong", "\n[[step]]\nfault = \"dorp=1%\"", &[], &["true"]);
    assert_eq!(status, Some(125), "{said}");
    assert!(said.contains("test.toml: line 3: `dorp` is no fault; there are qp-error"), "{said}");
    let output = run(&["--scenario", "/nonexistent.toml", "--", "true"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("cannot read the scenario /nonexistent.toml"));
    let (status, _) = judged("missing", "[expect]\nexit = 0", &[], &["/nonexistent/program"]);
    assert_eq!(status, Some(127));
}

#[test]
fn random_plans_find_what_crashes_and_make_it_small() {
    let crash = "case $WEFT_FAULT in *addr-gone=*) kill -SEGV $$;; esac; exit 1";
    let output = run(&["--fuzz-faults", "1..200", "--", "sh", "-c", crash]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(": ok, exit status 1: "), "{said}");
    assert!(said.contains("FAILED, exit: killed by signal 11: "), "{said}");
    let smallest = said.lines().find(|line| line.contains("--fault '")).unwrap();
    assert!(smallest.contains("--fault 'addr-gone="), "{smallest}");
    assert_eq!(smallest.matches(';').count(), 1, "only the seed is left beside it: {smallest}");
    assert!(said.contains("[[step]]\nfault = \"addr-gone="), "{said}");
}

#[test]
fn what_fails_without_faults_is_not_blamed_on_them() {
    let output = run(&["--fuzz-faults", "1..3", "--", "sh", "-c", "kill -SEGV $$"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("CMD fails without faults, too: exit: killed by signal 11"), "{said}");
    assert!(!said.contains("the smallest plan"), "{said}");
}

#[test]
fn random_plans_that_find_nothing_say_so() {
    let output = run(&["--fuzz-faults", "1..4", "--", "sh", "-c", "exit 1"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("no failure under the plans of seeds 1 to 3"), "{said}");
    assert!(said.contains("warning: no process of CMD has used a device of Weft"), "{said}");
    let wrong = run(&["--fuzz-faults", "4..1", "--", "true"]);
    assert!(text(&wrong.stderr).contains("`4..1` is no range of seeds"));
}

#[test]
fn every_run_of_a_fuzz_begins_with_the_signals_of_the_first() {
    let dir = Dir::new("fuzz-signals");
    let mask = dir.path("mask");
    // `sed` itself, as a shell changes its mask. The last run's is what is left.
    let show = format!("/SigBlk/w {}", mask.display());
    let output = run(&["--fuzz-faults", "1..4", "--", "sed", "-n", &show, "/proc/self/status"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let seen = std::fs::read_to_string(&mask).unwrap();
    assert_eq!(seen.trim(), "SigBlk:\t0000000000000000");
}

#[test]
fn a_fuzz_that_is_interrupted_ends_without_a_verdict() {
    let dir = Dir::new("fuzz-ended");
    let begun = dir.path("begun");
    let script = format!(": > {}; exec sleep 3600", begun.display());
    let mut child = crate::common::weft()
        .args(["run", "--fuzz-faults", "1..3", "--", "sh", "-c", &script])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let deadline = now() + LIMIT;
    while !begun.exists() {
        assert!(now() < deadline, "CMD does not begin");
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_child(&child);
    // Not SIGINT, which whoever runs this in the background may have ignored.
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15), "{said}");
    assert!(said.contains("ended by signal 15 at seed 1") && !said.contains("FAILED"), "{said}");
}
