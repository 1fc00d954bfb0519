//! What becomes of connections and listeners that several processes have, or that a process leaves
//! behind.

mod common;

use std::path::Path;

use common::{end, program, program_as_it_comes};
use weft_testkit::Signal;

/// How the library says that SDP carries a connection, and that a pair does.
const SDP: &str = ": SDP over Shuttle, enhanced";
const PAIR: &str = ": a pair on this host";
/// How a server says that a caller has found TCP to do.
const RELAY: &str = ": TCP, it has given SDP up";

/// Connections that the callers of `handed.c` make.
const CALLS: usize = 4;

/// Runs both ends of a C program; gives what each said. The server ends well unless it is killed.
fn run(source: &str, how: &str, carrier: &str) -> [String; 2] {
    let dir = common::dir(&format!("{source}-{how}-{}", carrier.len()));
    let path = common::build(&dir, source);
    let program = |path: &Path, ours| match carrier {
        PAIR => program_as_it_comes(path, ours),
        RELAY => program_as_it_comes(path, ours).env("WEFT_LANE", "off"),
        _ => program(path, ours),
    };
    let (server, port) = program(&path, true).words(["serve", how]).start().line("port ");
    let call = if source == "handed.c" { vec!["call", &port] } else { vec!["call", &port, how] };
    let caller = common::run(&program(&path, true).words(call));
    let ended = server.wait_group();
    let ended = if ["killed", "unread"].contains(&how) { ended } else { ended.success() };
    [ended.stderr, caller]
}

/// Runs both ends as often as it takes for the server to relay, which it does if it was asked for
/// SDP before it accepts. What the ends see is the same where the kernel's TCP is all there is.
fn run_relayed(how: &str) {
    for _ in 0..5 {
        let [server, _] = run("endings.c", how, RELAY);
        if count(&server, RELAY) == 1 {
            return;
        }
    }
}

fn count(said: &str, what: &str) -> usize {
    said.lines().filter(|line| line.contains(what)).count()
}

#[test]
fn children_accept_what_their_parent_serves() {
    for (how, carrier) in [SDP, PAIR]
        .into_iter()
        .flat_map(|carrier| ["fork", "nobody", "exec"].map(|how| (how, carrier)))
    {
        let is_whole = |said: &[String; 2]| said.iter().all(|said| count(said, carrier) == CALLS);
        run_until(is_whole, || run("handed.c", how, carrier));
    }
}

/// Runs both ends until what they say is as it is meant to be, a few times at most: a connection
/// that is accepted before the thread that serves has seen its Hello goes by TCP, which on a busy
/// machine happens.
fn run_until(is_meant: impl Fn(&[String; 2]) -> bool, mut run: impl FnMut() -> [String; 2]) {
    let mut said = run();
    for _ in 1..5 {
        if is_meant(&said) {
            return;
        }
        said = run();
    }
    assert!(is_meant(&said), "{said:?}");
}

/// One whose parent is gone serves the listener itself once a caller asks for nothing but TCP.
#[test]
fn a_caller_without_the_library_keeps_no_other_from_a_pair() {
    let dir = common::dir("mixed");
    let path = common::build(&dir, "handed.c");
    let server = program_as_it_comes(&path, true).words(["serve", "mixed"]);
    let (server, port) = server.start().line("port ");
    common::run(&program_as_it_comes(&path, false).words(["once", &port]));
    let caller = common::run(&program_as_it_comes(&path, true).words(["call", &port]));
    assert_eq!(count(&caller, PAIR), CALLS, "{caller}");
    let server = server.wait_group().success().stderr;
    assert_eq!(count(&server, PAIR), CALLS, "{server}");
}

#[test]
fn a_child_that_the_c_library_does_not_tell_of_has_connections_of_its_own() {
    let dir = common::dir("cloned");
    let path = common::build(&dir, "cloned.c");
    for how in ["clone", "fork"] {
        let said = common::run(&program(&path, true).args(how));
        // One of the parent with itself, and two between both.
        let made = said.lines().filter(|line| line.contains("connected to") && line.ends_with(SDP));
        assert_eq!(made.count(), 3, "{how}: {said}");
    }
}

