//! An answer that comes just when the caller's patience ends is taken by both ends, or by neither.

mod common;

use common::{end, program, run};

/// Milliseconds of patience that a caller on this machine has about as long as an answer takes.
const PATIENCE_MS: [&str; 3] = ["0", "1", "2"];
/// How often each is tried; a caller makes four connections.
const TRIES: usize = 5;

fn by_sdp(said: &str) -> usize {
    said.lines().filter(|line| line.contains("SDP over Shuttle, enhanced")).count()
}

#[test]
fn both_ends_decide_the_same_however_late_the_answer_is() {
    let dir = common::dir("late");
    let path = common::build(&dir, "handed.c");
    for patience in PATIENCE_MS.repeat(TRIES) {
        let (server, port) = program(&path, true).args("serve fork").start().line("port ");
        let caller = program(&path, true).args("call").arg(port);
        let caller = run(&caller.env("WEFT_SOCKETS_PATIENCE_MS", patience));
        let server = end(server);
        assert_eq!(by_sdp(&server), by_sdp(&caller), "{server}{caller}");
    }
}
