//! `weft bench table compared`: one row for each way to move data, Weft's and others', with what
//! was measured of it. README.md has the table.
//!
//! What needs a kernel with rxe and siw comes from virtual machines: `interop/vm/compare.sh` writes
//! a file, and `--vm` puts it below.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueHint};
use serde::{Deserialize, Serialize};
use weft_chart::{markdown, number};

use crate::arguments::{self, wrong_argument};
use crate::demo::copies::{self, CopyTool};
use crate::lab::BenchLab;
use crate::output::OutputArgs;
use crate::probes::floor::FloorProbe;
use crate::probes::libfabric::{LibfabricPingPong, Writes};
use crate::probes::perftest::{Bandwidth, Latency};
use crate::probes::route::WeftRoute;
use crate::probes::ucx::Ucx;
use crate::probes::wan::{Mover, Transfer, TransferAmount};
use crate::probes::{BenchProbe, MEAN};
use crate::reading::{ProbeReading, ReadingUnit};
use crate::rounds::{self, BenchResults};
use crate::{machine, sys};

/// The options of the table.
#[derive(Debug, Args)]
pub struct ComparedArgs {
    /// How many rounds; medians need three
    #[arg(long, value_name = "N", default_value = "3", value_parser = arguments::rounds)]
    rounds: NonZeroUsize,
    /// About how many seconds each measurement takes in a round; those across the WAN take five
    #[arg(long, value_name = "S", default_value_t = 0.5, value_parser = arguments::seconds)]
    seconds: f64,
    /// Only the measurements with this in their name
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// What interop/vm/compare.sh has measured of rxe and siw
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    vm: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

/// The table's name in a page of Markdown.
const NAME: &str = "compared";
const MIB: u64 = 1 << 20;
const PATH: &str = "70ms 1% 1gbit";
/// Seconds across the WAN that are measured, and those before.
const WAN_S: f64 = 5.0;
const OMIT_S: u64 = 2;
/// The file that is copied, in MB, and how long a copy may take.
const FILE_MB: u64 = 100;
const COPY_LIMIT_S: u64 = 30;
const COLUMNS: [&str; 4] = [
    "64 bytes one way, us",
    "1 MiB messages, Gbit/s",
    "one stream across 70 ms, 1 % loss, Mbit/s",
    "a file of 100 MB across it, Mbit/s",
];
/// Places of the columns. Of latencies the least is the best, else the most.
const LATENCY: usize = 0;
const BULK: usize = 1;
const STREAM: usize = 2;
const COPY: usize = 3;
/// What says the version of the kernel's TCP.
const KERNEL: [&str; 2] = ["uname", "-r"];

/// A row: its name, the program that says its version, and what is measured of it.
struct Contender {
    name: String,
    /// The program and its option.
    version: [&'static str; 2],
    probes: [Option<Box<dyn BenchProbe>>; COLUMNS.len()],
}

/// What a virtual machine has measured.
#[derive(Debug, Serialize, Deserialize)]
struct MachineTable {
    /// The machine, its kernel, the programs and the date.
    about: String,
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// Measures, and prints the table.
///
/// # Errors
/// A measurement of Weft failed, a file cannot be read or written, or the user interrupted.
pub fn run(options: &ComparedArgs) -> Result<()> {
    options.output.check(NAME).map_err(wrong_argument)?;
    let vm = options.vm.as_deref().map(machine_table).transpose().map_err(wrong_argument)?;
    sys::catch_interrupts()?;
    let lab = BenchLab::new("127.0.0.1", options.seconds)?;
    let (mut rows, mut probes) = (Vec::new(), Vec::new());
    for Contender { name, version, probes: own } in contenders() {
        let mut series = Vec::new();
        for (column, probe) in own.into_iter().enumerate() {
            series.push(probe.as_ref().map(|probe| series_of(column, probe.as_ref())));
            probes.extend(probe);
        }
        rows.push((name, version_of(version), series));
    }
    let only = options.only.as_deref();
    let results = rounds::measure(&lab, probes, only, options.rounds.get())?;
    let text = match options.output.json {
        true => {
            let mut report = results.json();
            report["virtual_machine"] = serde_json::to_value(&vm)?;
            serde_json::to_string_pretty(&report)? + "\n"
        }
        false => page(&results, &rows, vm.as_ref()),
    };
    options.output.write(NAME, &text)?;
    results.check()
}

fn machine_table(file: &Path) -> Result<MachineTable> {
    let text = fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{}", file.display()))
}

/// A row's name, its version, and the series of its cells.
type ComparedRow = (String, String, Vec<Option<String>>);

fn page(results: &BenchResults, rows: &[ComparedRow], vm: Option<&MachineTable>) -> String {
    let head: Vec<&str> = ["", "version"].into_iter().chain(COLUMNS).collect();
    let cells: Vec<Vec<String>> = rows.iter().map(|row| cells(results, rows, row)).collect();
    let mut text = markdown(&head, &cells);
    let sentence = format!(
        "Medians; the best of a column is bold. A file that was not there after {COPY_LIMIT_S} s \
         counts by what was there."
    );
    text += &format!("\n{} {}\n{}", machine::date(), results.head(&sentence), results.gaps());
    if let Some(MachineTable { about, columns, rows }) = vm {
        text += &format!("\n{}\n{about}\n", markdown(columns, rows));
    }
    text
}

fn cells(results: &BenchResults, rows: &[ComparedRow], row: &ComparedRow) -> Vec<String> {
    let (name, version, series) = row;
    let value = |column: usize, series: &Option<String>| {
        let scale = if column < STREAM { 1.0 } else { 1e3 };
        Some(results.readings.get(series.as_ref()?)?.median() * scale)
    };
    let cell = |(column, own): (usize, &Option<String>)| {
        let Some(own) = value(column, own) else { return String::new() };
        let better = |other: f64| if column == LATENCY { other < own } else { other > own };
        let all = rows.iter().filter_map(|(.., series)| value(column, &series[column]));
        if all.into_iter().any(better) { number(own) } else { format!("**{}**", number(own)) }
    };
    let own = series.iter().enumerate().map(cell);
    [name.clone(), version.clone()].into_iter().chain(own).collect()
}

/// The series of a cell. Latencies have a mean and a median.
fn series_of(column: usize, probe: &dyn BenchProbe) -> String {
    let aspect = if column == LATENCY { MEAN } else { "" };
    format!("{}{aspect}", probe.name())
}

/// The first word with a digit in front that a program says of itself.
fn version_of([program, option]: [&str; 2]) -> String {
    if program == "weft" {
        return env!("CARGO_PKG_VERSION").to_owned();
    }
    let said = machine::said(program, &[option]).unwrap_or_default();
    let digits = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit());
    let words = said.split(|c: char| c.is_whitespace() || "_,/-".contains(c));
    words.into_iter().find(digits).unwrap_or_default().to_owned()
}

/// All rows, in their order.
fn contenders() -> Vec<Contender> {
    let (chosen, default) = machine::congestion();
    let weft = ["weft", ""];
    let lat = |route: WeftRoute, label: &str| {
        Latency::new("ib_send_lat", 64, &latency(label)).over(route.network())
    };
    let bw = |route: WeftRoute, label: &str| {
        Bandwidth::new("ib_write_bw", MIB, &bulk(label)).over(route.network())
    };
    let mut weft0 = Contender::new("`weft0` (UDP)", weft)
        .on_one_machine(lat(WeftRoute::SHUTTLE, "weft0"), bw(WeftRoute::SHUTTLE, "weft0"));
    weft0.probes[STREAM] = Some(stream(Mover::Weft, "weft0"));
    let near = [
        weft0,
        Contender::new("`weft_iw0` (TCP)", weft)
            .on_one_machine(lat(WeftRoute::IWARP, "weft_iw0"), bw(WeftRoute::IWARP, "weft_iw0")),
        Contender::new("`weft cp`", weft).copying(CopyTool::Weft),
        Contender::new(&format!("TCP, blocking, {chosen}"), KERNEL).on_one_machine(
            FloorProbe::new("pingpong", &latency("blocking TCP")),
            FloorProbe::new("stream --call 1048576", &bulk("blocking TCP")),
        ),
        Contender::new(&format!("libfabric `tcp`, {default}"), ["fi_info", "--version"])
            .on_one_machine(
                LibfabricPingPong::new(64, &latency("libfabric tcp")),
                Writes::new(MIB, &bulk("libfabric tcp")),
            ),
        Contender::new(&format!("UCX `tcp`, {default}"), ["ucx_info", "-v"]).on_one_machine(
            Ucx::new("tag_lat", 64, &latency("UCX tcp")),
            Ucx::new("tag_bw", MIB, &bulk("UCX tcp")),
        ),
    ];
    near.into_iter().chain(across(&default)).collect()
}

/// The rows of what moves data across the path only. `default` is TCP's congestion control.
fn across(default: &str) -> Vec<Contender> {
    let by = |name: &str, version, mover| {
        let mut contender = Contender::new(name, version);
        contender.probes[STREAM] = Some(stream(mover, name));
        contender
    };
    let ssh = |name: &str| format!("{name}, TCP with {default}");
    vec![
        by("TCP, BBR", KERNEL, Mover::Tcp("bbr")),
        by("TCP, CUBIC", KERNEL, Mover::Tcp("cubic")),
        by("quinn (QUIC), CUBIC", ["weft-quic-floor", "--version"], Mover::Quic),
        Contender::new(&ssh("scp"), ["ssh", "-V"]).copying(CopyTool::Scp),
        Contender::new(&ssh("rsync over ssh"), ["rsync", "--version"]).copying(CopyTool::Rsync),
    ]
}

impl Contender {
    fn new(name: &str, version: [&'static str; 2]) -> Self {
        Self { name: name.to_owned(), version, probes: [const { None }; COLUMNS.len()] }
    }

    fn on_one_machine(
        mut self,
        latency: impl BenchProbe + 'static,
        bulk: impl BenchProbe + 'static,
    ) -> Self {
        self.probes[LATENCY] = Some(Box::new(latency));
        self.probes[BULK] = Some(Box::new(bulk));
        self
    }

    fn copying(mut self, tool: CopyTool) -> Self {
        let label = format!("{}: file", self.name);
        self.probes[COPY] = Some(Box::new(FileCopy { tool, label }));
        self
    }
}

fn latency(label: &str) -> String {
    format!("{label}: 64 bytes")
}

fn bulk(label: &str) -> String {
    format!("{label}: 1 MiB")
}

fn stream(mover: Mover, label: &str) -> Box<dyn BenchProbe> {
    let label = format!("{label}: stream across {PATH}");
    let transfer = Transfer::new(mover, PATH, 1, TransferAmount::Time, label);
    Box::new(transfer.omitting(OMIT_S).at_least(WAN_S).only_rate())
}

/// A file across the WAN.
struct FileCopy {
    tool: CopyTool,
    label: String,
}

impl BenchProbe for FileCopy {
    fn name(&self) -> String {
        self.label.clone()
    }

    fn program(&self) -> Option<&str> {
        Some(match self.tool {
            CopyTool::Weft => "ssh",
            CopyTool::Scp => "scp",
            CopyTool::Rsync => "rsync",
        })
    }

    fn is_peer(&self) -> bool {
        self.tool != CopyTool::Weft
    }

    fn run(&mut self, lab: &BenchLab) -> Result<Vec<ProbeReading>> {
        let mbps = copies::rate(lab, self.tool, FILE_MB, COPY_LIMIT_S)?;
        Ok(vec![ProbeReading::new(&self.label, ReadingUnit::GigabitsPerSecond, mbps / 1e3)])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_series_of_its_own() {
        let all = contenders();
        let probes = all.iter().flat_map(|row| row.probes.iter().flatten());
        let names: Vec<String> = probes.map(|probe| probe.name()).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }

    #[test]
    fn a_version_is_the_first_number_that_is_said() {
        assert!(version_of(["uname", "-r"]).contains('.'));
        assert_eq!(version_of(["no-such-program", "-v"]), "");
    }
}
