//! Files to a host, from it, and between hosts; over UDP and through ssh.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use weft_testkit::text;

use crate::far_host::{FarHost, assert_same, last_event, noise};

#[test]
fn a_file_gets_the_name_or_the_directory_of_its_destination() {
    let Some(host) = FarHost::start("cp-names") else { return };
    host.dir.write("a", noise(1, 1_000_000));
    host.dir.write("b", "b");
    fs::create_dir(host.dir.path("there")).unwrap();
    host.copied(&["-q", "a", &host.far("c")]);
    assert_same(&host.dir.path("a"), &host.dir.path("c"));
    host.copied(&["-q", "a", "b", &host.far("there")]);
    assert_same(&host.dir.path("a"), &host.dir.path("there/a"));
    host.copied(&["-q", &host.far("a"), "d"]);
    assert_same(&host.dir.path("a"), &host.dir.path("d"));
    host.copied(&["-q", &host.far("a"), &host.far("b"), "new/"]);
    assert_same(&host.dir.path("b"), &host.dir.path("new/b"));
    let to = host.far("e").replace("far:", "far2:");
    host.copied(&["-q", &host.far("a"), &to]);
    assert_same(&host.dir.path("a"), &host.dir.path("e"));
}

#[test]
fn of_two_hosts_the_second_replaces_nothing_of_the_first() {
    let Some(host) = FarHost::start("cp-hosts") else { return };
    for (sub, text) in [("a", "AAAA"), ("b", "BBBBBB")] {
        fs::create_dir_all(host.dir.path(sub).join("d")).unwrap();
        host.dir.write(&format!("{sub}/d/f"), text);
        host.dir.write(&format!("{sub}/d/{sub}"), sub);
        fs::hard_link(host.dir.path(sub).join("d/f"), host.dir.path(sub).join("d/g")).unwrap();
    }
    let second = |name: &str| host.far(name).replace("far:", "far2:");
    for to in ["here".to_owned(), host.far("there")] {
        let output = host.cp(&["-r", &host.far("a/d"), &second("b/d"), &to]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("d/f: it has the name of a file of a host before"), "{said}");
        assert!(said.contains("d/g: "), "{said}");
        let to = host.dir.path(to.rsplit('/').next().unwrap());
        for (name, text) in [("f", "AAAA"), ("g", "AAAA"), ("a", "a"), ("b", "b")] {
            assert_eq!(fs::read_to_string(to.join("d").join(name)).unwrap(), text, "{name}");
        }
    }
}

