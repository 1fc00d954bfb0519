//! Processes on a path: starts them, waits for them, and ends all of them.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Receiver;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, set_child_subreaper,
    waitpid,
};
use signal_hook::consts::SIGTERM;

use super::run::{EndEvent, EndedEarly};
use super::{Launcher, enter};
use crate::clock::PathClock;
use crate::wan::{PathSide, Wan};

/// How long a server may take until it listens.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// A server that has a port of UDP alone for so long does not listen to TCP as well: the queue pair
/// of an RDMA program may have one before that.
const UDP_ALONE: Duration = Duration::from_millis(200);
/// How long a program may take to end when it is asked to.
const END_PATIENCE: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// The children that this process has started itself.
static STARTED: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// Rounds of killing, against a program that keeps starting others.
const SWEEPS_MAX: usize = 1000;

/// A program with a descriptor that tells when it has ended.
#[derive(Debug)]
pub struct ChildProgram {
    child: Child,
    ended: OwnedFd,
}

impl ChildProgram {
    /// Starts a program.
    pub fn start(mut call: Command) -> Result<Self> {
        let child = {
            // Locked: it must not be reaped between its start and its entry here.
            let mut own = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
            let child = call.spawn()?;
            own.push(Pid::from_child(&child));
            child
        };
        let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
        Ok(Self { child, ended })
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // It may have ended meanwhile.
        let _ = rustix::process::pidfd_send_signal(&self.ended, signal);
    }

    /// Asks it to end, and ends it if it does not.
    pub fn end(&self) {
        self.signal(Signal::TERM);
        if !self.ends_within(Some(END_PATIENCE)) {
            self.signal(Signal::KILL);
        }
    }

    /// Waits until it has ended, and leaves its status for [`ChildProgram::wait`].
    pub fn await_end(&self) {
        while !self.ends_within(None) {}
    }

    fn ends_within(&self, time: Option<Duration>) -> bool {
        let mut fds = [PollFd::new(&self.ended, PollFlags::IN)];
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        matches!(poll(&mut fds, time.as_ref()), Ok(1))
    }
}

/// Makes this process the parent of all that its programs leave behind, so that it can be found.
pub fn adopt() -> Result<()> {
    set_child_subreaper(Some(getpid())).context("adopting what programs leave behind")
}

/// Starts `command`, a shell command, on the far side, and waits until something listens there.
///
/// Its output goes to stderr, because stdout is CMD's; or nowhere if it is `silent`, because who
/// reads our streams to their end must not wait for it.
///
/// # Errors
/// It does not listen in time, or [`EndedEarly`].
pub fn serve(
    launcher: &Launcher,
    wan: &Wan,
    (command, silent): (&str, bool),
    events: &Receiver<EndEvent>,
) -> Result<ChildProgram> {
    let words = ["/bin/sh", "-c", command].map(Into::into);
    let mut call = enter::call(launcher, wan, PathSide::Far, &words)?;
    // The terminal's signals are for CMD.
    call.stdin(Stdio::null()).process_group(0);
    if silent {
        call.stdout(Stdio::null()).stderr(Stdio::null());
    } else {
        call.stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    }
    let mut server = ChildProgram::start(call).context("the server")?;
    let clock = PathClock::start();
    let mut ports = ServerPorts::default();
    loop {
        match events.try_recv() {
            Ok(EndEvent::Signal { number, .. }) => return Err(EndedEarly(number).into()),
            Ok(EndEvent::Down) => return Err(EndedEarly(SIGTERM).into()),
            Ok(EndEvent::Ended) | Err(_) => {}
        }
        if server.ends_within(Some(LOOK_AGAIN)) {
            bail!("the server ended before CMD began: {}", server.wait()?);
        }
        let [tcp, udp] = wan.namespace(PathSide::Far).within(who_listens)?;
        if ports.are_all(clock.now_ns(), tcp, udp) {
            return Ok(server);
        }
        if clock.now_ns() > START_PATIENCE.as_nanos() as u64 {
            bail!("the server did not listen within {} s", START_PATIENCE.as_secs());
        }
    }
}

