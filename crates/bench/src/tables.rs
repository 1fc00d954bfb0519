//! `weft-bench`: the demonstration, and the tables of one machine and of a WAN.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

use crate::{cost, demo, floors, lan, sys, wan};

/// Benchmarks of Weft beside its peers, in one run.
#[derive(Debug, Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Verified RDMA between two processes, beside kernel TCP
    Demo(demo::Options),
    /// Every row of the LAN table
    Lan(lan::Options),
    /// Rates, delivery times and processor time across a WAN that is made for it
    Wan(wan::Options),
    /// A program on one side of a WAN, and the processor time that it used
    #[command(hide = true)]
    Cost(cost::Cost),
    /// One end of a floor probe
    #[command(hide = true)]
    Floor(floors::Floor),
}

/// The status of a program that Ctrl-C ended.
pub const INTERRUPTED: u8 = 130;

/// Does what the arguments of this process say.
pub fn main() -> ExitCode {
    match run(&Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if sys::interrupted() => ExitCode::from(INTERRUPTED),
        Err(error) => {
            eprintln!("weft-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    match command {
        Command::Floor(floor) => floors::run(floor),
        Command::Cost(cost) => cost::run(cost),
        Command::Demo(options) => {
            sys::catch_interrupts()?;
            demo::run(options)
        }
        Command::Lan(options) => {
            sys::catch_interrupts()?;
            lan::run(options)
        }
        Command::Wan(options) => {
            sys::catch_interrupts()?;
            wan::run(options)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}
