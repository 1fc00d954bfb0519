//! `weft bench demo`: unmodified programs move data between two processes over Weft, some of them
//! checking every byte, against kernel TCP in the same rounds.

use std::num::NonZeroUsize;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use weft_chart::{markdown, number};

use crate::lab::{BenchLab, is_installed};
use crate::pair::ServerEnds;
use crate::probes::BenchProbe;
use crate::probes::fio::FioStream;
use crate::probes::iperf::IperfStream;
use crate::probes::perftest::Bandwidth;
use crate::probes::route::WeftRoute;
use crate::process::Spec;
use crate::reading::{ProbeReading, ReadingUnit, Readings, speed_sentence};
use crate::rounds::{self, BenchResults};
use crate::{command, machine, sys};

/// The options of the demonstration.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// How many rounds, in each of which every program takes its turn
    #[arg(long, value_name = "N", default_value = "7")]
    rounds: NonZeroUsize,
    /// About how many seconds each program takes in a round; iperf3 takes whole ones
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = command::seconds)]
    seconds: f64,
    /// The address of this machine that servers are reached at
    #[arg(long, default_value = "127.0.0.1")]
    address: String,
}

/// A line of the table: an application, who checks what it moves, and what it stands against.
struct DemoRow {
    name: &'static str,
    checked: &'static str,
    against: Option<&'static str>,
}

const IPERF: &str = "iperf3 (kernel TCP)";
const FIO: &str = "fio, engine rdma";
const FIO_TCP: &str = "fio, engine net (kernel TCP)";
const PING: &str = "rping -V";
const WRITES: &str = "ib_write_bw";
const NETWORK_WRITES: &str = "ib_write_bw, network";
const NETWORK_READS: &str = "ib_read_bw, network";
const NETWORK_SENDS: &str = "ib_send_bw, network";
/// perftest looks at no data; on the network the CRC of every frame is checked below it.
const BY_CRC: &str = "CRC32C of every frame";
const BY_FIO: &str = "CRC32C of every block, by fio";

const ROWS: [DemoRow; 8] = [
    DemoRow { name: PING, checked: "every byte, by rping", against: None },
    DemoRow { name: FIO, checked: BY_FIO, against: Some(FIO_TCP) },
    DemoRow { name: FIO_TCP, checked: BY_FIO, against: None },
    DemoRow { name: WRITES, checked: "", against: Some(IPERF) },
    DemoRow { name: NETWORK_WRITES, checked: BY_CRC, against: Some(IPERF) },
    DemoRow { name: NETWORK_READS, checked: BY_CRC, against: Some(IPERF) },
    DemoRow { name: NETWORK_SENDS, checked: BY_CRC, against: Some(IPERF) },
    DemoRow { name: IPERF, checked: "", against: None },
];

/// Runs the programs and prints the table.
///
/// # Errors
/// A program is not installed or fails, or what it moved was wrong.
pub fn run(options: &DemoArgs) -> Result<()> {
    for program in ["rping", "fio", "ib_write_bw", "ib_read_bw", "ib_send_bw", "iperf3"] {
        ensure!(is_installed(program), "{program} is not installed; `make deps` installs it");
    }
    sys::catch_interrupts()?;
    let lab = BenchLab::new(&options.address, options.seconds)?;
    let results = rounds::measure(&lab, probes(), None, options.rounds.get())?;
    print!("{}", text(&lab, &results));
    results.check()
}

/// Those that are compared follow each other.
fn probes() -> Vec<Box<dyn BenchProbe>> {
    let reno = machine::allows_congestion("reno").then_some("reno");
    let bandwidth = |program, label| Bandwidth::new(program, 1 << 20, label);
    let network =
        |program, label| Box::new(bandwidth(program, label).over(WeftRoute::IWARP.network()));
    vec![
        Box::new(RpingProbe),
        Box::new(FioStream::rdma(WeftRoute::IWARP, FIO)),
        Box::new(FioStream::net(FIO_TCP)),
        network("ib_send_bw", NETWORK_SENDS),
        network("ib_write_bw", NETWORK_WRITES),
        Box::new(IperfStream::new(reno, IPERF)),
        Box::new(bandwidth("ib_write_bw", WRITES)),
        network("ib_read_bw", NETWORK_READS),
    ]
}

