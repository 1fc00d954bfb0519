//! How a client ends when it does not measure to the end, or not at all.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::thread;

use serde_json::Value;

use super::Server;
use crate::common::{text, weft};

#[test]
fn an_interrupt_leaves_what_was_measured() {
    let server = Server::start(&[]);
    for line in ["-t 60 -i 0.05", "-t 60 -i 0.05 -R", "-t 60 -i 0.05 --latency"] {
        let mut client = server.client(line).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(client.stdout.take().unwrap());
        while !said.contains(" - ") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
        let pid = client.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        lines.read_to_string(&mut said).unwrap();
        assert_eq!(client.wait().unwrap().code(), Some(130), "{said}");
        assert!(said.contains("  64 ") && said.ends_with("ended early\n"), "{said}");
    }
}

#[test]
fn a_client_that_falls_silent_does_not_keep_the_next_one_out() {
    let mut server = Server::start(&["--patience", "5"]);
    for line in ["-t 60 -i 0.05 --op write", "-t 60 -i 0.05 --op send --events"] {
        // A server that waits for ever finds the client gone in the end.
        let mut client = Command::new("timeout");
        client.args(["--foreground", "-s", "KILL", "60"]);
        client.arg(weft().get_program()).args(server.client(line).get_args());
        let mut client = client.stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut lines = BufReader::new(client.stdout.take().unwrap());
        while !said.contains(" - ") {
            assert!(lines.read_line(&mut said).unwrap() > 0, "{said}");
        }
        let id = client.id();
        let child = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
        let signal = |name: &str| {
            assert!(Command::new("kill").args([name, child.trim()]).status().unwrap().success());
        };
        signal("-STOP");
        let mut complaint = String::new();
        server.lines.read_line(&mut complaint).unwrap();
        assert!(complaint.contains("has said nothing for 5 s in the middle"), "{complaint}");
        signal("-KILL");
        client.wait().unwrap();
        assert_eq!(server.json("-n 10")["runs"][0]["up"]["messages"], 10);
        complaint.clear();
        server.lines.read_line(&mut complaint).unwrap();
        assert!(complaint.starts_with("127.0.0.1: write"), "{complaint}");
    }
}

#[test]
fn one_client_is_enough_for_some() {
    let mut server = Server::start(&["--one-off"]);
    assert_eq!(server.json("-n 10 -s 64,128")["runs"].as_array().unwrap().len(), 2);
    assert!(server.child.wait().unwrap().success());
    let mut said = String::new();
    server.lines.read_to_string(&mut said).unwrap();
    assert_eq!(
        said.lines().filter(|line| line.starts_with("127.0.0.1: write")).count(),
        2,
        "{said}"
    );
}

#[test]
fn nobody_there_is_a_failure_in_json_too() {
    let ended = Server::start(&[]);
    let port = ended.port.to_string();
    drop(ended);
    let output = weft().args(["perf", "127.0.0.1", "-p", &port, "-J"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("weft perf server"), "{}", text(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["error"].as_str().unwrap().contains(&port));
}

#[test]
fn what_cannot_be_done_is_said() {
    let server = Server::start(&["-d", "weft_iw0"]);
    for (line, why, status) in [
        ("--latency -b", "--latency is without -R and -b", 125),
        ("-n 10 -d no_such_device", "there are weft0, weft_iw0", 125),
        ("-n 10 -d weft0 --transport iwarp", "uses weft_iw0, not weft0", 1),
        ("--op atomic -s 16", "an atomic has 8 bytes", 125),
        ("--latency --op write --events", "--op send", 125),
    ] {
        let output = server.run(line);
        assert_eq!(output.status.code(), Some(status), "{line}");
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
    assert_eq!(server.run("--bogus").status.code(), Some(125));
    // Without a transport of its own the client takes what the server has.
    assert_eq!(server.json("-n 10")["runs"][0]["device"], "weft_iw0");
}

/// Calls a client at `port`, which must end with `status`; gives what it said.
fn fails_at(port: u16, line: &str, status: i32) -> String {
    let mut client = weft();
    client.args(["perf", "127.0.0.1", "-p", &port.to_string()]).args(line.split_whitespace());
    let output = client.output().unwrap();
    assert_eq!(output.status.code(), Some(status), "{}", text(&output.stdout));
    text(&output.stderr)
}

#[test]
fn what_is_no_server_is_told_from_one() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let said = fails_at(silent.local_addr().unwrap().port(), "", 1);
    assert!(said.contains("is open but silent"), "{said}");
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = web.local_addr().unwrap().port();
    let answer = thread::spawn(move || {
        let (mut stream, _) = web.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
    });
    let said = fails_at(port, "", 1);
    assert!(said.contains("is no `weft perf`: it said `HTTP/1.1 400 Bad Request`\n"), "{said}");
    answer.join().unwrap();
}

#[test]
fn a_device_that_is_not_here_is_told_before_anything_is_connected() {
    let said = fails_at(1, "-d nosuch", 125);
    assert!(said.contains("no device nosuch here; there are"), "{said}");
    assert!(said.contains("weft0, weft_iw0"), "{said}");
}
