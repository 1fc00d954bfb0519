//! Bulk data across a WAN that `weft wan` makes for it: perftest over `weft0`, TCP, or QUIC.
//!
//! A rate is that after the start, which is left out of it as iperf3's `-O` does and counted apart.
//! perftest polls where it is active, so CPU time is taken where it is passive: the
//! receiver's from RDMA Writes, the sender's from RDMA Reads.

use anyhow::{Context, Result};
use serde_json::Value;

use super::{BenchProbe, iperf, last_numbers};
use crate::cost;
use crate::lab::BenchLab;
use crate::process::{Finished, Spec};
use crate::reading::{ProbeReading, ReadingUnit};

/// Moves bulk data over QUIC; `make bench-wan` builds it.
const QUIC: &str = "weft-quic-floor";
/// Bytes of a Write of perftest.
const MESSAGE: u64 = 1 << 16;
/// Bytes of a Read, of which only a few are outstanding.
const READ: u64 = 1 << 20;
/// Messages outstanding on all queue pairs together, which is several bandwidth-delay products.
const OUTSTANDING: u64 = 1024;
/// The fewest that perftest measures.
const FEWEST: u64 = 5;

/// Implementation that moves the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mover {
    /// `ib_write_bw` over `weft0`.
    Weft,
    /// TCP under this congestion control.
    Tcp(&'static str),
    /// quinn's QUIC, under CUBIC, its default.
    Quic,
}

impl Mover {
    /// What it is called in the report.
    pub fn label(self) -> &'static str {
        match self {
            Self::Weft => "weft0",
            Self::Tcp(congestion) => congestion,
            Self::Quic => "quinn",
        }
    }
}

/// Amount of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferAmount {
    /// As much as goes in the time of a measurement.
    Time,
    /// Fixed number of bytes.
    Bytes(u64),
}

/// One way of moving data over one path.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// What moves the data: perftest, TCP or QUIC.
    pub mover: Mover,
    /// The path, in the words of `weft wan`.
    pub path: String,
    /// Connections at a time.
    pub streams: u64,
    /// Bytes, or as much as goes in the time of a measurement.
    pub amount: TransferAmount,
    /// Names its series.
    pub label: String,
    /// The least time of a measurement, whatever the lab's.
    least_s: f64,
    /// The seconds of the start, which are no part of a rate.
    omit_s: u64,
    /// Whether only the rate is asked for.
    only_rate: bool,
    /// CPU seconds of perftest's passive side for next to no data.
    idle_s: Option<f64>,
}

/// Result of a run.
#[derive(Clone, Copy, Debug)]
struct WanTransfer {
    /// Rate after the start.
    gbps: f64,
    /// All that was delivered.
    bytes: f64,
    /// What of it was delivered during the start.
    early: f64,
    cpu_s: [f64; 2],
}

impl WanTransfer {
    /// The seconds that a start of `omit_s` cost: those seconds, less the time that what they
    /// delivered takes at the rate that followed. It is below 0 where the start was the faster.
    fn lost_s(&self, omit_s: u64) -> f64 {
        omit_s as f64 - self.early * 8.0 / (self.gbps * 1e9)
    }
}

impl Transfer {
    /// A transfer that has not been measured yet.
    pub fn new(
        mover: Mover,
        path: &str,
        streams: u64,
        amount: TransferAmount,
        label: String,
    ) -> Self {
        let path = path.to_owned();
        let (least_s, omit_s, only_rate, idle_s) = (0.0, 0, false, None);
        Self { mover, path, streams, amount, label, least_s, omit_s, only_rate, idle_s }
    }

    /// The same, its rate measured when so many seconds are over.
    pub fn omitting(mut self, seconds: u64) -> Self {
        self.omit_s = seconds;
        self
    }

    /// The same without CPU time and without what the start cost, which takes less time.
    pub fn only_rate(mut self) -> Self {
        self.only_rate = true;
        self
    }

    /// The same, measured for at least so many seconds.
    pub fn at_least(mut self, seconds: f64) -> Self {
        self.least_s = seconds;
        self
    }

    fn seconds(&self, lab: &BenchLab) -> f64 {
        lab.seconds.max(self.least_s).ceil()
    }

