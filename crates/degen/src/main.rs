//! `degen`: a WAN on one machine, without the rest of Weft.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use degen::command::{self, Launcher};

/// A WAN on one machine: run a program with a long, narrow or lossy path before it
#[derive(Debug, Parser)]
#[command(name = "degen", version)]
struct DegenCli {
    #[command(flatten)]
    command: command::DegenArgs,
}

fn main() -> ExitCode {
    match DegenCli::try_parse() {
        Ok(cli) => ExitCode::from(command::main(&Launcher::new(&[]), cli.command)),
        Err(answer) => ExitCode::from(command::print_answer(&answer)),
    }
}
