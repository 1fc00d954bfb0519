//! Child processes: started, watched, reaped, and never left running.
//!
//! Invariant: whatever is started is gone when its [`BenchProcess`] is: it ended and was collected,
//! or it was asked to end and then killed. Order: [`Spec::start`], then [`BenchProcess::wait`] or
//! [`BenchProcess::finish`].

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, pidfd_open,
    waitid,
};

use crate::sys::{self, Reaped};

/// Bytes of a failed program's output that are repeated.
const TAIL_LINES: usize = 12;
/// How long a program may take to end when it is asked to: more than `weft wan` gives its own.
const END_PATIENCE: Duration = Duration::from_secs(if cfg!(test) { 120 } else { 5 });

/// Command line and environment of a process.
#[derive(Clone, Debug)]
pub struct Spec {
    name: String,
    command: Vec<OsString>,
    environment: Vec<(&'static str, String)>,
    cpu: Option<usize>,
    dir: Option<PathBuf>,
}

impl Spec {
    /// The program `name`, found along `PATH`.
    pub fn new(name: &str) -> Self {
        let (name, command) = (name.to_owned(), vec![name.into()]);
        Self { name, command, environment: Vec::new(), cpu: None, dir: None }
    }

    /// The program at `path`.
    pub fn at(path: &Path) -> Self {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Self { command: vec![path.into()], ..Self::new(&name) }
    }

