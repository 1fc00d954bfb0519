//! Programs that measure, or just carry bytes.

use libtest_mimic::Failed;

use crate::common::{dir, end, run};
use crate::{Ours, content, free_port, judge, program, same, serve, stop};

pub fn iperf3(ours: Ours) -> Result<(), Failed> {
    for direction in ["", "-R"] {
        let port = free_port();
        let iperf = |ours, words: &str| program("iperf3", ours).args(words).args("-p").arg(&port);
        let server = serve(&iperf(ours.server(), "-s -1 -B 127.0.0.1"), &port, ours.server());
        let caller = iperf(ours.caller(), "-c 127.0.0.1 -n 10M -P 2");
        let said = run(&caller.args(direction));
        judge(&end(server), &said, ours)?;
    }
    Ok(())
}

pub fn netcat(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("nc-{ours:?}")), free_port());
    let (file, bytes) = content(&dir);
    let copy = dir.path("copy");
    let nc = |ours, words: &str| program("nc", ours).args(words).arg(&port);
    let server = nc(ours.server(), "-l 127.0.0.1").output(&copy);
    let server = serve(&server, &port, ours.server());
    let said = run(&nc(ours.caller(), "-N 127.0.0.1").input(&file));
    let served = end(server);
    same(&copy, &bytes)?;
    judge(&served, &said, ours)
}

/// NetPIPE compares what comes back byte by byte if it is asked to.
pub fn netpipe(ours: Ours) -> Result<(), Failed> {
    let (dir, port) = (dir(&format!("netpipe-{ours:?}")), free_port());
    let how = format!("-i -n 5 -u 65536 -P {port}");
    let netpipe = |ours| program("NPtcp", ours).args(&how).within(dir.root());
    let server = serve(&netpipe(ours.server()), &port, ours.server());
    let said = run(&netpipe(ours.caller()).args("-h 127.0.0.1"));
    let served = end(server);
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
    let at = format!("--tcp -i 127.0.0.1 -p {port}");
    let sockperf = |ours, what: &str| program("sockperf", ours).arg(what).args(&at);
    let server = serve(&sockperf(ours.server(), "server"), &port, ours.server());
    let said = run(&sockperf(ours.caller(), "ping-pong").args("-t 1 -m 64 --data-integrity"));
    judge(&stop(server), &said, ours)?;
    let clean = "# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0";
    if said.contains(clean) { Ok(()) } else { Err(said.into()) }
}

/// Both ways. Its server closes stderr, so only its caller says which way it went.
pub fn nuttcp(ours: Ours) -> Result<(), Failed> {
    for direction in ["-t", "-r"] {
        let (port, data) = (free_port(), free_port());
        let nuttcp = |ours, words: &str| program("nuttcp", ours).args(words).arg("-P").arg(&port);
        let server = serve(&nuttcp(ours.server(), "-1 --nofork"), &port, ours.server());
        let caller = nuttcp(ours.caller(), &format!("{direction} -n 160 -p {data}"));
        let said = run(&caller.arg("127.0.0.1"));
        if !said.contains("10.0000 MB") {
            return Err(said.into());
        }
        if ours.caller() {
            judge("", &said, ours)?;
        }
        server.wait_group();
    }
    Ok(())
}
