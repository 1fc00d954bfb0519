//! The programs of `examples/`: filters that are joined by streams, over TCP and over SDP. Each
//! starts its filters itself, and prints a report in JSON.

use anyhow::{Context, Result};
use serde_json::Value;

use super::BenchProbe;
use super::pattern::PatternTransport;
use crate::lab::BenchLab;
use crate::process::{Finished, Spec};
use crate::reading::{ProbeReading, ReadingUnit};

/// A program of filters, and what it works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Example {
    /// Five filters.
    Microscope,
    /// Four filters.
    Isosurface,
}

impl Example {
    /// Its command.
    pub fn label(self) -> &'static str {
        match self {
            Self::Microscope => "microscope",
            Self::Isosurface => "isosurface",
        }
    }

    /// What makes its data, and how much of it is little.
    fn data(self) -> (&'static str, &'static str) {
        match self {
            Self::Microscope => ("slide microscope.data", "--size 1024x768"),
            Self::Isosurface => ("volume isosurface.data", "--side 64"),
        }
    }

    /// How large a picture of little data is.
    fn little(self) -> &'static str {
        match self {
            Self::Microscope => "--size 512x384",
            Self::Isosurface => "--size 200x200",
        }
    }

    fn spec(self, lab: &BenchLab) -> Spec {
        Spec::at(&lab.weft.with_file_name(self.label())).within(lab.dir())
    }
}

/// One program, one way, with units of one size.
#[derive(Debug)]
pub struct Filters {
    example: Example,
    way: PatternTransport,
    unit: &'static str,
    little: bool,
    /// How often the query is asked, once that is known.
    times: Option<u64>,
}

const TIMES_MAX: f64 = 1000.0;

impl Filters {
    /// `example` with units of `unit`, as its `--unit` has it, and much data or `little`.
    pub fn new(example: Example, way: PatternTransport, unit: &'static str, little: bool) -> Self {
        Self { example, way, unit, little, times: None }
    }

    /// Makes the data, unless it is there.
    fn prepare(&self, lab: &BenchLab) -> Result<()> {
        let (make, little) = self.example.data();
        if lab.dir().join(format!("{}.data", self.example.label())).exists() {
            return Ok(());
        }
        let spec = self.example.spec(lab).args(make);
        lab.alone(&if self.little { spec.args(little) } else { spec }).map(|_| ())
    }

    fn ask(&self, lab: &BenchLab, times: u64) -> Result<(Value, Finished)> {
        let (name, unit) = (self.example.label(), self.unit);
        let size = if self.little { self.example.little() } else { "" };
        let line = format!("run {name}.data --json --unit {unit} --repeat {times} {size}");
        let finished = lab.alone(&self.way.carry(self.example.spec(lab).args(&line), lab))?;
        self.way.check(&finished.stderr)?;
        let report = serde_json::from_str(&finished.stdout).context("reading the report")?;
        Ok((report, finished))
    }
}

impl BenchProbe for Filters {
    fn name(&self) -> String {
        format!("{} {}, {}", self.example.label(), self.unit, self.way.label())
    }

    fn program(&self) -> Option<&str> {
        None
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        self.prepare(lab)?;
        let times = match self.times {
            Some(times) => times,
            None => {
                let once = number(&self.ask(lab, 1)?.0, "seconds")?;
                (lab.seconds / once).clamp(1.0, TIMES_MAX).ceil() as u64
            }
        };
        self.times = Some(times);
        let (report, finished) = self.ask(lab, times)?;
        let megabytes = number(&report, "megabytes_per_second")?;
        let gigabytes = megabytes * number(&report, "seconds")? / 1e3;
        let cpu = finished.cpu.as_secs_f64() / gigabytes;
        let name = self.name();
        Ok(vec![
            ProbeReading::new(format!("{name}, CPU"), ReadingUnit::CpuSecondsPerGigabyte, cpu),
            ProbeReading::new(
                format!("{name}, data"),
                ReadingUnit::GigabitsPerSecond,
                megabytes * 8.0 / 1e3,
            ),
            ProbeReading::new(
                name,
                ReadingUnit::UnitsPerSecond,
                number(&report, "units_per_second")?,
            ),
        ])
    }
}

fn number(report: &Value, field: &str) -> Result<f64> {
    report[field].as_f64().with_context(|| format!("no {field} in {report}"))
}