    /// Runs a program of perftest; only the far side's CPU time means something.
    fn with_perftest(
        &self,
        lab: &BenchLab,
        program: &str,
        size: u64,
        amount: &str,
    ) -> Result<WanTransfer> {
        let (streams, weft) = (self.streams, lab.weft.display());
        let side = format!(
            "'{weft}' run {program} -d weft0 -F --report_gbits -s {size} -q {streams} {amount}"
        );
        let finished = self.run_sides(lab, &side, &format!("{side} 10.77.0.2"))?;
        let (stdout, cpu_s) = cost::split(&finished.stdout)?;
        let numbers = last_numbers(stdout, 5)?;
        let (count, gbps) = (numbers[1], numbers[3]);
        Ok(WanTransfer { gbps, bytes: count * size as f64, early: 0.0, cpu_s })
    }

    fn write(&self, lab: &BenchLab, amount: &str) -> Result<WanTransfer> {
        let depth = (OUTSTANDING / self.streams).max(128);
        self.with_perftest(lab, "ib_write_bw", MESSAGE, &format!("-t {depth} {amount}"))
    }

    fn with_weft(&mut self, lab: &BenchLab) -> Result<WanTransfer> {
        if let TransferAmount::Bytes(bytes) = self.amount {
            let count = bytes.div_ceil(MESSAGE * self.streams).max(FEWEST);
            return self.write(lab, &format!("-n {count}"));
        }
        // perftest leaves a margin out at the end as well.
        let (seconds, omit) = (self.seconds(lab), self.omit_s);
        let all = seconds as u64 + 2 * omit;
        let steady = self.write(lab, &format!("-D {all} -f {omit}"))?;
        if self.only_rate {
            return Ok(steady);
        }
        let early = match omit {
            0 => 0.0,
            _ => self.write(lab, &format!("-D {omit} -f 0"))?.bytes,
        };
        let bytes = early + steady.gbps * 1e9 / 8.0 * (all - omit) as f64;
        let read = self.with_perftest(lab, "ib_read_bw", READ, &format!("-D {seconds} -f 0"))?;
        // perftest measures the CPU's clock for a good part of a second before it begins.
        let idle_s = match self.idle_s {
            Some(idle_s) => idle_s,
            None => self.write(lab, &format!("-n {FEWEST}"))?.cpu_s[1],
        };
        self.idle_s = Some(idle_s);
        let cost = |cpu_s: f64, bytes: f64| (cpu_s - idle_s).max(0.0) / bytes;
        let costs = [cost(read.cpu_s[1], read.bytes), cost(steady.cpu_s[1], bytes)];
        Ok(WanTransfer { bytes, early, cpu_s: costs.map(|each| each * bytes), ..steady })
    }

    fn with_tcp(&self, lab: &BenchLab, congestion: &str) -> Result<WanTransfer> {
        let TransferAmount::Bytes(bytes) = self.amount else {
            return self.with_iperf(lab, congestion);
        };
        // iperf3 does not wait until its receiver has everything.
        let own = lab.own().shell();
        let side = format!(
            "{own} floor stream --call 65536 --bytes {bytes} --seconds {PATIENCE_S} \
             --congestion {congestion}"
        );
        let server = format!("{side} --listen 0.0.0.0:5201");
        let client = format!("{side} --connect 10.77.0.2:5201");
        let (_, moved) = self.reported(lab, &server, &client)?;
        Ok(WanTransfer { bytes: bytes as f64, ..moved })
    }

    fn with_iperf(&self, lab: &BenchLab, congestion: &str) -> Result<WanTransfer> {
        let (streams, seconds) = (self.streams, self.seconds(lab));
        let client = format!(
            "iperf3 -J --get-server-output -C {congestion} -P {streams} -O {} -t {seconds} \
             -c 10.77.0.2",
            self.omit_s
        );
        let finished = self.run_sides(lab, "iperf3 -s -1 -J", &client)?;
        let (json, cpu_s) = cost::split(&finished.stdout)?;
        let ((gbps, later), early) = (iperf::received(json)?, iperf::omitted(json)?);
        Ok(WanTransfer { gbps, bytes: early + later, early, cpu_s })
    }

