//! `weft-bench lan`: every probe in each of several rounds, and the table of the rows.
//!
//! The order of the probes turns by one with each round, so that none always runs after the same
//! other.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::json;

use crate::lab::{Lab, is_installed};
use crate::machine::Usage;
use crate::probes::{Probe, api, floor, iperf, libfabric, perftest, sockperf, ucx};
use crate::progress::Progress;
use crate::reading::{Readings, record};
use crate::rows::{Outcome, ROWS, series};
use crate::{machine, sys, table};

/// The options of the LAN benchmark.
#[derive(Debug, Args)]
pub struct Options {
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

/// What a run came to.
struct Results {
    rounds: usize,
    seconds: f64,
    readings: Readings,
    /// What was not measured, and why.
    missing: Vec<String>,
    failed: Vec<String>,
    disturbance: machine::Disturbance,
}

/// Runs the benchmark and prints its result.
pub fn run(options: &Options) -> Result<()> {
    let (rounds, seconds) =
        if options.quick { (2, 0.5) } else { (options.rounds, options.seconds) };
    let lab = Lab::new(&options.address, seconds)?;
    let mut probes = probes();
    if let Some(text) = &options.only {
        probes.retain(|probe| probe.name().contains(text.as_str()));
        ensure!(!probes.is_empty(), "no measurement has {text:?} in its name");
    }
    let results = measure(&lab, probes, rounds)?;
    let text = if options.json { results.json()? } else { results.markdown() };
    match &options.out {
        Some(file) => fs::write(file, text).with_context(|| format!("{}", file.display()))?,
        None => print!("{text}"),
    }
    match results.failed.len() {
        0 => Ok(()),
        count => bail!("{count} measurements failed:\n{}", results.failed.join("\n")),
    }
}

fn probes() -> Vec<Box<dyn Probe>> {
    use series::*;
    const MIB: u64 = 1 << 20;
    let reno = machine::allows_congestion("reno").then_some("reno");
    vec![
        Box::new(perftest::Bandwidth::new("ib_write_bw", MIB, WRITE_1M).counting_cpu()),
        Box::new(iperf::Stream::new(reno, IPERF_RENO)),
        Box::new(floor::Floor::new("stream --call 262144", STREAM_256K)),
        Box::new(floor::Floor::new("stream --call 1048576", STREAM_1M)),
        Box::new(iperf::Stream::new(None, IPERF)),
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
        Box::new(floor::Floor::new("pingpong --spin", SPIN)),
        Box::new(floor::Floor::new("pingpong", BLOCK)),
        Box::new(ucx::Ucx::new("tag_lat", 64, UCX_TAG_LAT)),
        Box::new(libfabric::PingPong::new(64, FABRIC_LAT)),
        Box::new(sockperf::PingPong::new(64, SOCKPERF)),
        Box::new(perftest::Latency::new("ib_write_lat", 64, WRITE_LAT)),
        Box::new(floor::Floor::new("memory", MEMORY)),
        Box::new(ucx::Ucx::new("ucp_put_lat", 64, UCX_PUT_LAT)),
        Box::new(perftest::Latency::new("ib_read_lat", 64, READ_LAT)),
        Box::new(api::Calls),
        Box::new(api::Idle),
    ]
}

/// Takes every probe in each round. One that fails is not tried again.
fn measure(lab: &Lab, mut probes: Vec<Box<dyn Probe>>, rounds: usize) -> Result<Results> {
    let before = Usage::now();
    let mut results = Results {
        disturbance: before.disturbance(&before),
        rounds,
        seconds: lab.seconds,
        readings: Readings::new(),
        missing: Vec::new(),
        failed: Vec::new(),
    };
    probes.retain(|probe| {
        let absent = probe.program().filter(|program| !is_installed(program));
        results.missing.extend(absent.map(|p| format!("{}: {p} is not installed", probe.name())));
        absent.is_none()
    });
    let progress = Progress::new();
    let mut out = vec![false; probes.len()];
    for round in 0..rounds {
        for turn in 0..probes.len() {
            let index = (turn + round) % probes.len();
            if out[index] {
                continue;
            }
            let probe = &mut probes[index];
            progress.show(&format!("round {} of {rounds}: {}", round + 1, probe.name()));
            match probe.run(lab) {
                Ok(taken) => record(&mut results.readings, round, taken),
                Err(error) if sys::interrupted() => return Err(error),
                Err(error) => {
                    out[index] = true;
                    results.failed.push(format!("{}: {error:#}", probe.name()));
                }
            }
        }
    }
    results.disturbance = before.disturbance(&Usage::now());
    Ok(results)
}

impl Results {
    fn outcomes(&self) -> Vec<Outcome> {
        ROWS.iter().filter_map(|row| row.evaluate(&self.readings)).collect()
    }

    fn markdown(&self) -> String {
        let (rounds, seconds) = (self.rounds, self.seconds);
        let outcomes = self.outcomes();
        let table = if outcomes.is_empty() { String::new() } else { table::outcomes(&outcomes) };
        let mut text = format!("{}; commit {}", machine::describe(), machine::commit());
        for setting in machine::settings() {
            text += &format!("; {setting}");
        }
        text += &format!(
            ".\n{rounds} rounds, the measurements in turn, about {seconds} s each. A ratio is of \
             medians; its range is over the rounds.\n{}\n\n{table}\n{}",
            self.disturbance.sentence(),
            table::series(&self.readings)
        );
        for gap in &self.missing {
            text += &format!("\nNot measured: {gap}.");
        }
        if !self.missing.is_empty() {
            text.push('\n');
        }
        text
    }

    fn json(&self) -> Result<String> {
        let report = json!({
            "machine": machine::describe(),
            "commit": machine::commit(),
            "settings": machine::settings(),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "disturbance": self.disturbance,
            "rows": self.outcomes(),
            "series": self.readings,
            "missing": self.missing,
            "failed": self.failed,
        });
        Ok(serde_json::to_string_pretty(&report)? + "\n")
    }
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
