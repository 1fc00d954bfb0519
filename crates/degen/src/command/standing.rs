//! `up`: a path in a process of its own, which stays until `down`.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use rustix::fs::{Mode, OFlags};
use rustix::stdio::{dup2_stderr, dup2_stdout};

use super::run::{EndEvent, Site};
use super::{Launcher, PathArgs, print};
use crate::tun;

/// Starts a process that makes the path and keeps it; prints the path's name when it is up.
pub fn up(launcher: &Launcher, args: &PathArgs) -> Result<()> {
    // Faults of the arguments are told before anything is started.
    args.spec()?;
    let mut call = launcher.call("serve")?;
    call.args(args.words()).stdin(Stdio::null()).stdout(Stdio::piped());
    let mut serving = call.spawn()?;
    let mut name = String::new();
    let stdout = serving.stdout.take().context("the stdout of the WAN's process")?;
    BufReader::new(stdout).read_line(&mut name)?;
    if name.is_empty() {
        bail!("the WAN is not up: {}", serving.wait()?);
    }
    print(&name)
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
    })
}