    fn with_quic(&self, lab: &BenchLab) -> Result<WanTransfer> {
        let side = format!("{QUIC} --streams {} --congestion cubic", self.streams);
        let (bytes, amount) = match self.amount {
            TransferAmount::Time => {
                (None, format!("--omit {} --seconds {}", self.omit_s, self.seconds(lab)))
            }
            TransferAmount::Bytes(bytes) => {
                (Some(bytes as f64), format!("--bytes {bytes} --seconds {PATIENCE_S}"))
            }
        };
        let server = format!("{side} --listen 0.0.0.0:5201");
        let client = format!("{side} --connect 10.77.0.2:5201 {amount}");
        let (report, moved) = self.reported(lab, &server, &client)?;
        let early = report["early"].as_f64().context("nothing about the start")?;
        let bytes = bytes.or(report["bytes"].as_f64()).context("no amount")?;
        Ok(WanTransfer { bytes, early, ..moved })
    }

    /// Runs sides of which the client's prints a rate and an amount.
    fn reported(&self, lab: &BenchLab, server: &str, client: &str) -> Result<(Value, WanTransfer)> {
        let finished = self.run_sides(lab, server, client)?;
        let (json, cpu_s) = cost::split(&finished.stdout)?;
        let report: Value = serde_json::from_str(json).context("reading the client's report")?;
        let gbps = report["gbps"].as_f64().context("no rate")?;
        Ok((report, WanTransfer { gbps, bytes: 0.0, early: 0.0, cpu_s }))
    }

    fn run_sides(&self, lab: &BenchLab, server: &str, client: &str) -> Result<Finished> {
        let fifo = lab.dir().join("costs");
        cost::make_fifo(&fifo)?;
        let wrap = |far: &str, command: &str| {
            let own = lab.own().shell();
            format!("exec {own} cost --fifo '{}' {far} -- {command}", fifo.display())
        };
        let spec = Spec::at(&lab.weft).args("wan").args(&self.path).arg("--server");
        let spec = spec.arg(&wrap("--far", server)).args("-- sh -c").arg(&wrap("", client));
        let finished = lab.alone(&spec);
        std::fs::remove_file(&fifo).context("removing the FIFO")?;
        finished
    }
}

impl BenchProbe for Transfer {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some(match self.mover {
            Mover::Weft => "ib_write_bw",
            Mover::Tcp(_) => "iperf3",
            Mover::Quic => QUIC,
        })
    }

    fn is_peer(&self) -> bool {
        self.mover != Mover::Weft
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let moved = match self.mover {
            Mover::Weft => self.with_weft(lab)?,
            Mover::Tcp(congestion) => self.with_tcp(lab, congestion)?,
            Mover::Quic => self.with_quic(lab)?,
        };
        let reading = |what: &str, unit, value| {
            ProbeReading::new(format!("{}{what}", self.label), unit, value)
        };
        if self.amount != TransferAmount::Time {
            let seconds = moved.bytes * 8.0 / (moved.gbps * 1e9);
            return Ok(vec![reading("", ReadingUnit::Seconds, seconds)]);
        }
        let rate = reading("", ReadingUnit::GigabitsPerSecond, moved.gbps);
        if self.only_rate {
            return Ok(vec![rate]);
        }
        let cpu = moved.cpu_s.map(|seconds| seconds / (moved.bytes / 1e9));
        Ok(vec![
            rate,
            reading(START, ReadingUnit::Seconds, moved.lost_s(self.omit_s)),
            reading(SENDER, ReadingUnit::CpuSecondsPerGigabyte, cpu[0]),
            reading(RECEIVER, ReadingUnit::CpuSecondsPerGigabyte, cpu[1]),
        ])
    }
}

/// How long an amount may take to be delivered, in seconds. What is not there by then is taken to
/// go on at the same rate.
pub const PATIENCE_S: f64 = 30.0;

/// Ends the names of the series of what the start cost.
pub const START: &str = ", lost to the start";
/// Ends the names of the series of CPU time.
pub const SENDER: &str = ", sender's CPU";
/// Ends the names of the series of CPU time.
pub const RECEIVER: &str = ", receiver's CPU";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_costs_what_it_did_not_deliver() {
        let moved = |early| WanTransfer { gbps: 0.8, bytes: 1e9, early, cpu_s: [0.0; 2] };
        assert!((moved(1.5e8).lost_s(2) - 0.5).abs() < 1e-9);
        assert!((moved(0.0).lost_s(2) - 2.0).abs() < 1e-9);
        assert!(moved(3e8).lost_s(2) < 0.0, "a start that was the faster cost nothing");
    }
}
