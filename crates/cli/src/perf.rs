//! `weft perf`: executes itself again, with Weft's library preloaded or with the machine's devices
//! alone.

use std::ffi::OsString;
use std::io::Write;

use anyhow::{Context, Result};
use weft_perf::command::PerfArgs;

use crate::OUR_FAILURE;
use crate::run;

/// Hidden command that runs in the prepared environment.
const INSIDE: &str = "perf-inside";

/// Becomes the command that measures, with the arguments `rest` of this one; the result is the exit
/// status if that fails.
pub fn main(command: &PerfArgs, rest: &[OsString]) -> u8 {
    let error = match become_measuring(command, rest) {
        Ok(failure) => failure.error,
        Err(error) => error,
    };
    // Without a stderr the status alone must do.
    let _ = writeln!(std::io::stderr(), "weft: {error:#}");
    OUR_FAILURE
}

fn become_measuring(command: &PerfArgs, rest: &[OsString]) -> Result<run::RunFailure> {
    let own_name = std::env::var("WEFT_DEV").ok();
    let around = command.surroundings(own_name.as_deref());
    let own = std::env::current_exe().context("finding weft itself")?;
    let before = [own.into(), INSIDE.into()].into_iter();
    let line: Vec<OsString> = before.chain(rest.iter().cloned()).collect();
    let mut variables = around.variables;
    if !around.weft {
        variables.push(("WEFT", String::from("off")));
    }
    Ok(run::become_with(line, variables))
}
