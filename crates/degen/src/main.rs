//! `degen`: a WAN on one machine, without the rest of Weft.
#![deny(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use degen::command::{self, Launcher, OUR_FAILURE};

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
        Err(answer) => {
            // A closed stdout or stderr leaves nowhere to say so.
            let _ = answer.print();
            ExitCode::from(if answer.use_stderr() { OUR_FAILURE } else { 0 })
        }
    }
}
