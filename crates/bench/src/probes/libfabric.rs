//! libfabric over TCP.

use anyhow::{Context, Result};

use super::{BenchProbe, LatencyTaken, MEAN, Pace, last_numbers};
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const WRITES_SOURCE: &str = include_str!("../../c/fi_write.c");

/// `fi_pingpong` over connected endpoints: one message each way in turn.
#[derive(Debug)]
pub struct LibfabricPingPong {
    size: u64,
    label: String,
    pace: Pace,
}

impl LibfabricPingPong {
    /// A ping-pong of `size` bytes; `label` names its series.
    pub fn new(size: u64, label: &str) -> Self {
        let pace = Pace::beginning_with((100_000_000 / size).clamp(128, 10_000));
        Self { size, label: label.to_owned(), pace }
    }

    fn us(&self, lab: &BenchLab, count: u64) -> Result<f64> {
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let options = format!("-p tcp -e msg -S {} -I {count}", self.size);
            let side = Spec::new("fi_pingpong").args(&options);
            let server = side.clone().args(&format!("-B {port}"));
            (server, side.args(&format!("-P {port} {}", lab.address)))
        })?;
        us_per_transfer(&pair.client.stdout)
    }
}

impl BenchProbe for LibfabricPingPong {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn main_series(&self) -> String {
        format!("{}{MEAN}", self.label)
    }

    fn program(&self) -> Option<&str> {
        Some("fi_pingpong")
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let us = self.pace.measure(lab.seconds, |count| self.us(lab, count), |us| 0.5e6 / us)?;
        Ok(LatencyTaken { p50_us: None, mean_us: us }.readings(&self.label))
    }
}

/// RDMA Writes over connected endpoints, a window of them at a time: a C program that is built
/// here, because Debian has libfabric without its benchmarks.
#[derive(Debug)]
pub struct Writes {
    size: u64,
    label: String,
    pace: Pace,
}

impl Writes {
    /// Writes of `size` bytes; `label` begins the names of its series.
    pub fn new(size: u64, label: &str) -> Self {
        let pace = Pace::beginning_with((300_000_000 / size).clamp(256, 20_000));
        Self { size, label: label.to_owned(), pace }
    }

    fn gbps(&self, lab: &BenchLab, count: u64) -> Result<f64> {
        let program = lab.build("fi_write", WRITES_SOURCE, &["-lfabric"])?;
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let (address, size) = (&lab.address, self.size);
            let server = Spec::at(&program).args(&format!("serve {address} {port} {size}"));
            let client = Spec::at(&program).args(&format!("write {address} {port} {size} {count}"));
            (server, client)
        })?;
        let said = pair.client.stdout.trim().strip_prefix("gbps ").and_then(|v| v.parse().ok());
        said.with_context(|| format!("no rate in\n{}", pair.client.stdout))
    }
}

impl BenchProbe for Writes {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some("gcc")
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let size = self.size as f64;
        let rate = |gbps: &f64| gbps * 1e9 / 8.0 / size;
        let gbps = self.pace.measure(lab.seconds, |count| self.gbps(lab, count), rate)?;
        let messages = format!("{}, messages", self.label);
        Ok(vec![
            ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, gbps),
            ProbeReading::new(messages, ReadingUnit::MegamessagesPerSecond, rate(&gbps) / 1e6),
        ])
    }
}

/// Reads the last column but one; the table's other columns carry their units with them.
fn us_per_transfer(stdout: &str) -> Result<f64> {
    let tidy = stdout.lines().last().unwrap_or_default().split_whitespace();
    let numbers: Vec<&str> = tidy.skip(5).collect();
    Ok(last_numbers(&numbers.join(" "), 3)?[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read() {
        let table = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      10k     =10k     1.2m        0.11s     11.35       5.64       0.18
";
        assert_eq!(us_per_transfer(table).unwrap(), 5.64);
        assert!(us_per_transfer("").is_err());
    }
}
