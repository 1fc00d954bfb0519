//! What becomes of connections and listeners that several processes have, or that a process leaves
//! behind.

mod common;

use common::{Dir, Program};

/// Connections that the callers of `handed.c` make.
const CALLS: usize = 4;

/// Runs both ends of a C program; gives what each said. The server need not end well.
fn run(source: &str, how: &str) -> [String; 2] {
    let dir = Dir::new(&format!("{source}-{how}"));
    let program = dir.build(source);
    let mut server = Program::new(&program, true).args(["serve", how]).start();
    let port = server.port();
    let call = if source == "handed.c" { vec!["call", &port] } else { vec!["call", &port, how] };
    let caller = Program::new(&program, true).args(call).start().end();
    [server.rest(), caller]
}

fn count(said: &str, what: &str) -> usize {
    said.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn children_accept_what_their_parent_serves() {
    for how in ["fork", "nobody", "exec"] {
        let [server, caller] = run("handed.c", how);
        assert_eq!(count(&server, ": SDP over Shuttle, enhanced"), CALLS, "{server}");
        assert_eq!(count(&caller, ": SDP over Shuttle, enhanced"), CALLS, "{caller}");
    }
}

#[test]
fn who_is_left_with_a_listener_serves_it() {
    let [server, caller] = run("handed.c", "orphan");
    assert_eq!(count(&server, "listens at"), 2, "{server}");
    assert_eq!(count(&caller, ": TCP, it does not take SDP"), 1, "{caller}");
    assert_eq!(count(&caller, ": SDP over Shuttle, enhanced"), CALLS - 1, "{caller}");
}

#[test]
fn what_a_process_wrote_arrives_though_it_ends() {
    let [server, _] = run("endings.c", "exit");
    assert_eq!(count(&server, ": SDP over Shuttle, enhanced"), 1, "{server}");
}

#[test]
fn the_peer_of_a_process_that_is_killed_is_reset() {
    let [_, caller] = run("endings.c", "killed");
    assert_eq!(count(&caller, ": SDP over Shuttle, enhanced"), 1, "{caller}");
}
