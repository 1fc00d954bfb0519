//! `weft bench table lan`: what one machine reaches over loopback, and the table of the rows.

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::lab::BenchLab;
use crate::probes::{BenchProbe, api, floor, iperf, libfabric, perftest, sockperf, ucx};
use crate::rounds::{self, BenchResults};
use crate::rows::{self, RowResult, series};
use crate::{machine, sys, table};

/// The options of the LAN benchmark.
#[derive(Debug, Args)]
pub struct LanArgs {
    /// How many rounds; medians need five
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// How many seconds each measurement takes
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Two short rounds: a look, not a result
    #[arg(long)]
    quick: bool,
    /// Only the measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// The address of this machine that servers are reached at
    #[arg(long, default_value = "127.0.0.1")]
    address: String,
    /// JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Write the result to this file instead of stdout
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the benchmark and prints its result.
pub fn run(options: &LanArgs) -> Result<()> {
    let (rounds, seconds) =
        if options.quick { (2, 0.5) } else { (options.rounds, options.seconds) };
    sys::catch_interrupts()?;
    let lab = BenchLab::new(&options.address, seconds)?;
    let results = rounds::measure(&lab, probes(), options.only.as_deref(), rounds)?;
    let text = if options.json { json(&results)? } else { markdown(&results) };
    results.hand_in(&text, options.out.as_deref())
}

fn probes() -> Vec<Box<dyn BenchProbe>> {
    use series::*;
    const MIB: u64 = 1 << 20;
    let reno = machine::allows_congestion("reno").then_some("reno");
    vec![
        Box::new(perftest::Bandwidth::new("ib_write_bw", MIB, WRITE_1M).counting_cpu()),
        Box::new(iperf::IperfStream::new(reno, IPERF_RENO)),
        Box::new(floor::FloorProbe::new("stream --call 262144", STREAM_256K)),
        Box::new(floor::FloorProbe::new("stream --call 1048576", STREAM_1M)),
        Box::new(iperf::IperfStream::new(None, IPERF)),
        Box::new(perftest::Bandwidth::new("ib_read_bw", MIB, READ_1M)),
        Box::new(perftest::Bandwidth::new("ib_send_bw", MIB, SEND_1M)),
        Box::new(ucx::Ucx::new("ucp_put_bw", MIB, UCX_PUT_1M)),
        Box::new(ucx::Ucx::new("tag_bw", MIB, UCX_TAG_1M)),
        Box::new(libfabric::Writes::new(MIB, FABRIC_1M)),
        Box::new(perftest::Bandwidth::new("ib_write_bw", 1 << 16, WRITE_64K)),
        Box::new(ucx::Ucx::new("ucp_put_bw", 1 << 16, UCX_PUT_64K)),
        Box::new(libfabric::Writes::new(1 << 16, FABRIC_64K)),
        Box::new(perftest::Bandwidth::new("ib_write_bw", 1 << 12, WRITE_4K)),
        Box::new(ucx::Ucx::new("ucp_put_bw", 1 << 12, UCX_PUT_4K)),
        Box::new(libfabric::Writes::new(1 << 12, FABRIC_4K)),
        Box::new(perftest::Bandwidth::new("ib_write_bw", 64, WRITE_64).with("-l 64")),
        Box::new(ucx::Ucx::new("ucp_put_bw", 64, UCX_PUT_64)),
        Box::new(libfabric::Writes::new(64, FABRIC_64)),
        Box::new(perftest::Latency::new("ib_send_lat", 64, SEND_LAT)),
        Box::new(floor::FloorProbe::new("pingpong --spin", SPIN)),
        Box::new(floor::FloorProbe::new("pingpong", BLOCK)),
        Box::new(ucx::Ucx::new("tag_lat", 64, UCX_TAG_LAT)),
        Box::new(libfabric::LibfabricPingPong::new(64, FABRIC_LAT)),
        Box::new(sockperf::SockperfPingPong::new(64, SOCKPERF)),
        Box::new(perftest::Latency::new("ib_write_lat", 64, WRITE_LAT)),
        Box::new(floor::FloorProbe::new("memory", MEMORY)),
        Box::new(ucx::Ucx::new("ucp_put_lat", 64, UCX_PUT_LAT)),
        Box::new(perftest::Latency::new("ib_read_lat", 64, READ_LAT)),
        Box::new(perftest::Bandwidth::new("ib_write_bw", MIB, SHUTTLE_WRITE_1M).over_shuttle()),
        Box::new(perftest::Bandwidth::new("ib_write_bw", MIB, SEALED_WRITE_1M).sealed()),
        Box::new(perftest::Latency::new("ib_send_lat", 64, SHUTTLE_SEND_LAT).over_shuttle()),
        Box::new(api::Calls),
        Box::new(api::Idle),
    ]
}

/// How the rows are to be read.
const RATIOS: &str = "A ratio is of the two numbers of one round; shown are the median of \
                      these and their range, and the reference's own range.";

fn markdown(results: &BenchResults) -> String {
    let outcomes = outcomes(results);
    let table = if outcomes.is_empty() { String::new() } else { table::outcomes(&outcomes) };
    let head = results.head(RATIOS);
    let series = table::series(&results.readings);
    format!("{head}\n{table}\n{series}{}", results.gaps())
}

fn json(results: &BenchResults) -> Result<String> {
    let mut report = results.json();
    report["rows"] = json!(outcomes(results));
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn outcomes(results: &BenchResults) -> Vec<RowResult> {
    rows::rows().filter_map(|row| row.evaluate(&results.readings)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_of_the_rows_has_a_probe() {
        let names: Vec<String> = probes().iter().map(|probe| probe.name()).collect();
        for name in [series::WRITE_1M, series::SOCKPERF, series::MEMORY, series::UCX_PUT_LAT] {
            assert!(names.iter().any(|probe| probe == name), "{name}");
        }
        let unique: std::collections::BTreeSet<&String> = names.iter().collect();
        assert_eq!(unique.len(), names.len());
    }
}
