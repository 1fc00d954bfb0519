//! Floors: plain TCP sockets on this machine, each end in a process of its own.

use anyhow::{Context, Result};
use serde_json::Value;

use super::BenchProbe;
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::reading::{ProbeReading, ReadingUnit};

/// One floor.
#[derive(Debug)]
pub struct FloorProbe {
    arguments: &'static str,
    label: String,
}

impl FloorProbe {
    /// The floor that `weft bench floor ARGUMENTS` measures; `label` begins the names of its
    /// series.
    pub fn new(arguments: &'static str, label: &str) -> Self {
        Self { arguments, label: label.to_owned() }
    }
}

impl BenchProbe for FloorProbe {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        None
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let side = lab.own().args(&format!("floor {}", self.arguments));
            let address = &lab.address;
            let server = side.clone().args(&format!("--listen {address}:{port}"));
            let seconds = lab.seconds;
            let client = side.args(&format!("--connect {address}:{port} --seconds {seconds}"));
            (server, client)
        })?;
        let report: Value =
            serde_json::from_str(&pair.client.stdout).context("a floor's report")?;
        if let Some(us) = report["us"].as_f64() {
            return Ok(vec![ProbeReading::new(&self.label, ReadingUnit::Microseconds, us)]);
        }
        let field = |name: &str| report[name].as_f64().with_context(|| format!("no {name}"));
        let cpu = pair.cpu().as_secs_f64() / (field("bytes")? / 1e9);
        Ok(vec![
            ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, field("gbps")?),
            ProbeReading::new(
                format!("{}, CPU", self.label),
                ReadingUnit::CpuSecondsPerGigabyte,
                cpu,
            ),
        ])
    }
}