/// The number of the socket that listens at `port`.
fn listener_at(port: &str) -> String {
    let port: u16 = port.parse().expect("a number");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel's table");
    let words = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let at = format!("0100007F:{port:04X}");
    let mut found = words.filter(|words| words[1] == at && words[3] == "0A");
    found.next().expect("a listener")[9].to_owned()
}

#[test]
fn silent_visitors_keep_nobody_from_what_was_granted() {
    let dir = common::dir("visitors");
    let (path, visitor) = (common::build(&dir, "handed.c"), common::build(&dir, "visitor.c"));
    let visited = |how| {
        let (server, port) = program(&path, true).words(["serve", how]).start().line("port ");
        let listener = listener_at(&port);
        let visit = |arguments: &str| {
            program(&visitor, false).arg(&listener).args(arguments).start().line("here ")
        };
        server.signal_group(Signal::STOP);
        let _lingering = visit("8 lingering");
        server.signal_group(Signal::CONT);
        let _many = visit("300");
        let caller = common::run(&program(&path, true).words(["call", &port]));
        [end(server), caller]
    };
    for how in ["fork", "nobody"] {
        run_until(|said| said.iter().all(|said| count(said, SDP) == CALLS), || visited(how));
    }
}

#[test]
fn who_is_left_with_a_listener_serves_it() {
    let is_served = |[server, caller]: &[String; 2]| {
        count(server, "listens at") == 2
            && count(caller, ": TCP, it does not take SDP") == 1
            && count(caller, SDP) == CALLS - 1
    };
    run_until(is_served, || run("handed.c", "orphan", SDP));
}

#[test]
fn what_a_process_wrote_arrives_though_it_ends() {
    run_relayed("exit");
    for carrier in [SDP, PAIR] {
        let [server, _] = run("endings.c", "exit", carrier);
        assert_eq!(count(&server, carrier), 1, "{server}");
    }
}

#[test]
#[ignore = "its reader takes more than a minute"]
fn what_was_written_before_a_close_arrives_however_long_the_peer_takes() {
    let [server, _] = run("endings.c", "slow", SDP);
    // The caller comes back to say that it has everything.
    assert!(count(&server, SDP) >= 1, "{server}");
}

#[test]
fn the_peer_of_a_process_that_is_killed_is_reset() {
    let [_, caller] = run("endings.c", "killed", SDP);
    assert_eq!(count(&caller, SDP), 1, "{caller}");
    run_relayed("unread");
}

#[test]
fn a_relay_passes_the_reset_of_its_peer_on() {
    run_relayed("caller");
}

#[test]
fn a_close_that_is_to_reset_does() {
    for how in ["reset", "inherited"] {
        run_relayed(how);
        let [server, _] = run("endings.c", how, SDP);
        assert_eq!(count(&server, SDP), 1, "{server}");
    }
}

#[test]
fn who_has_ended_its_half_finds_a_reset_or_the_end_as_it_is() {
    for how in ["half", "halves"] {
        run_relayed(how);
        let [server, _] = run("endings.c", how, SDP);
        assert_eq!(count(&server, SDP), 1, "{server}");
    }
}

#[test]
fn who_is_left_with_a_listener_takes_the_pairs_that_are_offered_to_it() {
    let [server, caller] = run("handed.c", "orphan", PAIR);
    assert_eq!([count(&server, PAIR), count(&caller, PAIR)], [CALLS; 2], "{server}{caller}");
}

#[test]
fn who_accepts_with_its_last_descriptor_leaves_no_peer_with_another_connection() {
    let dir = common::dir("limited");
    let path = common::build(&dir, "limited.c");
    common::run(&program(&path, true).args("granted"));
    common::run(&program_as_it_comes(&path, true).args("offered"));
    for program in [program, program_as_it_comes] {
        common::run(&program(&path, true).args("worker"));
    }
}

