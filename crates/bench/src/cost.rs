//! `weft bench cost`: a program on one side of a WAN, whose CPU time both sides' end reports.
//!
//! The far side tells its time through a FIFO, because it is killed when the near side ends. The
//! near side waits for that and prints both as its last line.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rustix::fs::{CWD, Mode, mkfifoat};

use crate::{output, sys};

/// Begins the line with the CPU seconds of both sides.
const LINE: &str = "processor seconds near and far:";

/// One side.
#[derive(Debug, Args)]
pub struct Cost {
    /// The FIFO between the sides
    #[arg(long)]
    fifo: PathBuf,
    /// This is the far side
    #[arg(long)]
    far: bool,
    /// The program
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the program of one side.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(cost: &Cost) -> Result<()> {
    let seconds = seconds_of(&cost.command)?;
    if cost.far {
        return fs::write(&cost.fifo, format!("{seconds}")).context("telling the near side");
    }
    let far = fs::read_to_string(&cost.fifo).context("hearing the far side")?;
    output::print(&format!("{LINE} {seconds} {far}\n"))
}

fn seconds_of(command: &[OsString]) -> Result<f64> {
    let (name, args) = command.split_first().context("no program")?;
    let name = name.to_string_lossy();
    let mut command = Command::new(&*name);
    command.args(args).stdin(Stdio::null());
    // The far side may be killed at any time, and its program with it.
    sys::tie_down(&mut command, None);
    let mut child = command.spawn().context("starting")?;
    let status = child.wait().with_context(|| name.clone().into_owned())?;
    ensure!(status.success(), "{name}: {status}");
    Ok(sys::children_cpu().as_secs_f64())
}

/// What stands before the last line, and the CPU seconds near and far.
pub fn split(stdout: &str) -> Result<(&str, [f64; 2])> {
    let (before, line) =
        stdout.rsplit_once(LINE).with_context(|| format!("no times in\n{stdout}"))?;
    let mut numbers = line.split_whitespace().map(str::parse);
    let mut next = || numbers.next().context("a time is missing")?.context("reading a time");
    Ok((before, [next()?, next()?]))
}

/// Makes the FIFO.
pub fn make_fifo(path: &Path) -> Result<()> {
    mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)
        .with_context(|| format!("cannot make {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_split_off() {
        let stdout = format!("{{\"end\": 1}}\n{LINE} 0.5 1.25\n");
        assert_eq!(split(&stdout).unwrap(), ("{\"end\": 1}\n", [0.5, 1.25]));
        assert!(split("nothing").is_err());
        assert!(split(&format!("{LINE} 1\n")).is_err());
    }
}