#[test]
fn from_host_to_host_files_are_named() {
    let Some(host) = FarHost::start("cp-named") else { return };
    host.dir.write("a", "a");
    let to = host.far("b").replace("far:", "far2:");
    let listed = host.cp(&["-n", &host.far("a"), &to]);
    assert_eq!(text(&listed.stdout), "a\n", "{}", text(&listed.stderr));
    let copied = host.cp(&["--json", &host.far("a"), &to]);
    let out = text(&copied.stdout);
    assert!(out.contains(r#"{"data":{"path":"a"},"event":"file"}"#), "{out}");
}

#[test]
fn where_no_udp_port_is_free_the_copy_goes_through_ssh() {
    let Some(host) = FarHost::start("cp-ssh") else { return };
    host.dir.write("a", noise(1, 3_000_000));
    let taken = UdpSocket::bind("0.0.0.0:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    // Where the host has no IPv6 there is nothing to take.
    let _also_taken = UdpSocket::bind(("::", port));
    let copy = |options: &[&str], to: &str| {
        let weft_there = host.dir.text_path("weft-there");
        let mut command = host.bare("cp");
        command.args(["--remote-weft", &weft_there, "--port", &port.to_string()]);
        command.args(options).args(["a", &host.far(to)]).output().unwrap()
    };
    let told = copy(&[], "b");
    let said = text(&told.stderr);
    assert!(told.status.success() && said.contains("going on through ssh"), "{said}");
    assert_same(&host.dir.path("a"), &host.dir.path("b"));
    let refused = copy(&["--udp-only"], "c");
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("--udp-only"), "{said}");
    assert!(!host.dir.path("c").exists());
    assert!(copy(&["-q", "--ssh-only"], "d").status.success());
    assert_same(&host.dir.path("a"), &host.dir.path("d"));
}

#[test]
fn a_far_end_without_weft_is_sent_one_once() {
    let Some(host) = FarHost::start("cp-push") else { return };
    host.dir.write("a", "content");
    let refused = host.bare("cp").args(["--no-push", "a", &host.far("b")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("--no-push"), "{}", text(&refused.stderr));
    for to in ["b", "c"] {
        let sent = host.bare("cp").args(["-q", "a", &host.far(to)]).output().unwrap();
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        assert_same(&host.dir.path("a"), &host.dir.path(to));
    }
    let kept: Vec<_> = fs::read_dir(host.dir.path("cache/weft")).unwrap().collect();
    assert_eq!(kept.len(), 1);
    let missing = host.bare("cp").args(["--remote-weft", "/none", "a", "far:b"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(2));
    let said = text(&missing.stderr);
    assert!(said.contains("has no weft there: install it, or name it"), "{said}");
}

#[test]
fn a_dry_run_names_what_would_be_copied() {
    let Some(host) = FarHost::start("cp-dry") else { return };
    fs::create_dir_all(host.dir.path("from/sub")).unwrap();
    host.dir.write("from/sub/a", "a");
    let far = [host.far("from"), host.far("to")];
    for (from, to, named) in
        [(&*far[0], "to", "to/from/sub/a\n"), ("from", &*far[1], "from/sub/a\n")]
    {
        let output = host.cp(&["-n", "-r", from, to]);
        let said = text(&output.stderr);
        assert!(output.status.success(), "{said}");
        assert_eq!(text(&output.stdout), named);
        assert!(said.ends_with("weft: 1 of 1 files would be copied\n"), "{said}");
        assert!(!host.dir.path("to").exists());
    }
}

/// A list that is cut off would be taken for all.
#[test]
fn what_stdout_has_not_got_is_told() {
    let Some(host) = FarHost::start("cp-unwritten") else { return };
    host.dir.write("a", "a");
    for option in ["-n", "--json"] {
        let mut weft = host.weft("cp");
        weft.args([option, "a", &host.far("b")]);
        let output = weft.stdout(fs::File::create("/dev/full").unwrap()).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("stdout has not got all: No space left on device"), "{said}");
    }
}

#[test]
fn a_limit_and_reading_back_change_no_byte() {
    let Some(host) = FarHost::start("cp-verify") else { return };
    host.dir.write("a", noise(3, 5_000_000));
    let output = host.cp(&["--json", "--verify", "disk", "--limit", "40mbit", "a", &host.far("b")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_same(&host.dir.path("a"), &host.dir.path("b"));
    let elapsed = last_event(&output.stdout)["elapsed_ms"].as_u64();
    assert!(elapsed > Some(850), "40 Mbit at 40 Mbit/s took {elapsed:?} ms");
}

#[test]
fn what_is_on_its_way_is_not_shown_as_copied() {
    const SIZE: u64 = 2_000_000;
    let Some(host) = FarHost::start("cp-progress") else { return };
    host.dir.write("a", noise(5, SIZE as usize));
    let mut command = host.weft("cp");
    command.args(["--json", "--udp-only", "--limit", "4mbit", "a", &host.far("b")]);
    let mut copy = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(copy.stdout.take().unwrap()).lines();
    let events = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap());
    let mut events = events.map(|event: serde_json::Value| (event["event"].clone(), event));
    let (_, connected) = events.find(|(name, _)| name == "connected").unwrap();
    assert!(connected["data"]["carrier"] == "udp" && connected["data"]["host"] == "far");
    let done = |event: &serde_json::Value| event["data"]["bytes_done"].as_u64().unwrap();
    let mut progress = events.filter(|(name, _)| name == "progress").map(|(_, event)| done(&event));
    progress.find(|done| *done > 0).unwrap();
    let far_ends = host.far_ends();
    let signal = |signal| {
        far_ends.iter().for_each(|id| kill_process(Pid::from_raw(*id).unwrap(), signal).unwrap());
    };
    signal(Signal::STOP);
    // Five seconds, in which all of the file leaves, since it fits into the channel.
    let shown: Vec<u64> = progress.by_ref().take(20).collect();
    signal(Signal::CONT);
    assert!(shown.iter().all(|done| *done < SIZE), "{shown:?}");
    assert_eq!(progress.last(), Some(SIZE));
    assert!(copy.wait().unwrap().success());
    assert_same(&host.dir.path("a"), &host.dir.path("b"));
}

#[test]
fn a_trace_is_written_where_one_is_asked_for() {
    let Some(host) = FarHost::start("cp-trace") else { return };
    host.dir.write("a", noise(6, 100_000));
    let trace = host.dir.path("trace");
    let output =
        host.weft("cp").env("WEFT_TRACE", &trace).args(["-q", "a", &host.far("b")]).output();
    assert!(output.unwrap().status.success());
    let events = fs::read_to_string(trace).unwrap();
    assert!(events.contains("connectivity:connection_started"), "{events}");
    assert!(events.contains("transport:packet_sent"), "{events}");
}
