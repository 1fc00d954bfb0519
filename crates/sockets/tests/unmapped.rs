//! Users that a user namespace does not map look alike there, and are not taken for one.

mod common;

use std::process::Command;

use weft_testkit::{is_root, skip};

/// Carried by a pair of this host.
const PAIR: &str = "a pair on this host";

#[test]
fn users_that_look_alike_share_no_pair() {
    let can_be_unmapped = || {
        let status = Command::new("unshare").args(["--user", "true"]).status();
        status.is_ok_and(|status| status.success())
    };
    if !is_root() || !can_be_unmapped() {
        return skip("only root can be two users, in user namespaces of theirs");
    }
    let dir = common::dir("unmapped");
    let path = common::build(&dir, "unmapped.c");
    let program = || common::program_as_it_comes(&path, true);
    let (server, port) = program().words(["serve", "1"]).start().line("port ");
    let caller = common::run(&program().words(["call", &port, "2"]));
    for said in [caller, common::end(server)] {
        assert!(said.contains("TCP") && !said.contains(PAIR), "{said}");
    }
}
