//! A connection that is granted while nobody accepts is SDP's when somebody does. The library binds
//! a UDP socket to the listener's port meanwhile, by its own thread, which is not the application's
//! wish to have that port for itself.

mod common;

#[test]
fn a_connection_that_is_accepted_after_it_was_granted_goes_by_sdp() {
    let dir = common::dir("granted");
    let program = common::build(&dir, "granted.c");
    let said = common::run(&common::program(&program, true));
    assert_eq!(said.matches(": SDP over Shuttle, enhanced").count(), 2, "{said}");
}

#[test]
fn so_it_is_where_the_kernel_would_call_with_the_first_bytes() {
    let dir = common::dir("fast");
    let program = common::build(&dir, "granted.c");
    let said = common::run(&common::program(&program, true).args("fast"));
    assert_eq!(said.matches(": SDP over Shuttle, enhanced").count(), 2, "{said}");
}

#[test]
fn what_a_caller_has_sent_that_has_ended_since_arrives() {
    let dir = common::dir("gone");
    let program = common::build(&dir, "granted.c");
    for transport in ["shuttle", "iwarp"] {
        let program = common::program(&program, true).env("WEFT_TRANSPORT", transport);
        let said = common::run(&program.args("gone"));
        assert!(said.contains(": SDP over "), "{transport}: {said}");
    }
}

#[test]
fn so_it_is_where_the_kernel_would_wait_for_data_by_tcp() {
    let dir = common::dir("deferred");
    let program = common::build(&dir, "granted.c");
    for when in ["before", "after"] {
        let said = common::run(&common::program(&program, true).args(when));
        assert_eq!(said.matches(": SDP over Shuttle, enhanced").count(), 2, "{when}: {said}");
        let said = common::run(&common::program_as_it_comes(&program, true).args(when));
        assert_eq!(said.matches(": a pair on this host").count(), 2, "{when}: {said}");
    }
}
