//! `up`: a path in a process of its own, which stays until `down`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, kill_process};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use super::run::{EndEvent, Site};
use super::{Launcher, PathArgs, print};
use crate::tun;

/// Starts a process that makes the path and keeps it; prints the path's name when it is up. Gives
/// the exit status: that of the process if it has failed, which has then said why.
pub fn up(launcher: &Launcher, args: &PathArgs) -> Result<u8> {
    // Faults of the arguments are told before anything is started.
    args.spec()?;
    let mut call = launcher.call("serve")?;
    call.args(args.words()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut serving = call.spawn()?;
    let mut name = String::new();
    let stdout = serving.stdout.take().context("the stdout of the WAN's process")?;
    BufReader::new(stdout).read_line(&mut name)?;
    if name.is_empty() {
        let ended = serving.wait()?;
        let status = ended.code().and_then(|code| u8::try_from(code).ok()).filter(|code| *code > 0);
        return status.with_context(|| format!("the WAN is not up: its process ended: {ended}"));
    }
    if let Err(error) = print(&name) {
        // Nobody has heard of it.
        kill_process(Pid::from_child(&serving), Signal::TERM)?;
        serving.wait()?;
        return Err(error);
    }
    Ok(0)
}

/// Makes the path, says its name on stdout and keeps it until it is told to end.
pub fn serve(launcher: &Launcher, args: &PathArgs) -> Result<()> {
    // The terminal's signals are for those who use it. A leader of a group cannot leave it, but
    // `up` starts none.
    let _ = rustix::process::setsid();
    tun::close_inherited()?;
    Site::open(args)?.host(launcher, args, true, |_, events, _| {
        let mut stdout = std::io::stdout();
        writeln!(stdout, "{}", args.name())?;
        let nowhere = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())?;
        // Whoever waits for the end of either stream must not wait for this process.
        dup2_stdout(&nowhere)?;
        dup2_stderr(&nowhere)?;
        for event in events {
            if let EndEvent::Down | EndEvent::Signal { .. } = event {
                break;
            }
        }
        Ok(())
    })?;
    Ok(())
}