#[test]
fn who_has_fewer_descriptors_than_callers_wait_by_pairs_accepts_all_of_them() {
    let dir = common::dir("outnumbered");
    common::run(&program_as_it_comes(&common::build(&dir, "outnumbered.c"), true));
}

#[test]
fn who_waits_for_a_closed_listener_is_refused_though_a_child_of_the_server_lives() {
    let dir = common::dir("orphaned");
    let path = common::build(&dir, "orphaned.c");
    for last in ["parent", "child"] {
        for program in [program, program_as_it_comes] {
            common::run(&program(&path, true).words([last]));
        }
    }
}

#[test]
fn a_refused_socket_connects_once_somebody_listens() {
    let dir = common::dir("retried");
    let path = common::build(&dir, "retried.c");
    for program in [program, program_as_it_comes] {
        common::run(&program(&path, true));
    }
}

#[test]
fn options_set_while_a_connect_is_in_progress_hold_by_tcp() {
    let dir = common::dir("decided");
    let program = program(&common::build(&dir, "decided.c"), true);
    // Nobody answers; the time until that is known is not what is tested.
    common::run(&program.env("WEFT_SOCKETS_PATIENCE_MS", "300"));
}

#[test]
fn who_leaves_a_connect_by_a_jump_goes_on_with_the_library() {
    let dir = common::dir("left");
    let path = common::build(&dir, "left.c");
    for program in [program, program_as_it_comes] {
        common::run(&program(&path, true));
    }
}

#[test]
fn who_has_no_descriptor_left_for_a_process_that_asks_does_not_spin() {
    let dir = common::dir("limited-visited");
    common::run(&program(&common::build(&dir, "limited.c"), true).args("visited"));
}

#[test]
fn a_thread_that_is_cancelled_ends_in_no_call_that_holds_locks() {
    let dir = common::dir("cancelled");
    common::run(&program(&common::build(&dir, "cancelled.c"), true));
}

#[test]
fn a_connect_that_a_cancelled_thread_has_left_ends() {
    let dir = common::dir("cancelled-silent");
    let program = program(&common::build(&dir, "cancelled.c"), true).args("silent");
    common::run(&program.env("WEFT_SOCKETS_PATIENCE_MS", "300"));
}

#[test]
fn who_permits_itself_to_write_alone_writes() {
    let dir = common::dir("filtered");
    let path = common::build(&dir, "filtered.c");
    for what in ["connection", "file"] {
        common::run(&program_as_it_comes(&path, true).args(what));
    }
}

/// What `exits.c` says, ended in this way.
fn exit(how: &str) -> (String, String) {
    let dir = common::dir(&format!("exits-{how}"));
    let path = common::build(&dir, "exits.c");
    let ended = program(&path, true).arg(how).start().wait_group().success();
    (ended.stdout, ended.stderr)
}

#[test]
fn a_process_ends_although_a_thread_waits_for_its_standard_input() {
    assert_eq!(exit("stdin").0, "said\n");
}

#[test]
fn a_child_that_ends_at_once_writes_nothing_of_what_its_parent_holds() {
    assert_eq!(exit("child").0, "said\n");
}

#[test]
fn handlers_of_the_end_of_a_process_have_their_sockets() {
    assert_eq!(count(&exit("handler").1, "goodbye"), 1);
}

#[test]
fn what_a_stream_over_a_socket_holds_arrives_though_the_process_ends() {
    assert_eq!(count(&exit("stream").1, "held"), 1);
}

#[test]
fn threads_of_a_process_that_ends_do_not_see_its_sockets_end() {
    let (_, said) = exit("idle");
    assert!(count(&said, SDP) == 4 && count(&said, "the end") == 0, "{said}");
}

#[test]
fn a_signal_handler_may_end_the_process() {
    let dir = common::dir("interrupted");
    let said = common::run(&program(&common::build(&dir, "interrupted.c"), true));
    assert!(count(&said, SDP) >= 60, "{said}");
}
