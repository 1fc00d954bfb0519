//! sockperf: a TCP ping-pong that does not block.

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::BenchProbe;
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

/// A ping-pong of `size` bytes over TCP.
#[derive(Debug)]
pub struct SockperfPingPong {
    size: u64,
    label: String,
}

impl SockperfPingPong {
    /// A ping-pong; `label` names its series.
    pub fn new(size: u64, label: &str) -> Self {
        Self { size, label: label.to_owned() }
    }
}

impl BenchProbe for SockperfPingPong {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some("sockperf")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let pair = lab.pair(ServerEnds::On(Signal::INT), |port| {
            let where_ = format!("--tcp --nonblocked -i {} -p {port}", lab.address);
            let (size, time) = (self.size, lab.seconds.ceil());
            let server = Spec::new("sockperf").args(&format!("sr {where_}"));
            let client = Spec::new("sockperf").args(&format!("pp {where_} -m {size} -t {time}"));
            (server, client)
        })?;
        let us = average_us(&pair.client.stdout)?;
        Ok(vec![ProbeReading::new(&self.label, ReadingUnit::Microseconds, us)])
    }
}

/// Half of the average round trip.
fn average_us(stdout: &str) -> Result<f64> {
    let number = stdout.split_once("Summary: Latency is ").and_then(|(_, rest)| {
        let word = rest.split_whitespace().next()?;
        word.parse().ok()
    });
    number.with_context(|| format!("no summary in\n{stdout}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let line = "sockperf: [2;35m====>\nsockperf: Summary: Latency is 4.454 usec\nsockperf: x";
        assert_eq!(average_us(line).unwrap(), 4.454);
        assert!(average_us("sockperf: Server Failed").is_err());
    }
}
