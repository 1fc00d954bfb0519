//! `weft run` that stays to say what CMD did: it must not be seen otherwise.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use weft_testkit::{LIMIT, now};

use crate::common::{Dir, run, text, weft};

const IDLE: &str = "weft: no RDMA device was opened\n";

#[test]
fn an_idle_run_that_must_not_be_is_123() {
    let output = run(&["--require-traffic", "echo", "done"]);
    assert_eq!(output.status.code(), Some(123));
    assert_eq!(text(&output.stdout), "done\n");
    let said = text(&output.stderr);
    assert!(said.starts_with("weft: no RDMA operation ran") && said.contains("doctor"), "{said}");
    let scratch = Dir::new("idle");
    let program = scratch.compile("still", "int main(void) { return 0; }\n", &["-static"]);
    assert_eq!(run(&["--require-traffic", &program]).status.code(), Some(123));
}

#[test]
fn cmds_own_failure_comes_first() {
    for option in ["--require-traffic", "--stats"] {
        assert_eq!(run(&[option, "sh", "-c", "exit 7"]).status.code(), Some(7));
        assert_eq!(run(&[option, "sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
        assert_eq!(run(&[option, "sh", "-c", "kill -KILL $$"]).status.signal(), Some(9));
        assert_eq!(run(&[option, "/nonexistent/program"]).status.code(), Some(127));
        assert_eq!(run(&[option, "/"]).status.code(), Some(126));
    }
}

#[test]
fn the_line_is_on_stderr_when_asked_for_and_in_ci() {
    let said = |variables: &[(&str, &str)], args: &[&str]| {
        let mut command = weft();
        command.arg("run").args(args).envs(variables.iter().copied());
        let output = command.output().unwrap();
        assert!(output.status.success());
        assert_eq!(text(&output.stdout), "");
        text(&output.stderr)
    };
    assert_eq!(said(&[], &["--stats", "true"]), IDLE);
    assert_eq!(said(&[("WEFT_STATS", "on")], &["true"]), IDLE);
    assert_eq!(said(&[("CI", "true")], &["true"]), IDLE);
    assert_eq!(said(&[], &["true"]), "");
    assert_eq!(said(&[("CI", "true"), ("WEFT_STATS", "off")], &["true"]), "");
    assert_eq!(said(&[("CI", "true"), ("WEFT_LOG", "error")], &["true"]), "");
    assert_eq!(said(&[("CI", "true"), ("WEFT", "off")], &["true"]), "");
    let own = env!("CARGO_BIN_EXE_weft");
    assert_eq!(said(&[("CI", "true")], &[own, "run", own, "run", "true"]), IDLE);
    assert_eq!(said(&[("CI", "true")], &[own, "run", "--stats", "true"]), [IDLE, IDLE].concat());
}

#[test]
fn nothing_is_left_behind() {
    let output = run(&["--stats", "sh", "-c", "test -f $WEFT_TALLY && echo $WEFT_TALLY"]);
    let path = text(&output.stdout);
    let path = path.trim();
    assert!(path.contains("weft-tally-"), "{path}");
    assert!(!Path::new(path).exists());
}

#[test]
fn a_tally_that_cannot_be_made_keeps_only_a_verdict_from_being_made() {
    let scratch = Dir::new("full");
    // A directory of temporary files that is none, and no shared memory: in namespaces of our own.
    let script = "mount -t tmpfs -o size=0,nr_inodes=1 none /dev/shm && exec \"$@\"";
    let call = |option: &str| {
        let own = env!("CARGO_BIN_EXE_weft");
        let mut command = Command::new("unshare");
        command.args(["-Urm", "sh", "-c", script, "sh", own, "run", option, "echo", "done"]);
        command.env("TMPDIR", scratch.path("nowhere")).output().unwrap()
    };
    let output = call("--stats");
    let said = text(&output.stderr);
    if said.contains("unshare") || said.contains("mount:") {
        eprintln!("not tried: no file system can be mounted here: {said}");
        return;
    }
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("done\n", Some(0)));
    assert!(said.contains("what CMD does is not counted"), "{said}");
    let output = call("--require-traffic");
    assert_eq!((text(&output.stdout).as_str(), output.status.code()), ("", Some(125)));
}

#[test]
fn a_tally_that_is_gone_is_told_of_and_shows_no_traffic() {
    for script in [": > $WEFT_TALLY", "rm $WEFT_TALLY"] {
        let output = run(&["--stats", "sh", "-c", script]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert!(said.starts_with("weft: what CMD did is not known: the tally /"), "{said}");
        let output = run(&["--require-traffic", "sh", "-c", script]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(123), "{said}");
        assert!(said.contains("is not known: the tally /"), "{said}");
    }
}

#[test]
fn a_tally_that_may_not_grow_keeps_cmd_from_nothing_and_is_removed() {
    let temporary = Dir::new("may-not-grow");
    let script = "ulimit -f 0; \"$@\" & echo $!; wait $!";
    let mut command = Command::new("sh");
    command.args(["-c", script, "sh", env!("CARGO_BIN_EXE_weft"), "run", "--stats", "true"]);
    let output = command.env("TMPDIR", temporary.root()).output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{output:?}");
    assert!(said.contains("what CMD does is not counted"), "{said}");
    let name = format!("weft-tally-{}-0", text(&output.stdout).trim());
    assert!(!temporary.path(&name).exists() && !Path::new("/dev/shm").join(name).exists());
}

#[test]
fn signals_reach_cmd() {
    let trap = "trap 'exit 9' TERM; echo ready; while :; do sleep 1; done";
    let mut child = weft()
        .args(["run", "--stats", "sh", "-c", trap])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    let sent = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn cmd_dies_with_weft() {
    let mut child = weft()
        .args(["run", "--stats", "sh", "-c", "echo ready; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut ready = [0; 6];
    stdout.read_exact(&mut ready).unwrap();
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    // Its end of the pipe is closed once it is gone.
    assert_eq!(stdout.read(&mut ready).unwrap(), 0);
}

#[test]
fn the_next_run_removes_what_a_killed_one_left() {
    let mut child = weft()
        .args(["run", "--stats", "sh", "-c", "echo $WEFT_TALLY; exec sleep 1000"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut path = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut path).unwrap();
    let path = Path::new(path.trim());
    // A run that begins meanwhile leaves it alone.
    assert!(run(&["--stats", "true"]).status.success());
    assert!(path.exists());
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(9));
    assert!(run(&["--stats", "true"]).status.success());
    // A run of another test that begins at the same time may be about to remove it.
    let deadline = now() + LIMIT;
    while path.exists() {
        assert!(now() < deadline, "{}", path.display());
        std::thread::yield_now();
    }
}

#[test]
fn a_cmd_that_stops_is_seen_to_stop_and_goes_on() {
    let line = format!(
        "{} run --stats sh -c 'kill -STOP $$; exit 5' 2>/dev/null & p=$!; \
         until grep -q '^State:.[TZ]' /proc/$p/status; do :; done; \
         c=$(cat /proc/$p/task/$p/children); kill -CONT $p; wait $p; echo $? $c",
        env!("CARGO_BIN_EXE_weft")
    );
    let output = Command::new("sh").args(["-c", &line]).output().unwrap();
    let said = text(&output.stdout);
    assert!(said.starts_with("5 "), "{said}");
}

/// What a shell line writes to stdout with `weft run --stats` and without.
fn assert_same(line: &str) {
    let weft_run = format!("{} run --stats", env!("CARGO_BIN_EXE_weft"));
    let shell = |line: &str| {
        let output = Command::new("sh").args(["-c", line]).env_remove("LD_PRELOAD").output();
        text(&output.unwrap().stdout)
    };
    let expected = shell(&line.replace("WEFT", "env"));
    assert_ne!(expected, "", "{line}");
    assert_eq!(shell(&line.replace("WEFT", &weft_run)), expected, "{line}");
}

#[test]
fn cmd_has_the_streams_and_signals_that_it_would_have() {
    assert_same("WEFT sh -c 'test -e /proc/self/fd/0; echo $?' <&-");
    assert_same("WEFT grep ^Sig[BIC] /proc/self/status");
    assert_same("trap '' PIPE INT CHLD; WEFT grep ^Sig[BIC] /proc/self/status");
    assert_same("WEFT sh -c 'ls /proc/$$/fd'");
    assert_same("trap '' CHLD; WEFT sh -c 'exit 6'; echo $?");
}
