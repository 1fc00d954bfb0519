//! What is seen of running programs from outside: `weft ss`, `weft top`, `weft metrics`, and the
//! counters of devices in sysfs.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use weft_testkit::{Lab, Program, Running, free_port, pair, stderr, text, weft, without_settings};

/// What `weft` says with these arguments of the programs that are seen in `dir`.
fn said(dir: &Path, args: &[&str]) -> String {
    let mut command = Command::new(weft());
    without_settings(&mut command);
    let out = command.args(args).env("XDG_RUNTIME_DIR", dir).output().expect("weft starts");
    assert!(out.status.success(), "{args:?}: {}", stderr(&out));
    text(&out.stdout)
}

/// The program, seen in the lab's directory, by a network.
fn seen(lab: &Lab, program: Program) -> Program {
    program.env("XDG_RUNTIME_DIR", lab.path("")).env("WEFT_LANE", "off")
}

/// Waits until `weft` says each of `parts` with these arguments: a process that has no CPU for a
/// tenth of a second is shown as one that does not answer.
fn shows(running: Running, dir: &Path, args: &[&str], parts: &[&str]) -> Running {
    running.until(&format!("it is in what weft {args:?} says"), |_| {
        let shown = said(dir, args);
        parts.iter().all(|part| shown.contains(part))
    })
}

fn counter(lab: &Lab, name: &str) -> u64 {
    let file = format!("/sys/class/infiniband/{}/ports/1/{name}", lab.device());
    let read = seen(lab, lab.program("cat")).args(&file).run().success();
    read.stdout.trim().parse().expect("a number")
}

#[test]
fn a_running_connection_is_seen_and_a_stopped_process_too() {
    Lab::over_each(&["rping", "cat"], |lab| {
        let (dir, port) = (lab.path(""), free_port());
        let rping = |role| seen(lab, lab.program("rping")).args(&format!("{role} -p {port}"));
        let server = rping("-s -a 127.0.0.1 -P").start().listening(port);
        let client = rping("-c -a 127.0.0.1").start();
        let peer = format!("\"peer\": \"127.0.0.1:{port}\"");
        let client = client.until("its connection is seen", |_| {
            let listed = said(&dir, &["ss", "--json"]);
            listed.contains(&peer) && listed.contains("\"state\": \"RTS\"")
        });
        let client = shows(client, &dir, &["ss"], &["rping", lab.device()]);
        let top = ["top", "-b", "-n", "1", "-d", "0.2"];
        let client = shows(client, &dir, &top, &["FLIGHT/WINDOW", "rping"]);
        let family = format!("weft_bytes_out_total{{device=\"{}\"}}", lab.device());
        let client = shows(client, &dir, &["metrics"], &[&family, "# EOF\n"]);
        let client =
            client.until("its traffic is counted", |_| counter(lab, "counters/port_xmit_data") > 0);
        client.signal(Signal::STOP);
        let id = client.id();
        let client = client.until("it is seen to be stopped", |_| {
            said(&dir, &["ss"]).contains(&format!("process {id} does not answer"))
        });
        client.signal(Signal::CONT);
        client.end();
        server.end();
        let listed = said(&dir, &["ss"]);
        assert!(!listed.contains("rping"), "{listed}");
    });
}

#[test]
fn counters_of_sysfs_keep_what_ended_programs_did() {
    let Some(lab) = Lab::with(&["ibv_rc_pingpong", "cat"]) else { return };
    let port = free_port();
    let end = seen(&lab, lab.program("ibv_rc_pingpong"));
    let end = end.args(&format!("-d weft0 -g 0 -p {port} -n 500 -s 4096"));
    let (server, client) = pair(&end, &end.clone().args("127.0.0.1"), port);
    server.success();
    client.success();
    let words = 2 * 500 * 4096 / 4;
    assert_eq!(counter(&lab, "counters/port_xmit_data"), words);
    assert_eq!(counter(&lab, "counters/port_rcv_data"), words);
    assert!(counter(&lab, "hw_counters/sent_pkts") > 0);
    assert_eq!(counter(&lab, "counters/port_rcv_errors"), 0);
}

#[test]
fn a_request_that_hangs_is_seen_to_wait() {
    let Some(lab) = Lab::with(&["ibv_rc_pingpong"]) else { return };
    let port = free_port();
    let line = format!("-d weft0 -g 0 -p {port} -n 300");
    let end = seen(&lab, lab.program("ibv_rc_pingpong")).args(&line);
    let server = end.start().listening(port);
    let client = end.clone().args("127.0.0.1").option("--fault").option("hang:after=100").start();
    let client = client.until("one request waits after a hundred", |_| {
        let listed = said(&lab.path(""), &["ss", "--json"]);
        let waits = ["\"operations\": 100,", "\"sends\": 1,", "\"sends_waiting\": 1,"];
        waits.iter().all(|number| listed.contains(number))
    });
    client.end();
    server.end();
}

#[test]
fn who_does_not_want_to_be_seen_is_not() {
    let Some(lab) = Lab::with(&["ibv_rc_pingpong"]) else { return };
    let port = free_port();
    let end = seen(&lab, lab.program("ibv_rc_pingpong")).env("WEFT_OBSERVE", "off");
    let end = end.args(&format!("-d weft0 -g 0 -p {port} -n 10"));
    let (server, client) = pair(&end, &end.clone().args("127.0.0.1"), port);
    server.success();
    client.success();
    assert!(!lab.path("weft").exists());
}
