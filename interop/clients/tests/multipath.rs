//! Unmodified programs between two hosts that have two links.
//!
//! How much went by which link is what the router of the links has counted.

use serde_json::Value;
use weft_interop::source;
use weft_testkit::{Ended, Lab, Program, Running, library, weft};

const PROGRAMS: [&str; 4] = ["ip", "ib_write_bw", "ib_send_bw", "rstream"];

/// Two links of which neither could carry a run in the time that both take.
const FIRST: &str = "40ms 100mbit";
const SECOND: &str = "20ms 50mbit";
/// What each link carries at least of a run over both: a tenth, on a busy machine too.
const PART: u64 = 10;
/// Bytes on a link that show that a connection uses it.
const AT_WORK: u64 = 1_000_000;

/// Bytes that each link has delivered, as the router says in JSON.
fn delivered(report: &[u8]) -> [u64; 2] {
    let report: Value = serde_json::from_slice(report).unwrap();
    [&report, &report["second"]].map(|path| {
        let of = |way: &str| path[way]["link"]["delivered_octets"].as_u64().unwrap();
        of("forward") + of("back")
    })
}

/// A run, and the bytes that each link has delivered.
struct CameOf {
    ended: Ended,
    bytes: [u64; 2],
}

/// Two hosts with two links, named `name`; each end of a program is told where paths may begin.
struct Hosts<'a> {
    lab: &'a Lab,
    name: &'a str,
    multipath: [&'a str; 2],
}

impl Hosts<'_> {
    /// Others may run this test at the same time.
    fn name(&self) -> String {
        format!("multipath-{}-{}", self.name, std::process::id())
    }

    fn weft(&self) -> Program {
        self.lab.program(&weft().display().to_string()).on_its_own().env("WEFT_LIB", library())
    }

    /// Runs `server`, and `client`, which is told the far host's first address. `meanwhile` is
    /// called once the client has begun.
    fn run(
        &self,
        server: &str,
        client: &str,
        meanwhile: impl FnOnce(Running) -> Running,
    ) -> CameOf {
        let (weft, [near, far]) = (weft().display(), self.multipath);
        let report = self.lab.path("report.json");
        let wan = self.weft().args("wan --name").arg(self.name());
        let wan = wan.args(FIRST).arg("--second").arg(SECOND);
        let wan = wan.arg("--json").arg(&report).arg("--server");
        // A server that is held up may be found by TCP alone.
        let settings = |multipath| format!("WEFT_TRANSPORT=shuttle WEFT_MULTIPATH={multipath}");
        let wan = wan.arg(format!("{} {weft} run {server}", settings(far)));
        let client = format!("-- env {} {weft} run {client} 10.77.0.2", settings(near));
        let ended = meanwhile(wan.args(&client).start()).wait().success();
        CameOf { ended, bytes: delivered(&std::fs::read(report).unwrap()) }
    }

    /// What the links have delivered so far; nothing before they are there.
    fn delivered_so_far(&self) -> Option<[u64; 2]> {
        let ended = self.weft().args("wan stat --json").arg(self.name()).start().wait();
        ended.status.success().then(|| delivered(ended.stdout.as_bytes()))
    }

    /// Has one link of the near host carry nothing any more.
    fn cut(&self, link: usize) {
        let exec = self.weft().args("wan exec --name").arg(self.name()).args("near -- ip link set");
        exec.arg(["wan0", "wan1"][link]).arg("down").start().wait().success();
    }
}

fn uses_both(came: &CameOf) -> bool {
    let all: u64 = came.bytes.iter().sum();
    came.bytes.iter().all(|bytes| bytes * PART > all)
}

fn uses_both_if_both_ends_want(name: &str, line: &str) {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    let line = format!("{line} -F -d weft0 -n 300");
    for multipath in [["on", "on"], ["on", "off"], ["off", "on"]] {
        let came = Hosts { lab: &lab, name, multipath }.run(&line, &line, |running| running);
        let wanted = multipath == ["on", "on"];
        assert_eq!(uses_both(&came), wanted, "{multipath:?}: {:?}\n{}", came.bytes, came.ended);
    }
}

#[test]
fn queue_pairs_that_an_application_connects() {
    uses_both_if_both_ends_want("qpn", "ib_write_bw");
}

/// Its listener ends while connections that it has granted go on, and another one takes its port.
#[test]
fn queue_pairs_of_rdma_cm() {
    uses_both_if_both_ends_want("cm", "ib_send_bw -R");
}

/// The connection that follows has paths of its own; the one before has moved next to nothing.
#[test]
fn a_queue_pair_that_is_reset_and_connected_again() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    lab.verbs_program(&source("reconnected"));
    let line = lab.path("reconnected").display().to_string();
    let hosts = Hosts { lab: &lab, name: "reconnected", multipath: ["on", "on"] };
    let came = hosts.run(&line, &line, |running| running);
    assert!(uses_both(&came), "{:?}\n{}", came.bytes, came.ended);
}

/// Every byte is compared, and the connection ends in order.
#[test]
fn a_link_that_dies_under_a_connection() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    let line = "rstream -T v -S 1000000 -C 40";
    for dies in 0..2 {
        let hosts = Hosts { lab: &lab, name: "dies", multipath: ["on", "on"] };
        let mut before = [0; 2];
        let came = hosts.run(line, &format!("{line} -s"), |running| {
            let is_at_work = |bytes: [u64; 2]| bytes.iter().all(|bytes| *bytes > AT_WORK);
            let running = running
                .until("uses both links", |_| hosts.delivered_so_far().is_some_and(is_at_work));
            hosts.cut(dies);
            before = hosts.delivered_so_far().unwrap();
            running
        });
        let after = [0, 1].map(|link| came.bytes[link] - before[link]);
        assert!(after[1 - dies] > 5 * after[dies], "{before:?}, {after:?}\n{}", came.ended);
    }
}

/// Other names for the same: an interface, and an address.
#[test]
fn a_list_says_where_paths_begin() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    let line = "ib_write_bw -F -d weft0 -n 300";
    for multipath in [["wan1", "10.77.1.2"], ["10.77.1.1,wan9", "wan0,wan1"]] {
        let hosts = Hosts { lab: &lab, name: "list", multipath };
        let came = hosts.run(line, line, |running| running);
        assert!(uses_both(&came), "{multipath:?}: {:?}\n{}", came.bytes, came.ended);
    }
}
