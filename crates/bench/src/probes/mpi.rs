//! Two ranks of Open MPI, over one of Weft's devices, over its own TCP, or over its own shared
//! memory.

use anyhow::{Context, Result};
use serde_json::Value;

use super::pattern::{LANE, OFF, PatternTransport};
use super::{BenchProbe, LatencyTaken};
use crate::lab::{BenchLab, is_installed};
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const SOURCE: &str = include_str!("../../c/mpi.c");
const MPIRUN: &str = "mpirun.openmpi";
const MPICC: &str = "mpicc.openmpi";

/// A pattern between two ranks.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// What carries the messages, or none for shared memory.
    way: Option<PatternTransport>,
    pattern: &'static str,
    number: u64,
}

impl Mpi {
    /// `pattern` of the program, with its number.
    pub fn new(way: PatternTransport, pattern: &'static str, number: u64) -> Self {
        Self { way: Some(way), pattern, number }
    }

    /// The same pattern by Open MPI's own shared memory, between two ranks of one host.
    pub fn by_shared_memory(pattern: &'static str, number: u64) -> Self {
        Self { way: None, pattern, number }
    }

    /// The launcher: libfabric over `weft_iw0`, UCX over `weft0`, or TCP on loopback.
    fn launcher(&self, lab: &BenchLab) -> Spec {
        // Perhaps as root, and it has to be told that this is meant.
        let launcher = Spec::new(MPIRUN).args("--allow-run-as-root --bind-to core -n 2");
        let Some(way) = self.way else {
            return launcher.args("--mca pml ob1 --mca btl self,vader");
        };
        match way {
            PatternTransport::Iwarp => launcher
                .args("-x LD_PRELOAD -x WEFT_LANE -x WEFT_TRANSPORT -x FI_PROVIDER --mca pml cm")
                .args("--mca mtl ofi --mca btl self --mca mtl_ofi_provider_include verbs;ofi_rxm")
                .env("FI_PROVIDER", "verbs;ofi_rxm")
                .env("WEFT_TRANSPORT", "iwarp")
                .env(LANE, OFF)
                .under(&lab.weft),
            PatternTransport::Shuttle => launcher
                .args("-x LD_PRELOAD -x WEFT_LANE -x UCX_TLS -x UCX_NET_DEVICES --mca pml ucx")
                .args("--mca osc ucx --mca btl ^openib,ofi")
                .env("UCX_TLS", "rc_v,self")
                .env("UCX_NET_DEVICES", "weft0:1")
                .env(LANE, OFF)
                .under(&lab.weft),
            _ => launcher.args("--mca pml ob1 --mca btl self,tcp --mca btl_tcp_if_include lo"),
        }
    }
}

impl BenchProbe for Mpi {
    fn name(&self) -> String {
        let way = self.way.map_or("shared memory", PatternTransport::label);
        format!("Open MPI, {way}: {} {}", self.pattern, self.number)
    }

    fn is_peer(&self) -> bool {
        self.way.is_none()
    }

    fn program(&self) -> Option<&str> {
        Some([MPIRUN, MPICC].into_iter().find(|program| !is_installed(program)).unwrap_or(MPIRUN))
    }

    fn lacks(&self) -> Option<String> {
        let one = std::thread::available_parallelism().map_or(1, usize::from) < 2;
        let processors = one.then(|| String::from("there is one processor for two ranks"));
        let absent = self.program().filter(|program| !is_installed(program));
        processors.or(absent.map(|program| format!("{program} is not installed")))
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let program = lab.build_with(MPICC, "mpi", SOURCE, &[])?;
        let spec = self.launcher(lab).arg(&program.to_string_lossy());
        let spec = spec.args(&format!("{} {} {}", lab.seconds, self.pattern, self.number));
        let said = lab.alone(&spec)?.stdout;
        let line = said.lines().rev().find(|line| line.starts_with('{'));
        let report: Value =
            serde_json::from_str(line.with_context(|| format!("no report: {said}"))?)
                .context("reading a report")?;
        if let Some(mean_us) = report["us"].as_f64() {
            let latency = LatencyTaken { p50_us: report["p50"].as_f64(), mean_us };
            return Ok(latency.readings(&self.name()));
        }
        let gbps = report["gbps"].as_f64().context("no rate")?;
        Ok(vec![ProbeReading::new(self.name(), ReadingUnit::GigabitsPerSecond, gbps)])
    }
}
