//! Whatever is killed, the same command goes on where it was.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use weft_testkit::text;

use crate::far_host::{FarHost, assert_same, last_event, noise};

/// Bytes of the file that is copied.
const SIZE: usize = 24_000_000;

/// Longer than a silent peer is given whose process may have ended.
const OUTAGE: Duration = Duration::from_secs(4);

/// How often something is killed; `WEFT_KILLS` asks for more.
fn kills() -> u64 {
    std::env::var("WEFT_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(9)
}

/// Where the record of the file `to` is.
fn record(host: &FarHost) -> Option<PathBuf> {
    let mut entries = fs::read_dir(host.dir.root()).unwrap().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| path.extension().is_some_and(|end| end == "weft-record");
    entries.find(is_it)
}

/// Waits until the copy has recorded more than `before`, or has ended.
fn wait_for_progress(host: &FarHost, child: &mut Child, before: Option<Vec<u8>>) {
    loop {
        let now = record(host).and_then(|path| fs::read(path).ok());
        if now != before || child.try_wait().unwrap().is_some() {
            return;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

fn kill(id: i32) {
    // It may have ended by itself.
    let _ = kill_process(Pid::from_raw(id).unwrap(), Signal::KILL);
}

#[test]
fn kills_of_either_end_and_of_ssh_lose_nothing() {
    let Some(host) = FarHost::start("cp-kills") else { return };
    host.dir.write("from", noise(7, SIZE));
    let mut interrupted = 0;
    for round in 0..kills() {
        let mut command = host.weft("cp");
        // Half of them up, half of them down.
        let (source, destination) = match round % 2 {
            0 => (String::from("from"), host.far("to")),
            _ => (host.far("from"), String::from("to")),
        };
        command.args(["-q", "--limit", "80mbit", &source, &destination]);
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let before = record(&host).and_then(|path| fs::read(path).ok());
        wait_for_progress(&host, &mut child, before);
        let own = i32::try_from(child.id()).unwrap();
        let below = children(own);
        match round % 3 {
            // `timeout` stands before weft, and ssh behind it.
            0 => below.iter().for_each(|id| kill(*id)),
            1 => host.far_ends().into_iter().for_each(kill),
            _ => below.iter().flat_map(|id| children(*id)).for_each(kill),
        }
        let status = child.wait().unwrap();
        interrupted += u64::from(!status.success());
        // The kill may have come when all was over but the last word.
        let to = host.dir.path("to");
        assert!(to.exists() || !status.success());
        if to.exists() {
            assert_same(&host.dir.path("from"), &to);
            fs::remove_file(to).unwrap();
        }
    }
    assert!(interrupted * 2 >= kills(), "{interrupted} copies were interrupted");
    let output = host.cp(&["--json", "from", &host.far("to")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_same(&host.dir.path("from"), &host.dir.path("to"));
    assert_eq!(record(&host), None);
}

/// As by Ctrl-C: ssh is gone with the near end, and the far end cannot tell that from a connection
/// that was lost.
#[test]
fn the_same_command_goes_on_after_an_interrupt_of_all_processes_here() {
    let Some(host) = FarHost::start("cp-interrupted") else { return };
    host.dir.write("from", noise(7, SIZE));
    let mut command = host.weft("cp");
    command.args(["-q", "--limit", "40mbit", "from", &host.far("to")]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for_progress(&host, &mut child, None);
    // `timeout` leads a group of its own.
    kill_process_group(Pid::from_child(&child), Signal::INT).unwrap();
    assert!(!child.wait().unwrap().success());
    host.copied(&["-q", "from", &host.far("to")]);
    assert_same(&host.dir.path("from"), &host.dir.path("to"));
}

/// Its connection may be lost in an outage that the copy outlives.
#[test]
fn a_copy_goes_on_without_ssh_though_nothing_is_heard_for_a_while() {
    let Some(host) = FarHost::start("cp-without-ssh") else { return };
    host.dir.write("from", noise(7, SIZE));
    let mut command = host.weft("cp");
    command.args(["-q", "--udp-only", "--limit", "80mbit", "from", &host.far("to")]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_progress(&host, &mut child, None);
    let far: Vec<_> = host.far_ends().into_iter().filter_map(Pid::from_raw).collect();
    far.iter().for_each(|id| kill_process(*id, Signal::STOP).unwrap());
    let below = children(i32::try_from(child.id()).unwrap());
    below.iter().flat_map(|id| children(*id)).for_each(kill);
    std::thread::park_timeout(OUTAGE);
    far.iter().for_each(|id| kill_process(*id, Signal::CONT).unwrap());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_same(&host.dir.path("from"), &host.dir.path("to"));
}

fn children(id: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}

#[test]
fn what_was_recorded_is_not_sent_again() {
    let Some(host) = FarHost::start("cp-resume") else { return };
    host.dir.write("from", noise(8, SIZE));
    let mut command = host.weft("cp");
    command.args(["-q", "--limit", "40mbit", "from", &host.far("to")]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    wait_for_progress(&host, &mut child, None);
    children(i32::try_from(child.id()).unwrap()).into_iter().for_each(kill);
    assert!(!child.wait().unwrap().success());
    let output = host.cp(&["--json", "from", &host.far("to")]);
    let counts = last_event(&output.stdout);
    let copied = counts["bytes_copied"].as_u64().unwrap();
    assert!(copied < SIZE as u64, "{copied} bytes were sent again");
    assert_same(&host.dir.path("from"), &host.dir.path("to"));
}

#[test]
fn a_source_that_has_changed_starts_anew() {
    let Some(host) = FarHost::start("cp-changed") else { return };
    host.dir.write("from", noise(8, SIZE));
    let mut command = host.weft("cp");
    command.args(["-q", "--limit", "40mbit", "from", &host.far("to")]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let other = noise(9, SIZE);
    wait_for_progress(&host, &mut child, None);
    host.dir.write("from", other);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("from: it changed while it was copied"), "{said}");
    assert!(!host.dir.path("to").exists());
    host.copied(&["-q", "from", &host.far("to")]);
    assert_same(&host.dir.path("from"), &host.dir.path("to"));
}
