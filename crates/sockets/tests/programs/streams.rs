//! Programs that measure, or just carry bytes.

use std::process::Stdio;

use libtest_mimic::Failed;

use crate::common::dir;
use crate::{Ours, content, free_port, judge, program, same, serve};

pub fn iperf3(ours: Ours) -> Result<(), Failed> {
    for direction in [&[][..], &["-R"]] {
        let port = free_port();
        let mut command = program("iperf3", ours.server());
        command.args(["-s", "-1", "-B", "127.0.0.1", "-p", &port]);
        let server = serve(command.stdout(Stdio::null()), &port, ours.server());
        let mut caller = program("iperf3", ours.caller());
        caller.args(["-c", "127.0.0.1", "-p", &port, "-n", "10M", "-P", "2"]).args(direction);
        let said = caller.stdout(Stdio::null()).start().end();
        judge(&server.end(), &said, ours)?;
    }
    Ok(())
}

pub fn netcat(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("nc-{ours:?}")), free_port());
    let (file, bytes) = content(&dir);
    let copy = dir.path("copy");
    let mut command = program("nc", ours.server());
    command.args(["-l", "127.0.0.1", &port]);
    let server = serve(command.stdout(std::fs::File::create(&copy)?.into()), &port, ours.server());
    let mut caller = program("nc", ours.caller());
    caller.args(["-N", "127.0.0.1", &port]).stdin(std::fs::File::open(&file)?.into());
    let said = caller.start().end();
    let served = server.end();
    same(&copy, &bytes)?;
    judge(&served, &said, ours)
}

/// NetPIPE compares what comes back byte by byte if it is asked to.
pub fn netpipe(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("netpipe-{ours:?}")), free_port());
    let how = ["-i", "-n", "5", "-u", "65536", "-P", &port];
    let mut command = program("NPtcp", ours.server());
    let server =
        serve(command.args(how).dir(&dir.path("")).stdout(Stdio::null()), &port, ours.server());
    let mut caller = program("NPtcp", ours.caller());
    caller.args(["-h", "127.0.0.1"]).args(how).dir(&dir.path("")).stdout(Stdio::piped());
    let said = caller.start().end();
    let served = server.end();
    let report = served.clone() + &said;
    let checks = || report.lines().filter(|line| line.contains("Integrity"));
    if checks().count() == 0 || !checks().all(|line| line.contains("passed")) {
        return Err(report.into());
    }
    judge(&served, &said, ours)
}

/// sockperf checks each answer, and says what was lost, doubled or out of order.
pub fn sockperf(ours: Ours) -> Result<(), Failed> {
    let port = free_port();
    let mut command = program("sockperf", ours.server());
    command.args(["server", "--tcp", "-i", "127.0.0.1", "-p", &port]).stdout(Stdio::null());
    let server = serve(&mut command, &port, ours.server());
    let mut caller = program("sockperf", ours.caller());
    caller.args(["ping-pong", "--tcp", "-i", "127.0.0.1", "-p", &port, "-t", "1", "-m", "64"]);
    caller.args(["--data-integrity"]).stdout(Stdio::piped());
    let said = caller.start().end();
    judge(&server.stop(), &said, ours)?;
    let clean = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";
    if said.contains(clean) { Ok(()) } else { Err(said.into()) }
}

/// Both ways. Its server closes stderr, so only its caller says which way it went.
pub fn nuttcp(ours: Ours) -> Result<(), Failed> {
    for direction in ["-t", "-r"] {
        let (port, data) = (free_port(), free_port());
        let mut command = program("nuttcp", ours.server());
        let server = serve(
            command.args(["-1", "--nofork", "-P", &port]).stdout(Stdio::null()),
            &port,
            ours.server(),
        );
        let mut caller = program("nuttcp", ours.caller());
        caller.args([direction, "-n", "160", "-P", &port, "-p", &data, "127.0.0.1"]);
        let said = caller.stdout(Stdio::piped()).start().end();
        if !said.contains("10.0000 MB") {
            return Err(said.into());
        }
        if ours.caller() {
            judge("", &said, ours)?;
        }
        let _ended = server.rest();
    }
    Ok(())
}
