//! A command at the far end, with streams for its standard ones; and the near end of these.
//!
//! Invariant: the near end hears of the status only after the last byte of stdout and stderr; and a
//! command does not outlive the channel unheard: its group gets SIGHUP. When the channel is lost,
//! nobody reads the end of stdin, which would pass for the end of the whole input.
//!
//! Order: [`serve`] there, [`attach`] here.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group};
use weft_session::MessageChannel;

use crate::event_loop::{EventLoop, LoopOwner, OwnerEvent};
use crate::event_queue::LoopEvent;
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

/// How long a command that got SIGHUP may read its stdin before it gets SIGKILL.
const HANGUP_LIMIT: Duration = Duration::from_secs(10);

/// Runs `command`, and ends when the near end has been told its status.
///
/// # Errors
/// The channel has failed.
pub fn serve(channel: &MessageChannel, command: &[Vec<u8>]) -> Result<()> {
    serve_within(channel, command, HANGUP_LIMIT)
}

fn serve_within(channel: &MessageChannel, command: &[Vec<u8>], limit: Duration) -> Result<()> {
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
        hang_up(streams, group, limit);
    }
    outcome
}

/// Ends a command that the near end does not reach any more. One that ignores SIGHUP and has read
/// all of its input goes on; one that may still read gets SIGKILL after `limit`.
fn hang_up(mut streams: EventLoop, group: Pid, limit: Duration) {
    // Whoever has its output may have ended just now.
    let _ = kill_process_group(group, Signal::HUP);
    let stdin = streams.take_output(STDIN);
    // Whoever writes does not wait for a reader.
    drop(streams);
    let Some(stdin) = stdin else { return };
    if !has_no_reader(&stdin, Some(limit)) {
        let _ = kill_process_group(group, Signal::KILL);
        // A process of another group may have it, too.
        has_no_reader(&stdin, None);
    }
}

