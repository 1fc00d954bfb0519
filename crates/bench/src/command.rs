//! `weft bench`: suites of figures after those of the papers, measured, compared and shown.

mod measure;

use std::io::{self, Write};

use clap::{Args, Subcommand};
use weft_units::WrongArgument;

use crate::{compare, compared, cost, demo, floors, lan, report, sys, wan};

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
    /// The page is self-contained: no network, no script. Each figure has what the paper published,
    /// what is measured here in its place, what of it was reproduced, and all its numbers in a
    /// table.
    Report(report::ReportArgs),
    /// What Weft is, in four acts below a minute
    ///
    /// Devices with Weft and without; latency and bandwidth against TCP, libfabric and UCX; one
    /// stream across an emulated WAN against BBR and CUBIC; a file across it against scp. What this
    /// machine cannot do is skipped by name. No root and no second machine is needed.
    Demo(demo::DemoArgs),
    /// Print one of the project's own tables, which have targets
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
    /// Both devices, over the network and over shared memory, against peers on one machine
    ///
    /// With the defaults it takes about 15 minutes; --quick takes about three.
    Lan(lan::LanArgs),
    /// Rates, delivery times and CPU time across a WAN that is made for it
    ///
    /// With the defaults it takes about two hours; --quick takes five minutes.
    Wan(wan::WanArgs),
    /// One row for each transport or tool: Weft, libfabric, UCX, TCP, QUIC, scp, rsync
    ///
    /// It takes about ten minutes. rxe and siw need a virtual machine: `make compared`.
    Compared(compared::ComparedArgs),
}

/// The status of a program that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// The status of a measurement that failed.
const FAILURE: u8 = 1;
/// The status for arguments that cannot be followed, the same in every command.
const WRONG_ARGUMENT: u8 = 125;

const SECTIONS: &str = "\
EXAMPLES
    Whether it works here, in a minute:
        weft bench demo

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

    The project's own table of one machine: a look, then all of it (15 minutes):
        weft bench table lan --quick
        weft bench table lan

    A page to look at:
        weft bench report results.jsonl -o report.html --png figures

RESULTS
    A file of JSON lines: first the run (schema, machine, kernel, versions, commit, seed, figures),
    then each measurement as it is made. Nothing else should run meanwhile; the share of the machine
    that others took is in the file, and above 3 % it is no result.

EXIT STATUS
    0    all was measured; what the machine lacks is listed
    1    a measurement failed, or a program that it needs is missing
    125  weft was called wrongly: an argument, or a file that it names
    130  it was interrupted; --resume goes on with it";

/// Does what the arguments say; the result is the exit status.
pub fn main(command: &BenchArgs) -> u8 {
    match run(command) {
        Ok(()) => 0,
        Err(_) if sys::interrupted() => INTERRUPTED,
        Err(error) => {
            // Where stderr takes nothing, the status says it.
            let _ = writeln!(io::stderr(), "weft bench: {error:#}");
            if error.is::<WrongArgument>() { WRONG_ARGUMENT } else { FAILURE }
        }
    }
}

fn run(command: &BenchArgs) -> anyhow::Result<()> {
    match &command.what {
        None => measure::run(&command.run),
        Some(BenchCommand::Compare(options)) => compare::run(options),
        Some(BenchCommand::Report(options)) => report::run(options),
        Some(BenchCommand::Demo(options)) => demo::run(options),
        Some(BenchCommand::Table(TableCommand::Lan(options))) => lan::run(options),
        Some(BenchCommand::Table(TableCommand::Wan(options))) => wan::run(options),
        Some(BenchCommand::Table(TableCommand::Compared(options))) => compared::run(options),
        Some(BenchCommand::Floor(floor)) => floors::run(floor),
        Some(BenchCommand::Cost(cost)) => cost::run(cost),
    }
}