    /// More arguments, separated by spaces.
    pub fn args(mut self, line: &str) -> Self {
        self.command.extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// One more argument, spaces and all.
    pub fn arg(mut self, word: &str) -> Self {
        self.command.push(word.into());
        self
    }

    /// A variable of its environment.
    pub fn env(mut self, name: &'static str, value: &str) -> Self {
        self.environment.push((name, value.to_owned()));
        self
    }

    /// The same, run by `weft run`, which becomes it.
    pub fn under(mut self, weft: &Path) -> Self {
        self.command.splice(0..0, [weft.into(), "run".into(), "--".into()]);
        self
    }

    /// The same, its sockets carried by `weft run --sockets`.
    pub fn carried(mut self, weft: &Path) -> Self {
        self.command.splice(0..0, [weft.into(), "run".into(), "--sockets".into(), "--".into()]);
        self
    }

    /// The same, run by another program, whose arguments it follows.
    pub fn under_tool(mut self, line: &str) -> Self {
        self.command.splice(0..0, line.split_whitespace().map(OsString::from));
        self
    }

    /// The same as a command of a shell, on its CPU if it has one.
    pub fn shell(&self) -> String {
        let quoted = |word: &OsStr| format!("'{}'", word.to_string_lossy().replace('\'', r"'\''"));
        let set = |(name, value): &(&str, String)| quoted(format!("{name}={value}").as_ref());
        let settings: Vec<String> = self.environment.iter().map(set).collect();
        let env = if settings.is_empty() { None } else { Some(String::from("env")) };
        let place = self.cpu.map(|cpu| format!("taskset -c {cpu}"));
        let words = self.command.iter().map(|word| quoted(word));
        env.into_iter().chain(settings).chain(place).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// The same on one CPU.
    pub fn on(mut self, cpu: Option<usize>) -> Self {
        self.cpu = cpu;
        self
    }

    /// The same in a directory where it may leave files.
    pub fn within(mut self, dir: &Path) -> Self {
        self.dir = Some(dir.to_path_buf());
        self
    }

    /// Starts it with no stdin, its output kept for later.
    pub fn start(&self) -> Result<BenchProcess> {
        let (stdout, stderr) = (anonymous_file()?, anonymous_file()?);
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).stdin(Stdio::null());
        command.stdout(stdout.try_clone()?).stderr(stderr.try_clone()?);
        // Off, since in CI `weft run` would stay as the parent of what is measured.
        command.env("WEFT_STATS", "off");
        command.envs(self.environment.iter().map(|(name, value)| (*name, value)));
        if let Some(dir) = &self.dir {
            command.current_dir(dir);
        }
        // A process group of its own, so that it can be killed with its children.
        command.process_group(0);
        sys::tie_down(&mut command, self.cpu);
        let child = command.spawn().with_context(|| format!("starting {}", self.name))?;
        let pid = Pid::from_child(&child);
        let mut running = BenchProcess {
            name: self.name.clone(),
            pid,
            ended: None,
            reaped: None,
            stdout,
            stderr,
        };
        running.ended = Some(pidfd_open(pid, PidfdFlags::empty())?);
        Ok(running)
    }
}

/// A file without a name, so that nothing remains of it.
fn anonymous_file() -> Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("weft-bench-{}-{number}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let file = file.with_context(|| format!("cannot create {}", path.display()))?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// A process that has been started.
#[derive(Debug)]
pub struct BenchProcess {
    name: String,
    pid: Pid,
    /// Readable when the process has ended.
    ended: Option<OwnedFd>,
    reaped: Option<Reaped>,
    stdout: File,
    stderr: File,
}

/// A process that ended as it should.
#[derive(Clone, Debug)]
pub struct Finished {
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
    /// The CPU time that it used.
    pub cpu: Duration,
}

impl BenchProcess {
    /// Whether it has ended.
    pub fn has_ended(&mut self) -> Result<bool> {
        if self.reaped.is_none() {
            self.reaped = sys::reap(self.pid)?;
        }
        Ok(self.reaped.is_some())
    }

    /// A descriptor that becomes readable when it ends.
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        self.ended.as_ref().map(AsFd::as_fd)
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It has not ended at `deadline`, it failed, or the user interrupts.
    pub fn wait(mut self, deadline: Instant) -> Result<Finished> {
        while !self.has_ended()? {
            ensure!(!sys::interrupted(), "interrupted");
            let now = Instant::now();
            if now >= deadline {
                bail!("{} did not end in time{}", self.name, self.tail());
            }
            sys::wait_readable(self.end(), deadline - now)?;
        }
        self.check()?;
        self.finished()
    }

    /// Asks it to end with `signal`, for servers that never do by themselves, and waits.
    pub fn finish(mut self, signal: Signal, deadline: Instant) -> Result<Finished> {
        if self.has_ended()? {
            self.check()?;
            return self.finished();
        }
        kill_process(self.pid, signal)?;
        while !self.has_ended()? {
            let now = Instant::now();
            ensure!(now < deadline, "{} did not end when asked to", self.name);
            sys::wait_readable(self.end(), deadline - now)?;
        }
        self.finished()
    }

    /// An error if it has ended, and badly.
    pub fn check(&mut self) -> Result<()> {
        match self.reaped {
            Some(reaped) if !reaped.status.success() => {
                bail!("{} {}{}", self.name, how(reaped.status), self.tail())
            }
            _ => Ok(()),
        }
    }

    fn finished(&mut self) -> Result<Finished> {
        let cpu = self.reaped.context("it has ended")?.cpu;
        let stdout = contents(&self.stdout)?;
        Ok(Finished { stdout, stderr: contents(&self.stderr)?, cpu })
    }

    /// Tail of its output, for an error message.
    fn tail(&self) -> String {
        let mut said = contents(&self.stderr).unwrap_or_default();
        if said.trim().is_empty() {
            said = contents(&self.stdout).unwrap_or_default();
        }
        let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
        let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
        last.iter().map(|line| format!("\n    {line}")).collect()
    }

    /// Asks it to end, and waits for that without collecting it, so that its group keeps its
    /// number.
    fn ask_to_end(&self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let is_running = || matches!(waitid(WaitId::Pid(self.pid), options), Ok(None));
        let deadline = Instant::now() + END_PATIENCE;
        let _ = kill_process_group(self.pid, Signal::TERM);
        while is_running() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            let _ = sys::wait_readable(self.end(), left);
        }
    }
}

impl Drop for BenchProcess {
    fn drop(&mut self) {
        // Failing here would hide why we are here; the kernel kills it with us anyhow.
        if self.reaped.is_none() {
            // `weft wan` ends what runs on its far side, which is in none of our groups.
            self.ask_to_end();
        }
        while self.reaped.is_none() {
            let _ = kill_process_group(self.pid, Signal::KILL);
            let _ = sys::wait_readable(self.end(), Duration::from_millis(100));
            match sys::reap(self.pid) {
                Ok(reaped) => self.reaped = reaped,
                Err(_) => break,
            }
        }
    }
}

fn contents(mut file: &File) -> Result<String> {
    file.rewind()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn how(status: ExitStatus) -> String {
    match status.code() {
        Some(code) => format!("failed with status {code}"),
        None => format!("was ended by a signal ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn shell(line: &str) -> Spec {
        Spec::new("sh").arg("-c").arg(line)
    }

    #[test]
    fn output_and_cost_come_back() {
        let finished = shell("echo out; echo err >&2").start().unwrap().wait(soon()).unwrap();
        assert_eq!(finished.stdout, "out\n");
        assert_eq!(finished.stderr, "err\n");
    }

    #[test]
    fn a_failure_says_what_the_program_said() {
        let error = shell("echo because >&2; exit 3").start().unwrap().wait(soon()).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("status 3") && error.contains("because"), "{error}");
        let error = shell("kill -9 $$").start().unwrap().wait(soon()).unwrap_err();
        assert!(error.to_string().contains("signal"));
    }

    #[test]
    fn who_does_not_end_is_killed() {
        let running = shell("echo waiting; exec sleep 1000").start().unwrap();
        let pid = running.pid;
        let error = running.wait(Instant::now() + Duration::from_millis(50)).unwrap_err();
        assert!(error.to_string().contains("did not end in time"), "{error}");
        assert!(!Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
    }

    #[test]
    fn children_of_a_killed_program_are_killed() {
        let port = crate::ports::free().unwrap();
        let server = shell(&format!("iperf3 -s -p {port} & wait"));
        let running = server.start().unwrap();
        let deadline = soon();
        while !crate::ports::is_listening(port).unwrap() {
            assert!(Instant::now() < deadline);
        }
        drop(running);
        while crate::ports::is_listening(port).unwrap() {
            assert!(Instant::now() < deadline);
        }
    }

    #[test]
    fn a_program_that_is_dropped_ends_what_it_has_started_elsewhere() {
        let port = crate::ports::free().unwrap();
        // As the server of `weft wan` is: in a session of its own.
        let line = format!("trap 'kill $!; wait; exit' TERM; setsid iperf3 -s -p {port} & wait");
        let mut running = shell(&line).start().unwrap();
        while !crate::ports::is_listening(port).unwrap() {
            assert!(!running.has_ended().unwrap(), "{}", running.tail());
        }
        drop(running);
        assert!(!crate::ports::is_listening(port).unwrap());
    }

    #[test]
    fn servers_end_when_asked() {
        let running = shell("exec sleep 1000").start().unwrap();
        assert!(running.finish(Signal::TERM, soon()).is_ok());
    }

    #[test]
    fn a_shell_runs_the_same() {
        let spec = Spec::new("printenv").arg("IT'S").env("IT'S", "a b");
        assert_eq!(
            spec.shell(),
            r"'env' 'IT'\''S=a b' 'printenv' 'IT'\''S'".replace("'env'", "env")
        );
        assert_eq!(shell(&spec.shell()).start().unwrap().wait(soon()).unwrap().stdout, "a b\n");
        let placed = Spec::new("grep").args("Cpus_allowed_list /proc/self/status").on(Some(0));
        let said = shell(&placed.shell()).start().unwrap().wait(soon()).unwrap().stdout;
        assert_eq!(said.trim(), "Cpus_allowed_list:\t0");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Spec::new("no-such-program").start().unwrap_err();
        assert!(error.to_string().contains("no-such-program"));
    }
}
