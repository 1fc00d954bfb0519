//! Unmodified programs over `weft0` across a path of 70 ms that loses or reorders.
//!
//! A row is a program on both ends, and what its client says when all is well. Programs that can
//! check their data do so. What is unreliable is not sent across a path that loses.

use std::fmt::Write;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use weft_testkit::{Ended, Lab, library, weft};

const LOSES: &str = "70ms 200mbit 1%";
const REORDERS: &str = "70ms 200mbit reorder=25%:5ms";
const BOTH: &str = "70ms 200mbit 1% reorder=25%:5ms";

/// Programs that wait for a long path leave room for others.
const AT_ONCE: usize = 3;
/// How long a program may take; some wait for some hundred round trips.
const PATIENCE: Duration = Duration::from_secs(240);

/// A program on both ends.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// What the server runs.
    server: &'static str,
    /// What the client says.
    said: &'static str,
    client: Client,
    /// It arrives whatever is lost.
    reliable: bool,
    /// One of the selection that each change has to pass.
    selected: bool,
}

#[derive(Clone, Copy, Debug)]
enum Client {
    /// What the server runs, and this behind it.
    With(&'static str),
    /// Something else.
    Runs(&'static str),
}

/// A server that is told nothing, and a client that is told its address.
const fn plain(line: &'static str, said: &'static str) -> Row {
    let client = Client::With("10.77.0.2");
    Row { server: line, said, client, reliable: true, selected: false }
}

const fn perf(line: &'static str) -> Row {
    plain(line, "#bytes")
}

impl Row {
    const fn selected(self) -> Self {
        Self { selected: true, ..self }
    }

    const fn unreliable(self) -> Self {
        Self { reliable: false, ..self }
    }

    /// The client is told the address by an option.
    const fn s(self) -> Self {
        Self { client: Client::With("-s 10.77.0.2"), ..self }
    }

    const fn client(self, line: &'static str) -> Self {
        Self { client: Client::Runs(line), ..self }
    }
}

const ROWS: &[Row] = &[
    plain("ibv_rc_pingpong -d weft0 -g 0 -c -n 20", "20 iters in").selected(),
    plain("ibv_rc_pingpong -d weft0 -g 0 -c -e -n 20", "20 iters in"),
    plain("ibv_srq_pingpong -d weft0 -g 0 -c -q 4 -n 100", "100 iters in"),
    plain("ibv_uc_pingpong -d weft0 -g 0 -c -n 20", "20 iters in").unreliable(),
    plain("ibv_ud_pingpong -d weft0 -g 0 -c -n 20", "20 iters in").unreliable(),
    perf("ib_write_bw -F -n 200").selected(),
    perf("ib_write_bw -F -a -n 5"),
    perf("ib_write_bw -F -b -q 2 -n 50"),
    perf("ib_read_bw -F -n 50 -o 16").selected(),
    perf("ib_read_bw -F -a -n 5"),
    perf("ib_send_bw -F -n 200").selected(),
    perf("ib_send_bw -F -a -n 5"),
    perf("ib_send_bw -F -e -n 200"),
    perf("ib_atomic_bw -F -n 100"),
    perf("ib_write_lat -F -n 30 -s 20000").selected(),
    perf("ib_write_lat -F -a -n 5"),
    perf("ib_read_lat -F -n 20 -s 20000"),
    perf("ib_send_lat -F -n 20 -s 20000"),
    perf("ib_atomic_lat -F -n 20"),
    perf("ib_write_lat -F -c UC -n 20").unreliable(),
    perf("ib_send_lat -F -c UD -n 20").unreliable(),
    perf("ib_write_bw -R -F -n 200").selected(),
    perf("ib_read_bw -R -F -n 50"),
    perf("ib_send_bw -R -F -n 200"),
    perf("ib_send_bw -R -F -a -n 5"),
    perf("ib_write_lat -R -F -n 20"),
    perf("ib_atomic_bw -R -F -n 50"),
    plain("rping -s -V -C 5 -S 20000", "ping data: rdma-ping-4")
        .client("rping -c -V -v -C 5 -S 20000 -a 10.77.0.2")
        .selected(),
    plain("ucmatose -c 4 -C 10 -S 10000", "return status 0").s(),
    plain("udaddy -C 10 -S 1000", "return status 0").s().unreliable(),
    plain("rdma_server", "rdma_client: end 0").client("rdma_client -s 10.77.0.2"),
    plain("cmtime -c 10", "connect").s(),
    plain("rstream -T v -S 10000 -C 50", "custom").s().selected(),
    plain("rstream -T v -S 1000000 -C 5", "custom").s(),
    plain("riostream -T v -S 100000 -C 5", "custom").s(),
    plain("qperf -lp 19765", "rc_bw:")
        .client("qperf -lp 19765 10.77.0.2 -cm 1 -t 2 rc_lat rc_rdma_read_bw rc_bw quit"),
    plain(
        "fio --name=w --ioengine=rdma --port=7777 --bs=64k --size=8m --verify=crc32c --rw=read",
        "io=8192KiB",
    )
    .client(
        "fio --name=w --ioengine=rdma --port=7777 --bs=64k --size=8m --verify=crc32c --rw=write \
         --iodepth=16 --verb=write --hostname=10.77.0.2",
    )
    .selected(),
    plain(
        "fio --name=s --ioengine=rdma --port=7777 --bs=64k --size=4m --verify=crc32c --rw=read",
        "io=4096KiB",
    )
    .client(
        "fio --name=s --ioengine=rdma --port=7777 --bs=64k --size=4m --verify=crc32c --rw=write \
         --iodepth=16 --verb=send --hostname=10.77.0.2",
    ),
    plain("env UCX_TLS=rc_v ucx_perftest", "Final:")
        .client("env UCX_TLS=rc_v ucx_perftest 10.77.0.2 -t tag_lat -n 20 -w 2 -s 50000"),
    plain("env UCX_TLS=rc_v ucx_perftest", "Final:")
        .client("env UCX_TLS=rc_v ucx_perftest 10.77.0.2 -t ucp_put_bw -n 100 -w 2 -s 50000"),
];

/// What the rows run, beside what every machine has.
const PROGRAMS: [&str; 12] = [
    "ibv_rc_pingpong",
    "ib_write_bw",
    "rping",
    "ucmatose",
    "udaddy",
    "rdma_server",
    "cmtime",
    "rstream",
    "riostream",
    "qperf",
    "fio",
    "ucx_perftest",
];

/// Runs a row across a path; how long that took, or what was wrong.
fn run(lab: &Lab, row: &Row, path: &str) -> Result<Duration, Ended> {
    let weft = weft().display();
    let client = match row.client {
        Client::With(more) => format!("{} {more}", row.server),
        Client::Runs(line) => line.to_owned(),
    };
    let wan = lab.program(&weft.to_string()).on_its_own().env("WEFT_LIB", library());
    let wan = wan.args(&format!("wan {path} --server")).arg(format!("{weft} run {}", row.server));
    let running = wan.args(&format!("-- {weft} run {client}")).start();
    running.ends_within(PATIENCE);
    let ended = running.end();
    let good = ended.status.success() && ended.stdout.contains(row.said);
    if good { Ok(ended.lasted) } else { Err(ended) }
}

/// Runs rows across paths, some at once; gives what came of each.
fn run_all(lab: &Lab, rows: &[Row], paths: &[&str]) -> Vec<Vec<Option<Result<Duration, Ended>>>> {
    let rest = Mutex::new(rows.iter().enumerate());
    let found = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                let next = || rest.lock().unwrap().next();
                while let Some((at, row)) = next() {
                    let passes = |path: &&str| row.reliable || !path.contains(LOSES);
                    let one = |path: &&str| passes(path).then(|| run(lab, row, path));
                    let came = paths.iter().map(one).collect();
                    found.lock().unwrap().push((at, came));
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap();
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, came)| came).collect()
}

#[test]
fn a_selection_on_a_path_that_loses_and_reorders() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    let rows: Vec<Row> = ROWS.iter().filter(|row| row.selected).copied().collect();
    for came in run_all(&lab, &rows, &[BOTH]).into_iter().flatten().flatten() {
        if let Err(ended) = came {
            panic!("{ended}");
        }
    }
}

/// `make soak-wan-clients`.
#[test]
#[ignore = "every program on two paths takes minutes"]
fn every_program_on_a_path_that_loses_and_on_one_that_reorders() {
    let Some(lab) = Lab::of_root(&PROGRAMS) else { return };
    let mut table = "| program | 1 % lost | 25 % late |\n|---|---|---|\n".to_owned();
    let mut wrong = String::new();
    for (row, came) in ROWS.iter().zip(run_all(&lab, ROWS, &[LOSES, REORDERS])) {
        write!(table, "| `{}` |", row.server).unwrap();
        for one in came {
            match one {
                None => table.push_str(" - |"),
                Some(Ok(lasted)) => write!(table, " {:.1} s |", lasted.as_secs_f64()).unwrap(),
                Some(Err(ended)) => {
                    table.push_str(" fails |");
                    writeln!(wrong, "{ended}").unwrap();
                }
            }
        }
        table.push('\n');
    }
    println!("{table}{wrong}");
    assert!(wrong.is_empty());
}
