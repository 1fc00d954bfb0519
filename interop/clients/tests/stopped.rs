//! Programs that are stopped (SIGSTOP, a debugger) for longer than their timeouts go on.

use std::time::Duration;

use weft_testkit::{IWARP, Lab, Program, Running, SHUTTLE, Signal, free_port};

/// Value of `WEFT_STALL_TIMEOUT_MS`, and the time for which programs are stopped.
const STALL_TIMEOUT_MS: &str = "1000";
const STOPPED: Duration = Duration::from_secs(3);
/// The same for `make soak-stopped`: longer than any timeout of Weft's own.
const STOPPED_LONG: Duration = Duration::from_secs(150);

/// Stops programs for longer than their timeouts; none of them may end meanwhile.
fn stop(these: &[&Running]) {
    stop_for(STOPPED, these);
}

fn stop_for(time: Duration, these: &[&Running]) {
    these.iter().for_each(|this| this.signal(Signal::STOP));
    assert!(!these[0].ends_within(time), "one that is stopped does not end");
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
        let line = format!("-R -F -s 1000000 -n 10000 -p {port}");
        let program = lab.program("ib_write_bw").env("WEFT_STALL_TIMEOUT_MS", STALL_TIMEOUT_MS);
        let server = program.clone().args(&line).start().listening(port);
        let client = program.args(&line).arg("127.0.0.1").start();
        let client = client.until("was at work", |client| client.cpu_ticks() > 30);
        stop(&[&server]);
        client.wait().success();
        server.wait().success();
    });
}

/// Which ends are stopped.
const SERVER: [bool; 2] = [true, false];
const CLIENT: [bool; 2] = [false, true];
const BOTH: [bool; 2] = [true, true];

/// Two ends that talk for ever, asleep while nothing comes, and which of them are stopped.
struct Talk {
    ends: [Running; 2],
    stopped: [bool; 2],
}

impl Talk {
    fn new(server: &Program, client: &Program, port: u16, stopped: [bool; 2]) -> Self {
        let server = server.start().listening(port);
        Self { ends: [server, client.start()], stopped }.at_work()
    }

    /// By rdma-cm. Where one end is stopped the other may wait for what it has posted.
    fn of_rping(lab: &Lab, transport: &str, stopped: [bool; 2]) -> Self {
        let port = free_port();
        let rping = lab.program("rping").args(&format!("-a 127.0.0.1 -p {port} -S 1000"));
        let rping = rping.env("WEFT_TRANSPORT", transport);
        let patient = |rping: Program| rping.env("WEFT_STALL_TIMEOUT_MS", "600000");
        let rping = if stopped == BOTH { rping } else { patient(rping) };
        Self::new(&rping.clone().arg("-s"), &rping.arg("-c"), port, stopped)
    }

    /// By the numbers of the queue pairs.
    fn of_pingpong(lab: &Lab, device: &str, stopped: [bool; 2]) -> Self {
        let port = free_port();
        let end = lab.program("ibv_rc_pingpong").args(&format!("-e -n 100000000 -p {port}"));
        let end = end.args(&format!("-d {device} -g {}", u8::from(device == "weft_iw0")));
        Self::new(&end, &end.clone().arg("127.0.0.1"), port, stopped)
    }

    /// Waits until both ends have done something, and something new.
    fn at_work(self) -> Self {
        let ends = self.ends.map(|end| {
            let before = end.cpu_ticks();
            end.until("went on", |end| end.cpu_ticks() > before + 20)
        });
        Self { ends, ..self }
    }

    fn stopped(&self) -> impl Iterator<Item = &Running> {
        self.ends.iter().zip(self.stopped).filter(|(_, stopped)| *stopped).map(|(end, _)| end)
    }
}

/// A queue pair of `weft0` that was connected by number has the timeouts that its application has
/// chosen, and those of ibv_rc_pingpong are over in seconds.
#[test]
#[ignore = "minutes: make soak-stopped"]
fn connections_outlast_a_stop_of_minutes() {
    let Some(lab) = Lab::with(&["rping", "ibv_rc_pingpong"]) else { return };
    let mut talks = vec![Talk::of_pingpong(&lab, "weft0", BOTH)];
    for stopped in [SERVER, CLIENT, BOTH] {
        talks.push(Talk::of_pingpong(&lab, "weft_iw0", stopped));
        talks.extend([SHUTTLE, IWARP].map(|way| Talk::of_rping(&lab, way, stopped)));
    }
    let stopped: Vec<&Running> = talks.iter().flat_map(Talk::stopped).collect();
    stop_for(STOPPED_LONG, &stopped);
    talks.into_iter().for_each(|talk| drop(talk.at_work()));
}
