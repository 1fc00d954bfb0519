//! sockperf: a TCP ping-pong that does not block.

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{BenchProbe, LatencyTaken};
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::ProbeReading;

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
        Ok(latency(&pair.client.stdout)?.readings(&self.label))
    }
}

/// Halves of round trips.
fn latency(stdout: &str) -> Result<LatencyTaken> {
    let behind = |words: &str| {
        let (_, rest) = stdout.split_once(words)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let mean_us = behind("Summary: Latency is ");
    let mean_us = mean_us.with_context(|| format!("no summary in\n{stdout}"))?;
    Ok(LatencyTaken { p50_us: behind("percentile 50.000 ="), mean_us })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_read() {
        let said = "sockperf: [2;35m====>\nsockperf: Summary: Latency is 4.454 usec\n\
                    sockperf: ---> percentile 50.000 =    4.101\n";
        let taken = LatencyTaken { p50_us: Some(4.101), mean_us: 4.454 };
        assert_eq!(latency(said).unwrap(), taken);
        assert!(latency("sockperf: Server Failed").is_err());
    }
}
