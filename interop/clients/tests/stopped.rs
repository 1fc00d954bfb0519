//! Programs that are stopped (SIGSTOP, a debugger) for longer than their timeouts go on.

use std::time::Duration;

use weft_interop::{Lab, Running, Signal, free_port};

/// What a peer may leave unacknowledged, in milliseconds, and how long programs are stopped.
const STALL_TIMEOUT_MS: &str = "1000";
const STOPPED: Duration = Duration::from_secs(3);

/// Stops programs for longer than their timeouts; none of them may end meanwhile.
fn stop(these: &[&Running]) {
    these.iter().for_each(|this| this.signal(Signal::STOP));
    assert!(!these[0].ends_within(STOPPED), "one that is stopped does not end");
    these.iter().for_each(|this| this.signal(Signal::CONT));
}

#[test]
fn a_ping_goes_on_whichever_end_was_stopped() {
    Lab::over_each(&["rping"], |lab| {
        let port = free_port();
        let line = format!("-a 127.0.0.1 -p {port} -v -S 1000");
        let rping = lab.program("rping").env("WEFT_STALL_TIMEOUT_MS", STALL_TIMEOUT_MS);
        let server = rping.clone().args("-s").args(&line).start().listening(port);
        let mut client = rping.args("-c").args(&line).start().printed("ping data: ");
        for both in [[true, false], [false, true], [true, true]] {
            let ends = [(both[0], &server), (both[1], &client)];
            let stopped: Vec<_> = ends.iter().filter(|end| end.0).map(|end| end.1).collect();
            stop(&stopped);
            let before = client.stdout().len();
            client = client.until("went on", |client| client.stdout().len() > before + 100_000);
        }
        assert!(!server.ends_within(Duration::ZERO), "{}", server.end());
    });
}

/// More is on its way than the sockets hold, so the peer's host says that nobody reads.
#[test]
fn writes_go_on_when_their_target_was_stopped() {
    Lab::over_each(&["ib_write_bw"], |lab| {
        let port = free_port();
        let line = format!("-R -F -s 1000000 -n 1000 -p {port}");
        let program = lab.program("ib_write_bw").env("WEFT_STALL_TIMEOUT_MS", STALL_TIMEOUT_MS);
        let server = program.clone().args(&line).start().listening(port);
        let client = program.args(&line).arg("127.0.0.1").start();
        let client = client.until("was at work", |client| client.cpu_ticks() > 30);
        stop(&[&server]);
        client.wait().success();
        server.wait().success();
    });
}
