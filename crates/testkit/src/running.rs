//! A program that runs, and what is left of it.

use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

use crate::machine;

/// How long anything may take. Generous: on a busy machine polling programs wait for each other,
/// and other tests run at the same time.
pub const LIMIT: Duration = Duration::from_secs(180);

/// How often to look for what nothing announces.
const LOOK: Duration = Duration::from_millis(20);

/// What time it is: the only place that asks.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// A program that runs. It is killed with its children when this is dropped.
#[derive(Debug)]
pub struct Running {
    name: String,
    child: Child,
    started: Instant,
    /// Readable when it has ended.
    end: OwnedFd,
    stdout: File,
    stderr: File,
}

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    name: String,
    /// How.
    pub status: ExitStatus,
    /// What it wrote.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
    /// How long it ran, or until somebody looked.
    pub lasted: Duration,
}

impl Running {
    pub(crate) fn new(name: String, child: Child, stdout: File, stderr: File) -> Self {
        let end = pidfd_open(pid(&child), PidfdFlags::empty()).expect("a child has a pidfd");
        Self { name, child, started: now(), end, stdout, stderr }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until somebody listens on `port`.
    ///
    /// # Panics
    /// When it ends before that, or takes too long.
    pub fn listening(self, port: u16) -> Self {
        self.until(&format!("listened on port {port}"), |_| machine::listens(port))
    }

    /// Waits until it has written `text` to stderr, or ends; whether it wrote it.
    pub(crate) fn says_or_ends(&self, text: &str) -> bool {
        let deadline = now() + LIMIT;
        while !contents(&self.stderr).contains(text) {
            if self.ends_within(LOOK) || now() >= deadline {
                return false;
            }
        }
        true
    }

    /// Waits until it has written `text` to stdout.
    ///
    /// # Panics
    /// When it ends before that, or takes too long.
    pub fn printed(self, text: &str) -> Self {
        self.until(&format!("printed {text:?}"), |this| this.stdout().contains(text))
    }

    /// Waits until it has written `text` to stderr.
    ///
    /// # Panics
    /// When it ends before that, or takes too long.
    pub fn complained(self, text: &str) -> Self {
        self.until(&format!("complained {text:?}"), |this| this.stderr().contains(text))
    }

    /// Waits until it has written a line to stderr that begins with `start`; gives the rest of that
    /// as well.
    ///
    /// # Panics
    /// When it ends before that, or takes too long.
    pub fn line(self, start: &str) -> (Self, String) {
        let rest = |this: &Self| {
            let said = this.stderr();
            let mut lines = said.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            lines.find_map(|line| Some(line.strip_prefix(start)?.trim().to_owned()))
        };
        let this = self.until(&format!("said {start:?}"), |this| rest(this).is_some());
        let rest = rest(&this).unwrap_or_default();
        (this, rest)
    }

    /// Waits until `happened`.
    ///
    /// # Panics
    /// When it ends before that, with the children that it left in its group, or takes too long.
    pub fn until(self, what: &str, happened: impl Fn(&Self) -> bool) -> Self {
        let deadline = now() + LIMIT;
        while !happened(&self) {
            let ended = self.ends_within(LOOK) && !self.is_in_group();
            if ended && !happened(&self) {
                panic!("never {what}: {}", self.wait());
            }
            if now() >= deadline {
                panic!("has not {what} in time: {}", self.end());
            }
        }
        self
    }

    /// What it has written so far.
    pub fn stdout(&self) -> String {
        contents(&self.stdout)
    }

    /// What it has complained about so far.
    pub fn stderr(&self) -> String {
        contents(&self.stderr)
    }

    /// Whether it ends before `limit` is over.
    pub fn ends_within(&self, limit: Duration) -> bool {
        let limit = Timespec::try_from(limit).expect("a limit of this century");
        let mut fds = [PollFd::new(&self.end, PollFlags::IN)];
        poll(&mut fds, Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When that does not come in time.
    pub fn wait(self) -> Ended {
        let deadline = now() + LIMIT;
        // A signal may interrupt the wait.
        while !self.ends_within(deadline.saturating_duration_since(now())) {
            if now() >= deadline {
                panic!("has not ended after {LIMIT:?}: {}", self.end());
            }
        }
        self.end()
    }

    /// Waits for its end, and for that of the children that it left in its group.
    ///
    /// # Panics
    /// When that does not come in time.
    pub fn wait_group(self) -> Ended {
        let deadline = now() + LIMIT;
        while self.is_in_group() {
            assert!(now() < deadline, "has not ended after {LIMIT:?}: {}", self.end());
            self.ends_within(LOOK);
        }
        self.wait()
    }

    /// Whether a process of its group has not ended.
    fn is_in_group(&self) -> bool {
        let group = self.id().to_string();
        let files = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let stats = files.filter_map(|file| std::fs::read_to_string(file.path().join("stat")).ok());
        // Behind the name in parentheses: the state, the parent, the group.
        stats.filter_map(|stat| Some(stat.rsplit_once(')')?.1.to_owned())).any(|stat| {
            let fields: Vec<&str> = stat.split_whitespace().take(3).collect();
            fields.len() == 3 && fields[0] != "Z" && fields[2] == group
        })
    }

    /// Ends it, if it has not ended by itself.
    pub fn end(mut self) -> Ended {
        if !self.ends_within(Duration::ZERO) {
            self.kill();
        }
        let status = self.child.wait().expect("a child can be waited for");
        let (stdout, stderr) = (contents(&self.stdout), contents(&self.stderr));
        let lasted = now().duration_since(self.started);
        Ended { name: self.name.clone(), status, stdout, stderr, lasted }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        // It may just have ended.
        let _ = kill_process(pid(&self.child), signal);
    }

    /// Sends a signal to it and to the children that are in its group.
    pub fn signal_group(&self, signal: Signal) {
        // They may just have ended.
        let _ = kill_process_group(pid(&self.child), signal);
    }

    /// Ends it and its children at once.
    fn kill(&self) {
        // Some programs give their children groups of their own.
        let children = descendants(self.id());
        // There may be none left, of either kind.
        self.signal_group(Signal::KILL);
        for child in children.into_iter().filter_map(|id| Pid::from_raw(id as i32)) {
            let _ = kill_process(child, Signal::KILL);
        }
    }

    /// The processor time that it has used, in the kernel's ticks.
    pub fn cpu_ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.id()));
        let stat = stat.expect("a process that runs has a stat file");
        // The name in parentheses may contain anything; utime and stime are 14 and 15 of all.
        let fields = stat.rsplit(')').next().expect("a name in parentheses").split_whitespace();
        fields.skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    /// This, if it succeeded.
    ///
    /// # Panics
    /// With everything it wrote, if it failed.
    pub fn success(self) -> Self {
        assert!(self.status.success(), "{self}");
        self
    }

    /// This, if it wrote `text` to stdout.
    ///
    /// # Panics
    /// With everything it wrote, if not.
    pub fn said(self, text: &str) -> Self {
        assert!(self.stdout.contains(text), "no {text:?} from {self}");
        self
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, status, stdout, stderr, .. } = self;
        write!(f, "{name}: {status}\n--- stdout\n{stdout}\n--- stderr\n{stderr}")
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// The children of a process, and theirs.
fn descendants(id: u32) -> Vec<u32> {
    let tasks = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children"));
    let children = tasks.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    children.flat_map(|child| [vec![child], descendants(child)].concat()).collect()
}

/// All of a file that somebody else appends to.
fn contents(file: &File) -> String {
    let mut bytes = vec![0; file.metadata().map_or(0, |data| data.len() as usize)];
    // It may only grow meanwhile.
    file.read_exact_at(&mut bytes, 0).expect("a file can be read");
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lab;

    #[test]
    fn children_that_went_their_own_way_are_gone_too() {
        let Some(lab) = Lab::with(&["sh", "setsid", "sleep"]) else { return };
        let line = "setsid sh -c 'echo $$; exec sleep 1000' & wait";
        let shell = lab.program("sh").on_its_own().arg("-c").arg(line).start().printed("\n");
        let child = Pid::from_raw(shell.stdout().trim().parse().unwrap()).unwrap();
        let end = pidfd_open(child, PidfdFlags::empty()).unwrap();
        shell.end();
        let limit = Timespec::try_from(LIMIT).unwrap();
        assert_eq!(poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&limit)), Ok(1));
    }

    #[test]
    fn what_a_program_wrote_and_how_it_ended_is_known() {
        let Some(lab) = Lab::with(&["sh"]) else { return };
        let sh = |line: &str| lab.program("sh").on_its_own().arg("-c").arg(line);
        let shell = sh("echo out; echo err >&2; exit 3").run();
        assert_eq!((shell.stdout.as_str(), shell.stderr.as_str()), ("out\n", "err\n"));
        assert_eq!(shell.status.code(), Some(3));
        let sleeper = sh("echo asleep; exec sleep 1000").start();
        let sleeper = sleeper.printed("asleep");
        sleeper.signal(Signal::TERM);
        assert_eq!(sleeper.wait().status.code(), None);
    }
}
