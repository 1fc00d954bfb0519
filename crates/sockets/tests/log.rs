//! `WEFT_LOG_FORMAT=json`: each line of the library is an object, the engine's log and the
//! library's own reports alike.

mod common;

use common::{program, program_as_it_comes};
use serde_json::Value;

/// Runs both ends of the C program with the whole log; gives what each wrote to stderr.
fn run(test: &str, variables: &[(&str, &str)]) -> [String; 2] {
    let dir = common::dir(test);
    let path = common::build(&dir, "sockets.c");
    let start = |words: &[&str]| {
        let command = program(&path, true).words(words);
        let command = command.env("WEFT_LOG", "debug").env("WEFT_LOG_FORMAT", "json");
        variables.iter().fold(command, |command, (name, value)| command.env(name, value)).start()
    };
    let (server, port) = start(&["serve"]).line("port ");
    let caller = start(&["call", &port]).wait_group().success().stderr;
    [server.wait_group().success().stderr, caller]
}

/// The objects of all lines but the program's own one.
fn lines_of(said: &str) -> Vec<Value> {
    let ours = said.lines().filter(|line| !line.starts_with("port "));
    let lines = ours.map(|line| {
        let line: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["time"].is_f64() && line["pid"].is_u64(), "{line}");
        assert!(line["message"].is_string(), "{line}");
        line
    });
    lines.collect()
}

/// The text of a field.
fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line[field].as_str().unwrap_or_default()
}

#[test]
fn every_line_is_an_object_with_the_fields_of_its_event() {
    let [server, caller] = run("log-json", &[]).map(|said| lines_of(&said));
    let has = |lines: &[Value], wanted: &[(&str, &str)]| {
        let found = |line: &Value| wanted.iter().all(|(field, value)| text(line, field) == *value);
        assert!(lines.iter().any(found), "no {wanted:?} in {lines:#?}");
    };
    let carrier = ("carrier", "SDP over Shuttle, enhanced");
    has(&caller, &[("event", "connected"), ("level", "info"), carrier]);
    has(&server, &[("event", "accepted"), ("level", "info"), carrier]);
    let listens = server.iter().find(|line| text(line, "event") == "listens");
    assert!(listens.is_some_and(|line| text(line, "at").contains(':')), "{server:#?}");
    // The log of the engine below, with its own fields.
    for lines in [&server, &caller] {
        has(lines, &[("event", "state"), ("level", "debug"), ("to", "RTS")]);
    }
}

#[test]
fn a_warning_of_the_library_itself_is_an_object_too() {
    let [server, caller] =
        run("log-warning", &[("WEFT_SOCKETS_RULES", "nonsense")]).map(|said| lines_of(&said));
    for lines in [server, caller] {
        let warns = |line: &Value| {
            text(line, "level") == "warning" && text(line, "message").contains("WEFT_SOCKETS_RULES")
        };
        assert!(lines.iter().any(warns), "{lines:#?}");
    }
}

#[test]
fn what_is_said_does_not_go_to_connections_of_the_application() {
    let dir = common::dir("stderr");
    let path = common::build(&dir, "stderr.c");
    for program in [program, program_as_it_comes] {
        common::run(&program(&path, true).arg(dir.path("log")));
    }
}
