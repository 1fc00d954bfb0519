//! `weft perf`: executes itself again, with Weft's library preloaded or with the machine's devices
//! alone. The static program has Weft's devices itself, and measures at once.

use std::ffi::{CString, OsString};
use std::io::Write;

use anyhow::{Context, Result, ensure};
use weft_perf::command::{PerfArgs, Surroundings};

use crate::OUR_FAILURE;
use crate::{run, sys};

/// Hidden command that runs in the prepared environment.
const INSIDE: &str = "perf-inside";

/// Becomes the command that measures, with the arguments `rest` of this one; the result is the exit
/// status if that fails.
pub fn main(command: &PerfArgs, rest: &[OsString]) -> u8 {
    let own_name = std::env::var("WEFT_DEV").ok();
    let around = command.surroundings(own_name.as_deref());
    let ended = if weft_perf::USES_LIBRARIES {
        become_measuring(around, rest).map(|failure| Err(failure.error))
    } else {
        prepare(&around).map(|()| Ok(weft_perf::command::main(command)))
    };
    let error = match ended {
        Ok(Ok(status)) => return status,
        Ok(Err(error)) | Err(error) => error,
    };
    // Without a stderr the status alone must do.
    let _ = writeln!(std::io::stderr(), "weft: {error:#}");
    OUR_FAILURE
}

fn become_measuring(around: Surroundings, rest: &[OsString]) -> Result<run::RunFailure> {
    let own = std::env::current_exe().context("finding weft itself")?;
    let before = [own.into(), INSIDE.into()].into_iter();
    let line: Vec<OsString> = before.chain(rest.iter().cloned()).collect();
    let mut variables = around.variables;
    if !around.weft {
        variables.push(("WEFT", String::from("off")));
    }
    Ok(run::become_with(line, variables))
}

/// Prepares the environment of this process.
fn prepare(around: &Surroundings) -> Result<()> {
    ensure!(
        around.weft,
        "the static weft has the devices weft0 and weft_iw0 alone; for an adapter of this machine \
         take the weft of a package"
    );
    for (name, value) in &around.variables {
        let name = CString::new(*name).context("a variable")?;
        let value = CString::new(value.as_str()).context("an argument with a NUL in it")?;
        sys::set_variable(&name, &value);
    }
    Ok(())
}
