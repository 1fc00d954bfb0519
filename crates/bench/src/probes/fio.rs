//! fio's engines `rdma` and `net`, which is TCP: the same sender and receiver, and the receiver
//! checks the CRC32C that the sender put into each block.
//!
//! The rate is the sender's in both: the receiver of `net` counts the rest of a short read alone.

use anyhow::{Context, Result};
use serde_json::Value;

use super::BenchProbe;
use super::route::WeftRoute;
use crate::lab::BenchLab;
use crate::pair::ServerEnds;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit};

/// A verified stream of blocks.
#[derive(Debug)]
pub struct FioStream {
    /// The route of `rdma`, or none for `net`.
    route: Option<WeftRoute>,
    label: String,
}

/// Bytes that the sender sends. iWARP has no way to say that no receive is posted and fio has no
/// credits, so each block has a receive of its own.
const AMOUNT: &str = "512m";
/// The block, of which fio has 512 in flight at most.
const BLOCK: &str = "1m";
const RECEIVES: u32 = 512;
/// The sender of `rdma` sleeps for half a second once it is connected, and counts that.
const BEGUN_AFTER: &str = "600ms";
/// More than that: the receiver of `net` ends when the sender does.
const NET_AMOUNT: &str = "2g";

impl FioStream {
    /// The engine `rdma` over one of Weft's devices; `label` names its series.
    pub fn rdma(route: WeftRoute, label: &str) -> Self {
        Self { route: Some(route), label: label.to_owned() }
    }

    /// The engine `net`; `label` names its series.
    pub fn net(label: &str) -> Self {
        Self { route: None, label: label.to_owned() }
    }

    fn sides(&self, lab: &BenchLab, port: u16) -> (Spec, Spec) {
        let side = |line: &str, engine: &str| {
            let common = format!("--thread --bs={BLOCK} --verify=crc32c --output-format=json");
            // The port is an option of the engine, which has to be named before it.
            let line = format!("{common} {line} {engine} --port={port}");
            Spec::new("fio").args(&line).within(lab.dir())
        };
        let receiver = "--name=receiver --rw=read --verify_fatal=1";
        let sender = &format!(
            "--name=sender --rw=write --size={AMOUNT} --do_verify=0 --verify_state_save=0"
        );
        let address = format!("--hostname={}", lab.address);
        let Some(route) = self.route else {
            let engine = "--ioengine=net --protocol=tcp";
            let listens = format!("{engine} --listen --size={NET_AMOUNT}");
            return (side(receiver, &listens), side(sender, &format!("{engine} {address}")));
        };
        let receives = format!("--ioengine=rdma --iodepth={RECEIVES} --size={AMOUNT}");
        let sends = format!(
            "--ioengine=rdma --verb=send --iodepth=1 --iodepth_batch_complete=1 \
             --ramp_time={BEGUN_AFTER} {address}"
        );
        let carry = |side: Spec| route.carry(side, &lab.weft);
        (carry(side(receiver, &receives)), carry(side(sender, &sends)))
    }
}

impl BenchProbe for FioStream {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some("fio")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let pair = lab.pair(ServerEnds::ByItself, |port| self.sides(lab, port))?;
        let gbps = sent(&pair.client.stdout)?;
        Ok(vec![ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, gbps)])
    }
}

/// Rate of the sender in Gbit/s. fio may write notes before its report.
fn sent(stdout: &str) -> Result<f64> {
    let json = stdout.find('{').map(|at| &stdout[at..]).context("fio's report")?;
    let report: Value = serde_json::from_str(json).context("reading fio's report")?;
    let rate = report["jobs"][0]["write"]["bw_bytes"].as_f64().context("fio's rate")?;
    Ok(rate * 8.0 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_senders_rate_is_read_behind_notes() {
        let said = "note: x\n{\"jobs\": [{\"write\": {\"bw_bytes\": 1000000000}}]}";
        assert_eq!(sent(said).unwrap(), 8.0);
        assert!(sent("fio: failed").is_err());
    }
}
