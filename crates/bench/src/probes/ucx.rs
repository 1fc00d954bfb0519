//! UCX over TCP, or over shared memory.

use anyhow::Result;
use rustix::process::Signal;

use super::{BenchProbe, LatencyTaken, MEAN, Pace, last_numbers};
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

const BYTES_PER_MEBIBYTE: f64 = 1048576.0;

/// One of `ucx_perftest`'s tests, at one size.
#[derive(Debug)]
pub struct Ucx {
    test: &'static str,
    size: u64,
    transports: &'static str,
    label: String,
    pace: Pace,
}

/// UCX's transport over the network stack.
const TCP: &str = "tcp";
/// Its transports on one host: POSIX shared memory, and one copy by `process_vm_readv`.
const SHARED_MEMORY: &str = "posix,cma";

impl Ucx {
    /// The test `test` with messages of `size` bytes; `label` begins the names of its series.
    pub fn new(test: &'static str, size: u64, label: &str) -> Self {
        let pace = Pace::beginning_with((100_000_000 / size).clamp(256, 20_000));
        Self { test, size, transports: TCP, label: label.to_owned(), pace }
    }

    /// The same over shared memory.
    pub fn by_shared_memory(mut self) -> Self {
        self.transports = SHARED_MEMORY;
        self
    }

    fn is_of_latency(&self) -> bool {
        self.test.ends_with("_lat")
    }

    fn numbers(&self, lab: &BenchLab, count: u64) -> Result<UcxNumbers> {
        let pair = lab.pair(ServerEnds::On(Signal::TERM), |port| {
            let side = Spec::new("ucx_perftest").env("UCX_TLS", self.transports);
            let side = side.env("UCX_LOG_LEVEL", "error");
            let server = side.clone().args(&format!("-p {port}"));
            let (address, test, size) = (&lab.address, self.test, self.size);
            let warm_up = (count / 10).max(10);
            let options = format!("{address} -p {port} -t {test} -s {size} -n {count}");
            (server, side.args(&format!("{options} -w {warm_up} -f")))
        })?;
        parse(&pair.client.stdout)
    }
}

impl BenchProbe for Ucx {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn main_series(&self) -> String {
        let aspect = if self.is_of_latency() { MEAN } else { "" };
        format!("{}{aspect}", self.label)
    }

    fn program(&self) -> Option<&str> {
        Some("ucx_perftest")
    }

    fn is_peer(&self) -> bool {
        true
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let numbers = self.pace.measure(lab.seconds, |n| self.numbers(lab, n), |n| n.per_second)?;
        if self.is_of_latency() {
            return Ok(numbers.latency.readings(&self.label));
        }
        let (gbps, mps) = (numbers.bytes_per_second * 8.0 / 1e9, numbers.per_second / 1e6);
        let messages = format!("{}, messages", self.label);
        Ok(vec![
            ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, gbps),
            ProbeReading::new(messages, ReadingUnit::MegamessagesPerSecond, mps),
        ])
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct UcxNumbers {
    latency: LatencyTaken,
    bytes_per_second: f64,
    per_second: f64,
}

/// Reads `iterations | 50 % average overall (us) | average overall (MiB/s) | average overall`.
fn parse(stdout: &str) -> Result<UcxNumbers> {
    let numbers = last_numbers(stdout, 8)?;
    let bytes_per_second = numbers[5] * BYTES_PER_MEBIBYTE;
    let latency = LatencyTaken { p50_us: Some(numbers[1]), mean_us: numbers[3] };
    Ok(UcxNumbers { latency, bytes_per_second, per_second: numbers[7] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_final_line_is_read() {
        let line = "  20000   0.020   112.731    55.155   554.42   1000.00    8871    16000\n";
        let numbers = parse(line).unwrap();
        let latency = LatencyTaken { p50_us: Some(0.020), mean_us: 55.155 };
        let expected = UcxNumbers { latency, bytes_per_second: 1048576000.0, per_second: 16000.0 };
        assert_eq!(numbers, expected);
        assert!(parse("+----+\n").is_err());
    }
}