/// Bytes of a message of rping; it takes one less than 64 KiB at most.
const PING_BYTES: u64 = 65_000;

/// rping with verification: both sides compare what they read and what was written with what was
/// meant.
struct RpingProbe;

impl BenchProbe for RpingProbe {
    fn name(&self) -> String {
        String::from(PING)
    }

    fn program(&self) -> Option<&str> {
        Some("rping")
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let count = (lab.seconds * 1500.0).ceil();
        let pair = lab.pair(ServerEnds::ByItself, |port| {
            let address = &lab.address;
            let side = format!("-a {address} -p {port} -C {count} -S {PING_BYTES} -V");
            let rping = |role: &str| Spec::new("rping").args(&format!("{role} {side}"));
            (rping("-s").under(&lab.weft), rping("-c").under(&lab.weft))
        })?;
        for side in [&pair.server, &pair.client] {
            ensure!(!side.stderr.contains("mismatch"), "wrong data:\n{}", side.stderr);
        }
        // Each ping is an RDMA Read of the client's data and an RDMA Write of the same back.
        let bits = count * 2.0 * PING_BYTES as f64 * 8.0;
        let gbps = bits / pair.elapsed.max(Duration::from_millis(1)).as_secs_f64() / 1e9;
        Ok(vec![ProbeReading::new(PING, ReadingUnit::GigabitsPerSecond, gbps)])
    }
}

fn text(lab: &BenchLab, results: &BenchResults) -> String {
    let readings = &results.readings;
    let rows: Vec<Vec<String>> = ROWS.iter().filter_map(|row| row.cells(readings)).collect();
    let head = ["program", "what is checked", "Gbit/s", "range", "of kernel TCP", "range"];
    let mut text = format!("Two processes over {}, through Weft:\n\n", lab.address);
    text += &markdown(&head, &rows);
    let rounds = results.rounds;
    text += &format!(
        "\nMedians of {rounds} rounds, in which the programs took turns. What each has of kernel \
         TCP is of\nthe same round: the median of {rounds} ratios, and their range. \
         Network: with WEFT_LANE=off.\n"
    );
    for reference in [FIO_TCP, IPERF] {
        let change = readings.get(reference).and_then(|series| series.speed_change());
        if let Some(change) = change {
            text += &format!("{reference}: {}.\n", speed_sentence(change));
        }
    }
    text + &format!("{}\n", machine::describe())
}

impl DemoRow {
    /// The cells of the row, if its program was measured.
    fn cells(&self, readings: &Readings) -> Option<Vec<String>> {
        let own = readings.get(self.name)?;
        let span = |(low, high): (f64, f64)| format!("{} to {}", number(low), number(high));
        let reference = self.against.and_then(|name| readings.get(name));
        let (ratio, range) = match reference.and_then(|reference| own.ratio_to(reference)) {
            Some(ratio) => (format!("{:.2}", ratio.median), span(ratio.range)),
            None => (String::new(), String::new()),
        };
        let (name, checked) = (self.name.to_owned(), self.checked.to_owned());
        Some(vec![name, checked, number(own.median()), span(own.range()), ratio, range])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::record;

    #[test]
    fn a_row_has_the_median_of_the_ratios_of_rounds() {
        let mut readings = Readings::new();
        for (round, own, tcp) in [(0, 10.0, 10.0), (1, 40.0, 20.0), (2, 30.0, 60.0)] {
            let of = |name, value| ProbeReading::new(name, ReadingUnit::GigabitsPerSecond, value);
            record(&mut readings, round, vec![of(WRITES, own), of(IPERF, tcp)]);
        }
        let row = ROWS.iter().find(|row| row.name == WRITES).unwrap();
        let cells = row.cells(&readings).unwrap();
        assert_eq!(cells[2..], ["30.0", "10.0 to 40.0", "1.00", "0.500 to 2.00"]);
        assert!(ROWS[0].cells(&readings).is_none(), "what was not measured has no row");
    }
}
