//! iperf3: one TCP stream through the kernel, and what it costs.

use anyhow::{Context, Result};
use serde_json::Value;

use super::BenchProbe;
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

/// A stream under one congestion control.
#[derive(Debug)]
pub struct IperfStream {
    congestion: Option<&'static str>,
    label: String,
}

impl IperfStream {
    /// A stream under `congestion`, or under the machine's default.
    pub fn new(congestion: Option<&'static str>, label: &str) -> Self {
        Self { congestion, label: label.to_owned() }
    }
}

impl BenchProbe for IperfStream {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some("iperf3")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let server = Spec::new("iperf3").args(&format!("-s -1 -p {port}"));
            let congestion = self.congestion.map_or(String::new(), |name| format!("-C {name}"));
            let time = lab.seconds.ceil();
            let options = format!("-c {} -p {port} -t {time} -J {congestion}", lab.address);
            (server, Spec::new("iperf3").args(&options))
        })?;
        let (gbps, bytes) = received(&pair.client.stdout)?;
        let cpu = pair.cpu().as_secs_f64() / (bytes / 1e9);
        Ok(vec![
            ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, gbps),
            ProbeReading::new(
                format!("{}, CPU", self.label),
                ReadingUnit::CpuSecondsPerGigabyte,
                cpu,
            ),
        ])
    }
}

/// What the receiver got: Gbit/s, and bytes.
///
/// # Errors
/// It is not a report of iperf3.
pub fn received(json: &str) -> Result<(f64, f64)> {
    let report: Value = serde_json::from_str(json).context("reading iperf3's report")?;
    let sum = &report["end"]["sum_received"];
    let field = |name: &str| sum[name].as_f64().with_context(|| format!("no {name} in\n{json}"));
    Ok((field("bits_per_second")? / 1e9, field("bytes")?))
}

/// The bytes that the receiver got in the seconds that `-O` leaves out, from what the server says
/// by `--get-server-output`.
///
/// # Errors
/// It says nothing.
pub fn omitted(json: &str) -> Result<f64> {
    let report: Value = serde_json::from_str(json).context("reading iperf3's report")?;
    let intervals = report["server_output_json"]["intervals"].as_array();
    let sums = intervals.context("no report of iperf3's server")?.iter().map(|each| &each["sum"]);
    let omitted = sums.filter(|sum| sum["omitted"] == true);
    omitted.map(|sum| sum["bytes"].as_f64().context("an interval without bytes")).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receivers_sum_counts() {
        let json = r#"{"end": {"sum_sent": {"bits_per_second": 1, "bytes": 1},
                       "sum_received": {"bits_per_second": 5e10, "bytes": 6250000000}}}"#;
        assert_eq!(received(json).unwrap(), (50.0, 6.25e9));
        assert!(received(r#"{"error": "unable to connect"}"#).is_err());
    }

    #[test]
    fn what_was_omitted_is_the_receivers() {
        let json = r#"{"intervals": [{"sum": {"bytes": 1, "omitted": true}}],
                       "server_output_json": {"intervals": [
                           {"sum": {"bytes": 20, "omitted": true}},
                           {"sum": {"bytes": 300, "omitted": true}},
                           {"sum": {"bytes": 4000, "omitted": false}}]}}"#;
        assert_eq!(omitted(json).unwrap(), 320.0);
        assert!(omitted("{}").is_err());
    }
}
