//! `enter` and `exec`: moves this process into a side of a path, then executes CMD.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Launcher, OUR_FAILURE, tell};
use crate::control::{self, ControlRequest, PathNamespaces};
use crate::namespace::Namespace;
use crate::wan::{PathSide, Wan};

/// The arguments of the hidden `enter`: how a path starts its own programs.
#[derive(Debug, Args)]
pub struct Enter {
    /// The process that has the namespaces.
    pid: u32,
    /// Its descriptor of the one to enter.
    number: i32,
    /// The side that this is.
    side: PathSide,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// A call of `command` on `side`, which will not outlive this thread.
pub fn call(
    launcher: &Launcher,
    wan: &Wan,
    side: PathSide,
    command: &[OsString],
) -> Result<std::process::Command> {
    let mut call = launcher.call("enter")?;
    let number = wan.namespace(side).number();
    call.args([std::process::id().to_string(), number.to_string()]).arg(side.name());
    call.arg("--").args(command);
    Ok(call)
}

impl Enter {
    /// Becomes the program; comes back with an exit status if it cannot.
    pub fn run(self) -> Result<u8> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid() != Pid::from_raw(self.pid as i32) {
            bail!("the WAN is gone");
        }
        Namespace::open(&descriptor(self.pid, self.number))?.enter()?;
        Ok(become_program(&self.command, self.side))
    }
}

/// Becomes `command` on a side of a path that is up; comes back with an exit status if it cannot.
pub fn exec(directory: &Path, name: &str, side: PathSide, command: &[OsString]) -> Result<u8> {
    let answer = control::call(directory, name, ControlRequest::Where)?;
    let place: PathNamespaces = serde_json::from_str(&answer).context("the WAN's answer")?;
    let network = Namespace::open(&descriptor(place.pid, place.sides[side as usize]))?;
    enter_users(place.pid)?;
    network.enter().context("the WAN's network")?;
    Ok(become_program(command, side))
}

/// Goes to the user namespace of `pid`, unless it is our own.
fn enter_users(pid: u32) -> Result<()> {
    let link = PathBuf::from(format!("/proc/{pid}/ns/user"));
    if std::fs::read_link(&link)? == std::fs::read_link("/proc/self/ns/user")? {
        return Ok(());
    }
    let users = std::fs::File::open(&link)?;
    let kind = Some(LinkNameSpaceType::User);
    move_into_link_name_space(std::os::fd::AsFd::as_fd(&users), kind).context("the WAN's users")
}

fn descriptor(pid: u32, number: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/fd/{number}"))
}

fn become_program(command: &[OsString], side: PathSide) -> u8 {
    let [program, arguments @ ..] = command else { return OUR_FAILURE };
    let mut call = std::process::Command::new(program);
    call.args(arguments).env("WAN_SIDE", side.name());
    for (name, value) in [("WAN_NEAR", PathSide::Near), ("WAN_FAR", PathSide::Far)] {
        call.env(name, value.v4(0).to_string()).env(format!("{name}6"), value.v6(0).to_string());
    }
    let error = call.exec();
    tell(format_args!("{}: {error}", program.display()));
    if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_EXECUTABLE }
}
