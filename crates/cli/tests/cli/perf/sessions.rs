//! One client after another, and clients that are none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};

use super::Server;
use crate::common::{Dir, text, weft};

const SHORT: &str = "-n 20";

fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port)).expect("the server listens")
}

#[test]
fn a_busy_server_says_so() {
    let server = Server::start(&[]);
    let first = connect(&server);
    let second = server.run(SHORT);
    assert_eq!(second.status.code(), Some(1));
    let said = text(&second.stderr);
    assert!(said.contains("it is busy with another client"), "{said}");
    drop(first);
    server.json(SHORT);
}

#[test]
fn garbage_is_refused_and_survived() {
    let mut server = Server::start(&["-1"]);
    let flood = vec![b'{'; 100_000];
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\x16\x03\x01\n", b"{\"say\":\"start\"}\n", &flood]
    {
        let mut stream = connect(&server);
        // A flood may be refused before all of it was taken.
        let _ = stream.write_all(garbage);
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        assert!(read.is_err() || text(&answer).contains("refused"), "{}", text(&answer));
    }
    // None of them was the one client.
    server.json(SHORT);
    assert!(server.child.wait().unwrap().success());
}

#[test]
fn a_test_without_streams_ends() {
    let server = Server::start(&[]);
    let test =
        r#"{"say":"test","test":{"version":2,"operation":"write","latency":false,"octets":64,
        "streams":1,"up":true,"down":false,"amount":{"seconds":1.0},"omit_s":0.0,"depth":16,
        "events":false,"verify":false,"interval_s":1.0}}"#
            .replace('\n', "");
    for (test, answer) in [
        (test.clone(), r#"{"say":"ready""#),
        (test.replace(r#""octets":64"#, r#""octets":4294967295"#), "a size is 1 byte"),
        (test.replace(r#""seconds":1.0"#, r#""seconds":1e300"#), "a time is"),
        (test.replace(r#""streams":1"#, r#""streams":65535"#), "streams"),
        (test.replace(r#""depth":16"#, r#""depth":16,"more":1"#), "unknown field"),
    ] {
        let mut stream = connect(&server);
        writeln!(stream, "{test}").unwrap();
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line).unwrap();
        assert!(line.contains(answer), "{line}");
        stream.shutdown(Shutdown::Both).unwrap();
    }
    server.json(SHORT);
}

#[test]
fn both_sides_outlive_each_other() {
    let server = Server::start(&[]);
    let mut client =
        server.client("-t 60 -i 0.05 -b").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    let until_it_runs = |lines: &mut BufReader<_>| {
        let mut line = String::new();
        while !line.contains(" - ") {
            line.clear();
            assert!(lines.read_line(&mut line).unwrap() > 0, "it ended");
        }
    };
    until_it_runs(&mut lines);
    client.kill().unwrap();
    client.wait().unwrap();
    server.json(SHORT);

    let mut client =
        server.client("-t 60 -i 0.05").stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap());
    until_it_runs(&mut lines);
    drop(server);
    assert_eq!(client.wait().unwrap().code(), Some(1));
}

#[test]
fn with_a_key_both_sides_need_it() {
    let scratch = Dir::new("perf-key");
    let file = scratch.text_path("key");
    assert!(weft().args(["key", "new", &file]).status().unwrap().success());
    let server = Server::start(&["--key", &file]);
    let run = &server.json(&format!("{SHORT} --verify --key {file}"))["runs"][0];
    assert_eq!((&run["data"]["wrong"], &run["device"]), (&0.into(), &"weft0".into()));
    let without = server.run(&format!("{SHORT} --transport shuttle"));
    assert_eq!(without.status.code(), Some(1), "{}", text(&without.stderr));
}