/// Waits until nobody can read a pipe any more, for `limit` at most; whether that came.
fn has_no_reader(pipe: &OwnedFd, limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    loop {
        // It is an error of the pipe, which needs no flag.
        match poll(&mut [PollFd::new(pipe, PollFlags::empty())], limit.as_ref()) {
            Err(Errno::INTR) => {}
            outcome => return outcome.is_ok_and(|ready| ready > 0),
        }
    }
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
    // What is written here has an end now.
    drop(streams);
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
            OwnerEvent::Message(StreamMessage::Exit { status }) => {
                // With its status a part of the output would pass for the whole.
                ensure!(
                    !streams.may_come(STDOUT) && !streams.may_come(STDERR),
                    "the far end named the command's status before the end of its output"
                );
                self.status = Some(status);
            }
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
    use std::fs;

    use weft_session::{parse_message, send_message};
    use weft_testkit::{Dir, LIMIT, now};

    use super::*;

    /// So long that no test depends on it.
    const LONG: Duration = Duration::from_secs(3600);

    /// A script that runs at the far end, in a directory of its own.
    struct Script {
        near: MessageChannel,
        serving: JoinHandle<Result<()>>,
    }

    impl Script {
        fn start(dir: &Dir, script: &str, limit: Duration) -> Self {
            let (near_in, far_out) = io::pipe().unwrap();
            let (far_in, near_out) = io::pipe().unwrap();
            let near = MessageChannel::through(near_in, near_out);
            let far = MessageChannel::through(far_in, far_out);
            let script = format!("cd {}; {script}", dir.root().display());
            // The tests may run where the signal is ignored, as by nohup.
            let words = ["env", "--default-signal=HUP", "sh", "-c", &script];
            let command = words.map(|word| word.as_bytes().to_vec());
            let serving = thread::spawn(move || serve_within(&far, &command, limit));
            Self { near, serving }
        }

        /// What it prints first.
        fn printed(&self) -> String {
            let message = self.near.receiver().recv().unwrap().unwrap().into_bytes().unwrap();
            let (head, said) = parse_message::<StreamMessage>(&message).unwrap();
            assert!(matches!(head, StreamMessage::Data { id: STDOUT, .. }), "{head:?}");
            String::from_utf8_lossy(said).trim().to_owned()
        }

        /// Tells it more of its stdin.
        fn say(&self, message: &StreamMessage, bytes: &[u8]) {
            send_message(&self.near.sender(), message, bytes).unwrap();
        }

        /// The near end is gone without a word.
        fn lose_near(self) -> JoinHandle<Result<()>> {
            drop(self.near);
            self.serving
        }
    }

    fn until_ended(id: &str) {
        // One that nobody waits for has ended as well.
        let is_running = || {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
        };
        until(|| !is_running());
    }

    fn until_has(dir: &Dir, name: &str, text: &str) {
        until(|| fs::read_to_string(dir.path(name)).unwrap_or_default() == text);
    }

    fn until(happened: impl Fn() -> bool) {
        let deadline = now() + LIMIT;
        while !happened() {
            assert!(now() < deadline, "it does not happen");
            thread::yield_now();
        }
    }

    /// What becomes of a near end whose far one says `messages` and is gone.
    fn heard(messages: &[StreamMessage]) -> Result<Option<u8>> {
        let (near_in, far_out) = io::pipe().unwrap();
        let (far_in, near_out) = io::pipe().unwrap();
        let near = MessageChannel::through(near_in, near_out);
        let far = MessageChannel::through(far_in, far_out);
        let mut streams = EventLoop::new(&near).unwrap();
        for id in [STDOUT, STDERR] {
            let output = Some(io::pipe().unwrap().1.into());
            streams.add(id, Some(StreamFds { output, ..StreamFds::default() })).unwrap();
        }
        messages.iter().for_each(|message| send_message(&far.sender(), message, &[]).unwrap());
        drop(far);
        let mut owner = NearCommand { status: None, tell: &|_| {} };
        streams.run(&mut owner).map(|()| owner.status)
    }

    #[test]
    fn a_status_before_the_end_of_the_output_is_refused() {
        let (end, exit) = (|id| StreamMessage::End { id }, StreamMessage::Exit { status: 0 });
        assert_eq!(heard(&[end(STDOUT), end(STDERR), exit.clone()]).unwrap(), Some(0));
        for messages in [&[exit.clone()][..], &[end(STDOUT), exit.clone()], &[end(STDERR), exit]] {
            let error = heard(messages).unwrap_err();
            let said = "the far end named the command's status before the end of its output";
            assert_eq!(error.to_string(), said);
        }
    }

    #[test]
    fn what_a_command_leaves_hears_that_the_near_end_is_gone() {
        let dir = Dir::new("pipe-leaves");
        // It keeps stdout after the command has ended.
        let script = Script::start(&dir, "(sleep 5; echo > survived) & echo $$ $!", LONG);
        let said = script.printed();
        let (command, left) = said.split_once(' ').unwrap();
        until_ended(command);
        script.lose_near().join().unwrap().unwrap_err();
        until_ended(left);
        assert!(!dir.path("survived").exists());
    }

    #[test]
    fn a_command_that_ignores_the_signal_reads_no_end_of_its_input() {
        let dir = Dir::new("pipe-ignores");
        let text = "trap '' HUP; echo $$; cat >part && mv part whole";
        let script = Script::start(&dir, text, Duration::ZERO);
        let command = script.printed();
        script.say(&StreamMessage::Data { id: STDIN, is_short: false }, b"a part");
        until_has(&dir, "part", "a part");
        script.lose_near().join().unwrap().unwrap_err();
        until_ended(&command);
        assert!(!dir.path("whole").exists());
    }

    #[test]
    fn a_command_may_take_its_time_to_end() {
        let dir = Dir::new("pipe-cleans");
        let text = "mkfifo go; trap 'echo hup >heard; cat <go >>heard; exit' HUP
                    echo $$; read line; echo end >heard";
        let script = Script::start(&dir, text, LONG);
        let command = script.printed();
        let serving = script.lose_near();
        until_has(&dir, "heard", "hup\n");
        fs::write(dir.path("go"), "clean\n").unwrap();
        serving.join().unwrap().unwrap_err();
        until_ended(&command);
        until_has(&dir, "heard", "hup\nclean\n");
    }

    #[test]
    fn a_command_that_has_all_its_input_and_ignores_the_signal_goes_on() {
        let dir = Dir::new("pipe-goes-on");
        let text = "mkfifo go; trap '' HUP; cat; echo $$; cat <go >whole";
        let script = Script::start(&dir, text, Duration::ZERO);
        script.say(&StreamMessage::End { id: STDIN }, &[]);
        let command = script.printed();
        script.lose_near().join().unwrap().unwrap_err();
        fs::write(dir.path("go"), "all").unwrap();
        until_ended(&command);
        until_has(&dir, "whole", "all");
    }
}
