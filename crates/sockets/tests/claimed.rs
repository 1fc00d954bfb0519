//! A Hello names the TCP connection that it is for, so a user of this host can name that of another
//! one.

mod common;

use weft_testkit::{is_root, skip};

/// The user who claims a connection of root.
const DAEMON: &str = "1";
/// One whom the kernel also names where it does not know a user.
const NOBODY: &str = "65534";

/// Serves a caller by TCP alone whose connection this user claims; says what came of both.
fn claim_as(user: &str) -> [String; 2] {
    run("serve", ["call", user])
}

/// Runs the server, and a caller of this kind.
fn run(serve: &str, [call, user]: [&str; 2]) -> [String; 2] {
    let dir = common::dir(&format!("claimed-{call}-{user}"));
    let path = common::build(&dir, "claimed.c");
    let server = common::program(&path, true).env("WEFT_TRANSPORT", "iwarp").args(serve);
    let (server, port) = server.start().line("port ");
    let caller = common::run(&common::program(&path, false).words([call, &port, user]));
    [common::end(server), caller]
}

#[test]
fn a_connection_that_another_user_claims_stays_with_its_caller() {
    if !is_root() {
        return skip("only root can be two users");
    }
    let [server, caller] = claim_as(DAEMON);
    assert!(caller.contains("granted 1"), "{caller}");
    assert!(server.contains(": TCP, it did not ask for SDP"), "{server}");
}

#[test]
fn a_user_whom_the_kernel_may_not_know_is_granted_nothing() {
    if !is_root() {
        return skip("only root can be two users");
    }
    let [server, caller] = claim_as(NOBODY);
    assert!(caller.contains("granted 0"), "{caller}");
    assert!(server.contains(": TCP, it did not ask for SDP"), "{server}");
}

#[test]
fn those_who_ask_for_sdp_and_never_connect_leave_a_server_its_descriptors() {
    if !is_root() {
        return skip("only root can be two users");
    }
    let [server, caller] = run("serve few", ["crowd", DAEMON]);
    // A quarter of the 128 descriptors that the server may have.
    assert!(caller.contains("granted 32"), "{caller}");
    assert!(server.contains(": TCP, it did not ask for SDP"), "{server}");
}
