//! A command at the far end, with streams for its standard ones; and the near end of these.
//!
//! Invariant: the near end hears of the status only after the last byte of stdout and stderr; and a
//! command does not outlive the channel unheard: its group gets SIGHUP.
//!
//! Order: [`serve`] there, [`attach`] here.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use weft_session::MessageChannel;

use crate::event_loop::{EventLoop, LoopEvent, LoopOwner, OwnerEvent};
use crate::messages::StreamMessage;
use crate::pump;
use crate::stream::StreamFds;

const STDIN: u64 = 0;
const STDOUT: u64 = 1;
const STDERR: u64 = 2;

/// Status of a command that was not found.
const NOT_FOUND: u8 = 127;
/// Status of a command that cannot be executed.
const NOT_EXECUTABLE: u8 = 126;

/// Runs `command`, and ends when the near end has been told its status.
///
/// # Errors
/// The channel has failed.
pub fn serve(channel: &MessageChannel, command: &[Vec<u8>]) -> Result<()> {
    let mut streams = EventLoop::new(channel)?;
    let mut child = match spawn(command) {
        Ok(child) => child,
        Err(error) => {
            let name = command.first().map(|name| String::from_utf8_lossy(name).into_owned());
            let why = format!("{}: {error}", name.unwrap_or_default());
            streams.say(&StreamMessage::Problem { why, is_fatal: false })?;
            let is_missing = error.kind() == io::ErrorKind::NotFound;
            let status = if is_missing { NOT_FOUND } else { NOT_EXECUTABLE };
            for id in [STDOUT, STDERR] {
                streams.say(&StreamMessage::End { id })?;
            }
            return streams.say(&StreamMessage::Exit { status });
        }
    };
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let stdin = child.stdin.take().map(OwnedFd::from);
    let stdout = child.stdout.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    for fd in [&stdin, &stdout, &stderr].into_iter().flatten() {
        rustix::io::ioctl_fionbio(fd, true).map_err(io::Error::from)?;
    }
    streams.add(STDIN, Some(StreamFds { output: stdin, ..StreamFds::default() }))?;
    streams.add(STDOUT, Some(StreamFds { input: stdout, ..StreamFds::default() }))?;
    streams.add(STDERR, Some(StreamFds { input: stderr, ..StreamFds::default() }))?;
    wait(child, &streams)?;
    let mut owner = FarCommand { status: None, is_over: false };
    let outcome = streams.run(&mut owner);
    if let (false, Some(group)) = (owner.is_over, group) {
        // Whoever has its output may have ended just now.
        let _ = kill_process_group(group, Signal::HUP);
    }
    outcome
}

fn spawn(command: &[Vec<u8>]) -> io::Result<Child> {
    let mut words = command.iter().map(|word| OsStr::from_bytes(word));
    let program = words.next().ok_or_else(|| io::Error::other("no command"))?;
    Command::new(program)
        .args(words)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
}

fn wait(mut child: Child, streams: &EventLoop) -> Result<()> {
    let events = streams.events();
    let wait = move || {
        let status = child.wait().map_or(u8::MAX, status);
        events.send(LoopEvent::Exited { status });
    };
    thread::Builder::new().name("weft-wait".into()).spawn(wait).context("starting a thread")?;
    Ok(())
}

/// A status as a shell has it.
fn status(status: ExitStatus) -> u8 {
    let signal = status.signal().map(|signal| 128 + signal);
    u8::try_from(status.code().or(signal).unwrap_or(255)).unwrap_or(255)
}

struct FarCommand {
    status: Option<u8>,
    /// It has ended, and so have all that had its stdout and stderr.
    is_over: bool,
}