/// What a server has that is about to listen.
#[derive(Default)]
struct ServerPorts {
    /// Since when it has ports of UDP alone.
    udp_since_ns: Option<u64>,
}

impl ServerPorts {
    /// Whether a server has all its ports that has some of TCP or UDP at `now_ns`.
    fn are_all(&mut self, now_ns: u64, tcp: bool, udp: bool) -> bool {
        let since_ns = udp.then(|| self.udp_since_ns.unwrap_or(now_ns));
        self.udp_since_ns = since_ns;
        let is_alone = |since_ns| now_ns - since_ns >= UDP_ALONE.as_nanos() as u64;
        tcp || since_ns.is_some_and(is_alone)
    }
}

/// Whether a TCP socket listens, and whether a UDP socket has a port, in this thread's namespace.
fn who_listens() -> [bool; 2] {
    let lines = |name: &str| {
        let text = fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default();
        text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
    };
    let listening = |line: &String| line.split_whitespace().nth(3) == Some("0A");
    let tcp = ["tcp", "tcp6"].iter().any(|name| lines(name).iter().any(listening));
    let udp = ["udp", "udp6"].iter().any(|name| !lines(name).is_empty());
    [tcp, udp]
}

/// Ends `server` by SIGTERM, then kills what remains: processes that this one has adopted and those
/// that others have started on either side.
pub fn sweep(server: Option<ChildProgram>, wan: &Wan) {
    if let Some(mut server) = server {
        server.end();
        let _ = server.wait();
    }
    for _ in 0..SWEEPS_MAX {
        let children = children();
        let inhabitants = inhabitants(wan);
        if children.is_empty() && inhabitants.is_empty() {
            return;
        }
        for process in children.iter().chain(&inhabitants) {
            let _ = kill_process(*process, Signal::KILL);
        }
        for child in children {
            let _ = waitpid(Some(child), WaitOptions::empty());
        }
    }
}

/// The processes on either side of `wan`, whoever started them.
fn inhabitants(wan: &Wan) -> Vec<Pid> {
    let sides = [PathSide::Near, PathSide::Far]
        .map(|side| fs::read_link(format!("/proc/self/fd/{}", wan.namespace(side).number())).ok());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lives_there = |path: &Path| {
        let home = fs::read_link(path.join("ns/net")).ok();
        // A zombie has no namespace.
        home.is_some() && sides.contains(&home)
    };
    let numbers = processes.filter(|entry| lives_there(&entry.path()));
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter_map(Pid::from_raw).filter(|pid| *pid != getpid()).collect()
}

/// Reaps adopted processes that have ended. Those that this process has started are waited for by
/// pid.
pub fn bury_orphans() {
    let own = STARTED.lock().unwrap_or_else(PoisonError::into_inner);
    for child in children().into_iter().filter(|child| !own.contains(child)) {
        let _ = waitpid(Some(child), WaitOptions::NOHANG);
    }
}

fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers = |list: String| {
        list.split_whitespace().filter_map(|number| number.parse().ok()).collect::<Vec<i32>>()
    };
    lists.flat_map(numbers).filter_map(Pid::from_raw).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_with_a_port_of_udp_may_be_about_to_listen_to_tcp() {
        let mut ports = ServerPorts::default();
        let alone_ns = UDP_ALONE.as_nanos() as u64;
        assert!(!ports.are_all(0, false, false) && !ports.are_all(5, false, true));
        assert!(!ports.are_all(4 + alone_ns, false, true));
        assert!(ports.are_all(4 + alone_ns, true, true) && ports.are_all(0, true, false));
        // One that serves UDP alone is not waited for without end, from when it has its port.
        assert!(!ports.are_all(alone_ns, false, true));
        assert!(ports.are_all(2 * alone_ns, false, true));
    }
}
