//! `weft-sim`: the simulator without the rest of Weft.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use weft_sim::command;

/// Simulate rate control over long and lossy paths
#[derive(Debug, Parser)]
#[command(name = "weft-sim", version)]
struct SimCli {
    #[command(flatten)]
    command: command::SimArgs,
}

fn main() -> ExitCode {
    match command::main(&SimCli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without a stderr the status alone must do.
            let _ = writeln!(std::io::stderr(), "sim: {error:#}");
            ExitCode::FAILURE
        }
    }
}
