//! Two ends on one host that have a pair find what TCP gives, or have TCP.

mod common;

/// Runs a check of the C program; gives how many lines say that an end has a pair, and all lines.
fn pairs(check: &str) -> (usize, String) {
    pairs_under(check, "")
}

/// The same under these rules.
fn pairs_under(check: &str, rules: &str) -> (usize, String) {
    let dir = common::dir(&format!("pairs-{check}-{}", rules.len()));
    let program = common::program_as_it_comes(&common::build(&dir, "pairs.c"), true);
    let said = common::run(&program.arg(check).env("WEFT_SOCKETS_RULES", rules));
    (said.matches(": a pair on this host").count(), said)
}

#[test]
fn a_rule_at_either_end_leaves_the_pair_out_and_the_callers_asks_for_sdp() {
    for (rules, by_sdp) in [("use sdp client pairs *:*", 2), ("use sdp server pairs *:*", 0)] {
        let (count, said) = pairs_under("tcp", rules);
        let ends = said.lines().filter(|line| !line.contains(": listens at "));
        let found = ends.filter(|line| line.contains(": SDP over Shuttle")).count();
        assert_eq!((count, found), (0, by_sdp), "{said}");
    }
}

#[test]
fn addresses_options_and_resets_are_those_of_tcp() {
    let (count, said) = pairs("tcp");
    assert_eq!(count, 2, "{said}");
}

#[test]
fn who_greets_a_caller_that_has_gone_goes_on() {
    let (count, said) = pairs("late");
    assert_eq!(count, 14, "{said}");
}

#[test]
fn who_calls_a_listener_that_ends_is_told() {
    let (count, said) = pairs("ends");
    assert_eq!(count, 4, "{said}");
}

#[test]
fn what_a_pair_cannot_do_goes_another_way() {
    // Of its four connections the third has a pair.
    let (count, said) = pairs("special");
    assert_eq!(count, 2, "{said}");
}

#[test]
fn a_connection_outlives_the_execution_of_another_program() {
    let (count, said) = pairs("exec");
    assert_eq!(count, 2, "{said}");
}

#[test]
fn processes_that_accept_at_once_have_each_its_own() {
    let (count, said) = pairs("many");
    // Once eight in a row have lived for moments the next ones go by TCP.
    assert!(count >= 2 * 8 && count.is_multiple_of(2), "{said}");
    let ends = said.matches(": connected to ").count() + said.matches(": accepted ").count();
    assert_eq!(ends, 2 * 204, "{said}");
}