impl LoopOwner for FarCommand {
    fn handle(&mut self, streams: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
        match event {
            OwnerEvent::Exited { status } => {
                self.status = Some(status);
                // Nobody reads its stdin any more.
                streams.cut(STDIN);
            }
            OwnerEvent::StreamOver => {}
            OwnerEvent::PeerDone => bail!("the near end has ended"),
            _ => bail!("the near end says something that no command needs"),
        }
        match self.status {
            Some(status) if !streams.has(STDOUT) && !streams.has(STDERR) => {
                self.is_over = true;
                streams.say(&StreamMessage::Exit { status })?;
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

/// Joins the standard streams of this process to those of the command; gives its status.
///
/// # Errors
/// The channel has failed, or stdin cannot be read.
pub fn attach(channel: &MessageChannel, tell: &dyn Fn(&str)) -> Result<u8> {
    let mut streams = EventLoop::new(channel)?;
    let (stdin, unread) = pump::from(std::io::stdin()).context("reading stdin")?;
    let (stdout, written) = pump::to(std::io::stdout()).context("writing stdout")?;
    let (stderr, complained) = pump::to(std::io::stderr()).context("writing stderr")?;
    streams.add(STDIN, Some(StreamFds { input: Some(stdin), ..StreamFds::default() }))?;
    streams.add(STDOUT, Some(StreamFds { output: Some(stdout), ..StreamFds::default() }))?;
    streams.add(STDERR, Some(StreamFds { output: Some(stderr), ..StreamFds::default() }))?;
    let mut owner = NearCommand { status: None, tell };
    streams.run(&mut owner)?;
    // What cannot be said on stderr cannot be told either.
    let _said = join(complained);
    if let Err(error) = join(written) {
        let why = format!("writing stdout: {error}");
        // A command that failed for that reason has its own status.
        ensure!(owner.status != Some(0), "{why}");
        tell(&why);
    }
    // The command took the failed read for the end of its input.
    if let Some(error) = unread.get()
        && owner.status == Some(0)
    {
        bail!("reading stdin: {error}");
    }
    owner.status.context("the far end ended before the command did")
}

/// What was written is out when the thread has ended.
fn join(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    thread.join().unwrap_or_else(|_| Err(io::Error::other("its thread has failed")))
}

struct NearCommand<'a> {
    status: Option<u8>,
    tell: &'a dyn Fn(&str),
}

impl LoopOwner for NearCommand<'_> {
    fn handle(&mut self, streams: &mut EventLoop, event: OwnerEvent) -> Result<bool> {
        match event {
            OwnerEvent::Message(StreamMessage::Exit { status }) => self.status = Some(status),
            OwnerEvent::Message(StreamMessage::Problem { why, .. }) => (self.tell)(&why),
            OwnerEvent::StreamOver => {}
            // What came before it is still being written.
            OwnerEvent::PeerDone if self.status.is_some() => {}
            OwnerEvent::PeerDone => bail!("the far end has ended before the command did"),
            _ => bail!("the far end says something that no command needs"),
        }
        Ok(self.status.is_none() || streams.has(STDOUT) || streams.has(STDERR))
    }
}

#[cfg(test)]
mod tests {
    use weft_session::parse_message;

    use super::*;

    /// Whether a process is there, and no zombie that nobody waits for.
    fn is_running(id: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
    }

    #[test]
    fn what_a_command_leaves_hears_that_the_near_end_is_gone() {
        let dir = weft_testkit::Dir::new("pipe-leaves");
        let (near_in, far_out) = std::io::pipe().unwrap();
        let (far_in, near_out) = std::io::pipe().unwrap();
        let near = MessageChannel::through(near_in, near_out);
        let far = MessageChannel::through(far_in, far_out);
        let survived = dir.path("survived");
        // It keeps stdout after the command has ended.
        let script = format!("(sleep 5; echo > {}) & echo $$ $!", survived.display());
        let command = ["sh", "-c", &script].map(|word| word.as_bytes().to_vec());
        let serving = thread::spawn(move || serve(&far, &command));
        let message = near.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
        let (head, said) = parse_message::<StreamMessage>(&message).unwrap();
        assert!(matches!(head, StreamMessage::Data { id: STDOUT, .. }), "{head:?}");
        let said = String::from_utf8_lossy(said).into_owned();
        let (command, left) = said.trim().split_once(' ').unwrap();
        let until_ended = |id: &str| {
            while is_running(id) {
                thread::yield_now()
            }
        };
        until_ended(command);
        drop(near);
        serving.join().unwrap().unwrap_err();
        until_ended(left);
        assert!(!survived.exists());
    }
}
