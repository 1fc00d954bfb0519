//! `weft bench demo`: unmodified programs move data between two processes over Weft, some of them
//! checking every byte, against kernel TCP in the same run.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;
use weft_chart::{markdown, number};

use crate::lab::{BenchLab, is_installed};
use crate::pair::ServerEnds;
use crate::probes::BenchProbe;
use crate::probes::iperf::IperfStream;
use crate::probes::perftest::Bandwidth;
use crate::process::Spec;
use crate::progress::BenchProgress;
use crate::{machine, sys};

/// The options of the demonstration.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many seconds each program takes
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// The address of this machine that servers are reached at
    #[arg(long, default_value = "127.0.0.1")]
    address: String,
}

/// A line of the table.
struct DemoRow {
    program: &'static str,
    checked: &'static str,
    gbps: f64,
}

/// Bytes of a message of rping; it takes one less than 64 KiB at most.
const PING: u64 = 65_000;
/// perftest looks at no data; the CRC of every frame is checked below it.
const BY_CRC: &str = "CRC32C of every frame";

/// Runs the programs and prints the table.
pub fn run(options: &DemoArgs) -> Result<()> {
    for program in ["rping", "fio", "ib_write_bw", "ib_read_bw", "ib_send_bw", "iperf3"] {
        ensure!(is_installed(program), "{program} is not installed; `make deps` installs it");
    }
    sys::catch_interrupts()?;
    let lab = BenchLab::new(&options.address, options.seconds)?;
    let progress = BenchProgress::new(6);
    let mut lines = Vec::new();
    progress.show(0, "rping -V");
    lines.push(ping(&lab).context("rping -V")?);
    progress.show(1, "fio");
    lines.push(verified_bulk(&lab).context("fio")?);
    for (step, program) in ["ib_write_bw", "ib_read_bw", "ib_send_bw"].into_iter().enumerate() {
        progress.show(2 + step, program);
        let probe = Bandwidth::new(program, 1 << 20, program);
        let gbps = probe.measure(&lab).context(program)?.gbps;
        lines.push(DemoRow { program, checked: BY_CRC, gbps });
    }
    progress.show(5, "iperf3");
    let tcp = kernel_tcp(&lab).context("iperf3")?;
    drop(progress);
    print(&lab, &lines, tcp);
    Ok(())
}

/// Both sides of rping compare what they read and what was written with what was meant.
fn ping(lab: &BenchLab) -> Result<DemoRow> {
    let count = (lab.seconds * 1500.0).ceil();
    let pair = lab.pair(ServerEnds::ByItself, |port| {
        let address = &lab.address;
        let side = format!("-a {address} -p {port} -C {count} -S {PING} -V");
        let rping = |role: &str| Spec::new("rping").args(&format!("{role} {side}"));
        (rping("-s").under(&lab.weft), rping("-c").under(&lab.weft))
    })?;
    for side in [&pair.server, &pair.client] {
        ensure!(!side.stderr.contains("mismatch"), "wrong data:\n{}", side.stderr);
    }
    // Each ping is an RDMA Read of the client's data and an RDMA Write of the same back.
    let bits = count * 2.0 * PING as f64 * 8.0;
    let gbps = bits / pair.elapsed.max(Duration::from_millis(1)).as_secs_f64() / 1e9;
    Ok(DemoRow { program: "rping -V", checked: "every byte, by rping", gbps })
}

/// fio's receiver checks the checksum in every block that the sender made. iWARP has no way to say
/// that no receive is posted, and fio has no credits, so each block has a receive of its own.
fn verified_bulk(lab: &BenchLab) -> Result<DemoRow> {
    let pair = lab.pair(ServerEnds::ByItself, |port| {
        let side = "--thread --ioengine=rdma --bs=512k --size=256m --verify=crc32c";
        let fio = |role: &str| {
            let side = format!("{side} --port={port} --output-format=json {role}");
            Spec::new("fio").args(&side).within(lab.dir()).under(&lab.weft)
        };
        let client = format!(
            "--name=sender --hostname={} --verb=send --rw=write --iodepth=1 --do_verify=0 \
             --iodepth_batch_complete=1 --verify_state_save=0",
            lab.address
        );
        (fio("--name=receiver --rw=read --iodepth=512 --verify_fatal=1"), fio(&client))
    })?;
    let stdout = &pair.server.stdout;
    let json = stdout.find('{').map(|at| &stdout[at..]).context("fio's report")?;
    let report: Value = serde_json::from_str(json).context("reading fio's report")?;
    let rate = report["jobs"][0]["read"]["bw_bytes"].as_f64().context("fio's rate")?;
    Ok(DemoRow { program: "fio", checked: "CRC32C of every block, by fio", gbps: rate * 8.0 / 1e9 })
}

fn kernel_tcp(lab: &BenchLab) -> Result<f64> {
    let reno = machine::allows_congestion("reno").then_some("reno");
    let taken = IperfStream::new(reno, "iperf3").run(lab)?;
    Ok(taken.first().context("a reading")?.value)
}

fn print(lab: &BenchLab, lines: &[DemoRow], tcp: f64) {
    let row = |program: &str, checked: &str, gbps: f64| {
        let ratio = format!("{:.2}", gbps / tcp);
        vec![program.to_owned(), checked.to_owned(), number(gbps), ratio]
    };
    let mut rows: Vec<Vec<String>> =
        lines.iter().map(|line| row(line.program, line.checked, line.gbps)).collect();
    rows.push(row("iperf3 (kernel TCP)", "", tcp));
    let head = ["program", "what is checked", "Gbit/s", "of TCP"];
    println!("Two processes over {}, through Weft:\n", lab.address);
    print!("{}", markdown(&head, &rows));
    println!("\n{}", machine::describe());
}
