//! Floors: plain sockets or a ring in shared memory, each end in a process of its own.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{BenchProbe, LatencyTaken};
use crate::lab::BenchLab;
use crate::pair::{Pair, ServerEnds};
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

/// The ring in shared memory, a C program.
const RING: &str = include_str!("../../c/ring.c");

/// What runs at both ends.
#[derive(Clone, Copy, Debug)]
enum FloorProgram {
    /// `weft bench floor` with these arguments.
    Sockets(&'static str),
    /// Messages of so many bytes through a ring, in this pattern.
    Ring(&'static str, u64),
}

/// One floor.
#[derive(Debug)]
pub struct FloorProbe {
    program: FloorProgram,
    label: String,
}

impl FloorProbe {
    /// The floor that `weft bench floor ARGUMENTS` measures; `label` begins the names of its
    /// series.
    pub fn new(arguments: &'static str, label: &str) -> Self {
        Self { program: FloorProgram::Sockets(arguments), label: label.to_owned() }
    }

    /// Messages of `bytes` through a ring that both processes map: `pingpong` or `stream`.
    pub fn ring(pattern: &'static str, bytes: u64, label: &str) -> Self {
        Self { program: FloorProgram::Ring(pattern, bytes), label: label.to_owned() }
    }

    fn pair(&self, lab: &BenchLab) -> Result<Pair> {
        let (address, seconds) = (&lab.address, lab.seconds);
        match self.program {
            FloorProgram::Sockets(arguments) => lab.pair(ServerEnds::ByItself, |port| {
                let side = lab.own().args(&format!("floor {arguments} --seconds {seconds}"));
                let ends = ["listen", "connect"].map(|end| format!("--{end} {address}:{port}"));
                let [server, client] = ends.map(|end| side.clone().args(&end));
                (server, client)
            }),
            FloorProgram::Ring(pattern, bytes) => {
                let program = lab.build("ring", RING, &[])?;
                lab.pair(ServerEnds::ByItself, |port| {
                    let side = |end: &str| {
                        let line = format!("{end} {address} {port} {seconds} {pattern} {bytes}");
                        Spec::at(&program).args(&line)
                    };
                    (side("listen"), side("connect"))
                })
            }
        }
    }

    /// Messages in a second, in millions, where their size is known.
    fn messages(&self, gbps: f64) -> Option<ProbeReading> {
        let FloorProgram::Ring(_, bytes) = self.program else { return None };
        let mps = gbps * 1e3 / 8.0 / bytes as f64;
        let series = format!("{}, messages", self.label);
        Some(ProbeReading::new(series, ReadingUnit::MegamessagesPerSecond, mps))
    }
}

impl BenchProbe for FloorProbe {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        matches!(self.program, FloorProgram::Ring(..)).then_some("gcc")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let pair = self.pair(lab)?;
        let report: Value =
            serde_json::from_str(&pair.client.stdout).context("a floor's report")?;
        if let Some(us) = report["us"].as_f64() {
            let latency = LatencyTaken { p50_us: report["p50"].as_f64(), mean_us: us };
            return Ok(latency.readings(&self.label));
        }
        let field = |name: &str| report[name].as_f64().with_context(|| format!("no {name}"));
        let (gbps, cpu_s) = (field("gbps")?, pair.cpu().as_secs_f64());
        let cpu = cpu_s / (field("bytes")? / 1e9);
        let cost = format!("{}, CPU", self.label);
        let readings = [
            ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, gbps),
            ProbeReading::new(cost, ReadingUnit::CpuSecondsPerGigabyte, cpu),
        ];
        Ok(readings.into_iter().chain(self.messages(gbps)).collect())
    }
}
