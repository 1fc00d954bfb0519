//! What programs see of their sockets under the library: the same as under TCP, whoever the peer
//! is.

mod common;

use common::{end, library, program, program_as_it_comes};

/// Checks that the C program makes, each on a connection of its own.
const CONNECTIONS: usize = 13;

/// Runs of which one has to find the peer near.
const ATTEMPTS: usize = 4;

/// Runs both ends of the C program; gives what each said.
fn run(test: &str, arguments: &[&str], ours: [bool; 2], variables: &[(&str, &str)]) -> [String; 2] {
    let dir = common::dir(test);
    let path = common::build(&dir, "sockets.c");
    let start = |mode: &[&str], ours| {
        let command = program(&path, ours).words(mode).words(arguments);
        variables.iter().fold(command, |command, (name, value)| command.env(name, value)).start()
    };
    let (server, port) = start(&["serve"], ours[0]).line("port ");
    let caller = end(start(&["call", &port], ours[1]));
    [end(server), caller]
}

/// How many connections went by SDP, as one side tells.
fn by_sdp(said: &str) -> usize {
    let connection = |line: &&str| line.contains("accepted") || line.contains("connected to");
    said.lines().filter(connection).filter(|line| line.contains("SDP over")).count()
}

#[test]
fn on_one_host_they_have_a_pair() {
    for version in ["4", "6"] {
        let pairs =
            run("pair", &[version], [true; 2], &[("WEFT_LANE", "on"), ("WEFT_SOCKETS_RULES", "")]);
        let count = |said: &String| said.matches(": a pair on this host").count();
        assert_eq!(pairs.each_ref().map(count), [CONNECTIONS; 2], "{pairs:?}");
    }
}

fn assert_carried(said: &[String; 2], how: &str) {
    assert_eq!(said.each_ref().map(|said| by_sdp(said)), [CONNECTIONS; 2], "{said:?}");
    assert!(said[1].contains(how), "{said:?}");
}

#[test]
fn a_near_peer_is_left_to_tcp_where_nothing_asks_for_sdp() {
    // A pair would be nearer still.
    let near = || {
        let [server, caller] = run("near", &[], [true; 2], &[("WEFT_SOCKETS_RULES", "")]);
        let near = caller.matches(": TCP, a round trip takes less than").count();
        let is_near = (near, by_sdp(&caller), by_sdp(&server)) == (CONNECTIONS, 0, 0);
        if is_near { Ok(()) } else { Err(caller) }
    };
    // On a busy machine a round trip may take longer than on a short path.
    let far: Vec<_> = (0..ATTEMPTS).map_while(|_| near().err()).collect();
    assert!(far.len() < ATTEMPTS, "{far:?}");
}

#[test]
fn two_that_are_ours_speak_sdp() {
    assert_carried(&run("shuttle", &[], [true; 2], &[]), "SDP over Shuttle, enhanced");
}

#[test]
fn so_they_do_over_ipv6() {
    assert_carried(&run("v6", &["6"], [true; 2], &[]), "SDP over Shuttle, enhanced");
}

#[test]
fn and_in_basic_style() {
    let basic = [("WEFT_SOCKETS_STYLE", "basic")];
    assert_carried(&run("basic", &[], [true; 2], &basic), "SDP over Shuttle, basic");
}

#[test]
fn and_over_iwarp() {
    let iwarp = [("WEFT_TRANSPORT", "iwarp")];
    assert_carried(&run("iwarp", &[], [true; 2], &iwarp), "SDP over iWARP, enhanced");
}

#[test]
fn and_over_iwarp_in_basic_style() {
    let basic = [("WEFT_TRANSPORT", "iwarp"), ("WEFT_SOCKETS_STYLE", "basic")];
    assert_carried(&run("iwarp-basic", &[], [true; 2], &basic), "SDP over iWARP, basic");
}

#[test]
fn the_end_of_a_stream_that_turned_to_tcp_is_told_to_who_reads_late() {
    let none = [("WEFT_SOCKETS_PATIENCE_MS", "0")];
    let [server, caller] = run("late", &["late"], [true; 2], &none);
    assert_eq!(by_sdp(&server), by_sdp(&caller), "{server}{caller}");
}

#[test]
fn whoever_is_not_ours_is_reached_by_tcp() {
    let [_, caller] = run("plain-server", &[], [false, true], &[]);
    assert_eq!((by_sdp(&caller), caller.matches(": TCP, ").count()), (0, CONNECTIONS), "{caller}");
    let [server, _] = run("plain-caller", &["6"], [true, false], &[]);
    let plain = server.matches("TCP, it did not ask for SDP").count();
    assert_eq!((by_sdp(&server), plain), (0, CONNECTIONS), "{server}");
}

#[test]
fn what_a_rule_leaves_to_tcp_goes_there() {
    let rules = [("WEFT_SOCKETS_RULES", "use tcp client sockets 127.0.0.0/8:*")];
    let [server, caller] = run("rules", &[], [true; 2], &rules);
    assert_eq!(caller.matches("TCP, a rule says so").count(), CONNECTIONS, "{caller}");
    assert!(server.contains("listens at") && by_sdp(&server) == 0, "{server}");
    let off = [("WEFT", "off")];
    let [server, caller] = run("off", &[], [true; 2], &off);
    assert!(!server.contains("weft:") && !caller.contains("weft:"), "{server}{caller}");
}

#[test]
fn a_program_without_sockets_is_left_alone() {
    assert_eq!(common::run(&program("/bin/true".as_ref(), true)), "");
    assert!(library().is_file());
}

#[test]
fn who_watches_a_socket_while_its_way_is_decided_goes_on_watching() {
    let dir = common::dir("watched");
    common::run(&program(&common::build(&dir, "watched.c"), true));
}

#[test]
fn who_sleeps_in_poll_while_a_connect_turns_to_tcp_is_woken_by_the_answer() {
    let dir = common::dir("polled");
    let path = common::build(&dir, "polled.c");
    let program = program(&path, true).env("WEFT_TRANSPORT", "iwarp");
    common::run(&program.env("WEFT_SOCKETS_PATIENCE_MS", "0"));
}

#[test]
fn a_connect_waits_as_long_as_the_application_has_said() {
    let dir = common::dir("timed");
    let built = common::build(&dir, "timed.c");
    for udp in ["silent", "refused"] {
        let program = program(&built, true);
        common::run(&program.arg(udp).env("WEFT_SOCKETS_PATIENCE_MS", "0"));
    }
}

#[test]
fn who_connects_to_the_unspecified_address_has_this_machine_for_a_peer() {
    let dir = common::dir("unspecified");
    let path = common::build(&dir, "unspecified.c");
    for how in ["wait", "poll"] {
        let said = common::run(&program(&path, true).args(how));
        assert_eq!(by_sdp(&said), 2, "{said}");
    }
}

#[test]
fn what_is_to_be_dropped_does_not_reach_the_application() {
    let dir = common::dir("dropped");
    let path = common::build(&dir, "dropped.c");
    for program in [program, program_as_it_comes] {
        common::run(&program(&path, true));
    }
    common::run(&program(&path, false));
}
