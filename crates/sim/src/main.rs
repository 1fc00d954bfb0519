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

/// The exit status of a failure, as `weft sim` has it.
const OUR_FAILURE: u8 = 125;

fn main() -> ExitCode {
    let cli = match SimCli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // A closed stdout or stderr leaves nowhere to say so.
            let _ = answer.print();
            return if answer.use_stderr() { OUR_FAILURE.into() } else { ExitCode::SUCCESS };
        }
    };
    match command::main(&cli.command) {
        Ok(status) => status.into(),
        Err(error) => {
            // Without a stderr the status alone must do.
            let _ = writeln!(std::io::stderr(), "sim: {error:#}");
            OUR_FAILURE.into()
        }
    }
}
