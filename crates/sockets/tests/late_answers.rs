//! An answer that comes just when the caller's patience ends is taken by both ends, or by neither.

mod common;

use common::Program;

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
    let program = common::build(&dir, "handed.c");
    for patience in PATIENCE_MS.repeat(TRIES) {
        let mut server = Program::new(&program, true).args(["serve", "fork"]).start();
        let port = server.port();
        let mut caller = Program::new(&program, true);
        caller.args(["call", &port]).env("WEFT_SOCKETS_PATIENCE_MS", patience);
        let caller = caller.start().end();
        let server = server.end();
        assert_eq!(by_sdp(&server), by_sdp(&caller), "{server}{caller}");
    }
}
