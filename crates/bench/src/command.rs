//! `weft bench`: suites of figures after those of the papers, measured, compared and shown.

mod measure;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::{compare, cost, demo, floors, lan, report, sys, wan};

/// The arguments.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = SECTIONS)]
pub struct BenchArgs {
    /// Something else than to measure
    #[command(subcommand)]
    what: Option<BenchCommand>,

    #[command(flatten)]
    run: measure::MeasureArgs,
}

#[derive(Debug, Subcommand)]
enum BenchCommand {
    /// Print what changed between two files of results
    ///
    /// Points that both files have are compared, the second by the first. A change counts where
    /// their ranges over the rounds do not touch. Results of different machines compare machines.
    Compare(compare::CompareArgs),
    /// Write a page of HTML with the figures of files of results
    ///
    /// The page stands alone: no network, no script. Each figure has what the paper published, what
    /// is measured here in its place, what of it came out again, and all its numbers in a table.
    Report(report::ReportArgs),
    /// Verified RDMA between two processes, beside kernel TCP
    Demo(demo::DemoArgs),
    /// Print one of the project's own tables
    #[command(subcommand)]
    Table(TableCommand),
    /// One end of a floor probe
    #[command(hide = true)]
    Floor(floors::FloorArgs),
    /// A program on one side of a WAN, and the CPU time that it used
    #[command(hide = true)]
    Cost(cost::Cost),
}

#[derive(Debug, Subcommand)]
enum TableCommand {
    /// Every row of the LAN table
    Lan(lan::LanArgs),
    /// Rates, delivery times and CPU time across a WAN that is made for it
    Wan(wan::WanArgs),
}

/// The status of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;

const SECTIONS: &str = "\
EXAMPLES
    What is there to measure, and what does this machine lack?
        weft bench --list

    A look at everything, below five minutes; then the whole, below an hour:
        weft bench all --quick
        weft bench all --out results.jsonl

    Go on with a run that was ended:
        weft bench --resume results.jsonl

    Before and after a change:
        weft bench latency --out before.jsonl
        weft bench latency --out after.jsonl
        weft bench compare before.jsonl after.jsonl

    Whether it works here, in a minute; the project's own tables:
        weft bench demo
        weft bench table lan --quick

    A page to look at:
        weft bench report results.jsonl -o report.html --png figures

RESULTS
    A file of JSON lines: first the run (schema, machine, kernel, versions, commit, seed, figures),
    then each measurement as it is made. Nothing else should run meanwhile; the share of the machine
    that others took is in the file, and above 3 % it is no result.

EXIT STATUS
    0    all was measured; what the machine lacks is listed
    1    a measurement failed, or the arguments do not fit the machine
    130  it was interrupted; --resume goes on with it";

/// Does what the arguments say; the result is the exit status.
pub fn main(command: &BenchArgs) -> u8 {
    match run(command) {
        Ok(()) => 0,
        Err(_) if sys::interrupted() => INTERRUPTED,
        Err(error) => {
            eprintln!("weft bench: {error:#}");
            1
        }
    }
}

fn run(command: &BenchArgs) -> Result<()> {
    match &command.what {
        None => measure::run(&command.run),
        Some(BenchCommand::Compare(options)) => compare::run(options),
        Some(BenchCommand::Report(options)) => report::run(options),
        Some(BenchCommand::Demo(options)) => demo::run(options),
        Some(BenchCommand::Table(TableCommand::Lan(options))) => lan::run(options),
        Some(BenchCommand::Table(TableCommand::Wan(options))) => wan::run(options),
        Some(BenchCommand::Floor(floor)) => floors::run(floor),
        Some(BenchCommand::Cost(cost)) => cost::run(cost),
    }
}
