//! CMD as a child of this process, which passes signals and the exit status on.
//!
//! The child is as CMD would be if this process had become it: the same signal mask, dispositions
//! and streams. It is killed if this process is killed, and is sent the signals that come for it.

use std::cell::Cell;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

use super::exec;

/// Signals that a fault of this process raises.
const OF_FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Signals by which somebody ends a program.
const OF_ENDS: [libc::c_int; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

/// The running child.
pub struct Child {
    id: libc::pid_t,
    awaited: libc::sigset_t,
    group: bool,
    /// The first signal by which somebody wanted to end this process.
    ended_by: Cell<Option<libc::c_int>>,
}

/// What a child is to have as this process had it before its first child.
struct SignalState {
    mask: libc::sigset_t,
    /// Disposition of SIGCHLD.
    on_child: libc::sighandler_t,
}

/// End of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// Exit status.
    Status(u8),
    /// Killed by this signal.
    Signal(libc::c_int),
}

/// How a child is started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpawnManner {
    /// It leads a process group of its own, so that [`Child::end`] reaches what it has started.
    pub group: bool,
    /// What it writes is discarded.
    pub silent: bool,
}

/// Starts `command`, found along `PATH`, with exactly this environment. From now on signals for
/// this process wait for [`Child::wait`].
///
/// # Errors
/// It cannot be executed, or there can be no further process.
pub fn spawn(command: &[OsString], environment: &[(OsString, OsString)]) -> io::Result<Child> {
    spawn_in(command, environment, SpawnManner::default())
}

/// The same, in a certain manner.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_in(
    command: &[OsString],
    environment: &[(OsString, OsString)],
    manner: SpawnManner,
) -> io::Result<Child> {
    let awaited = awaited();
    let before = take_signals(&awaited);
    let (mut reader, mut writer) = io::pipe()?;
    // SAFETY: takes nothing, and cannot fail.
    let parent = unsafe { libc::getpid() };
    // SAFETY: this process has one thread, so that its child may do what any process may.
    let id = unsafe { libc::fork() };
    if id < 0 {
        return Err(io::Error::last_os_error());
    }
    if id == 0 {
        // SAFETY: as found above.
        unsafe { libc::signal(libc::SIGCHLD, before.on_child) };
        set_mask(libc::SIG_SETMASK, &before.mask);
        let error = match die_with(parent) && prepare(manner) {
            true => exec(command, environment),
            false => io::Error::from_raw_os_error(libc::ECHILD),
        };
        let code = error.raw_os_error().unwrap_or(libc::EINVAL);
        let _ = writer.write_all(&code.to_ne_bytes());
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(libc::EXIT_FAILURE) };
    }
    drop(writer);
    let mut code = [0; 4];
    let child = Child { id, awaited, group: manner.group, ended_by: Cell::new(None) };
    match reader.read_exact(&mut code) {
        // `exec` closed the other end.
        Err(_) => Ok(child),
        Ok(()) => {
            child.reap(0);
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
        }
    }
}

/// Has signals wait for [`Child::wait`] from now on; how things were before the first child.
fn take_signals(awaited: &libc::sigset_t) -> &'static SignalState {
    static BEFORE: OnceLock<SignalState> = OnceLock::new();
    BEFORE.get_or_init(|| {
        let mask = set_mask(libc::SIG_BLOCK, awaited);
        // With SIGCHLD ignored the kernel discards the exit status.
        // SAFETY: a disposition that is no function.
        let on_child = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
        SignalState { mask, on_child }
    })
}

/// Has the kernel kill this process with its parent; whether that still lives.
fn die_with(parent: libc::pid_t) -> bool {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::getppid() == parent }
}

/// Whether the child is as `manner` says now.
fn prepare(manner: SpawnManner) -> bool {
    // SAFETY: takes numbers.
    let grouped = !manner.group || unsafe { libc::setpgid(0, 0) } == 0;
    grouped && (!manner.silent || silence().is_ok())
}

/// What this process writes is discarded from now on.
fn silence() -> io::Result<()> {
    let nothing = OpenOptions::new().write(true).open("/dev/null")?;
    for fd in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: takes numbers; both descriptors are this process's own.
        if unsafe { libc::dup2(nothing.as_raw_fd(), fd) } < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

impl Child {
    /// Waits as [`Child::wait`] does, for so long at most; `None` if the child goes on.
    ///
    /// # Errors
    /// As [`Child::wait`].
    pub fn wait_for(&self, time: Duration) -> io::Result<Option<ChildExit>> {
        let limit = libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        };
        // SAFETY: an all-zero structure is a place for the answer.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        // SAFETY: the set and the limit are initialised, and `info` a live local.
        let signal = unsafe { libc::sigtimedwait(&self.awaited, &mut info, &limit) };
        self.handle(signal, &info)
    }

    /// Kills the child, and its process group if it leads one, and waits for its end.
    pub fn end(&self) {
        let target = if self.group { -self.id } else { self.id };
        // SAFETY: takes numbers; the child is not reaped yet.
        unsafe { libc::kill(target, libc::SIGKILL) };
        self.reap(0);
    }

    /// Kills what is left of the process group that the child led, after its end.
    pub fn end_rest(&self) {
        if self.group {
            // SAFETY: takes numbers. The group's number is in use as long as it has members.
            unsafe { libc::kill(-self.id, libc::SIGKILL) };
        }
    }

    /// The first signal since its start by which somebody wanted to end this process.
    pub fn ended_by(&self) -> Option<libc::c_int> {
        self.ended_by.get()
    }

    /// Passes signals on until the child has ended.
    ///
    /// # Errors
    /// There is no such child.
    pub fn wait(&self) -> io::Result<ChildExit> {
        loop {
            // SAFETY: an all-zero structure is a place for the answer.
            let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
            // SAFETY: the set is initialised, and `info` a live local.
            let signal = unsafe { libc::sigwaitinfo(&self.awaited, &mut info) };
            if let Some(end) = self.handle(signal, &info)? {
                return Ok(end);
            }
        }
    }

    /// Acts on what a wait for signals gave; the end of the child, if that is what it was.
    fn handle(&self, signal: libc::c_int, info: &libc::siginfo_t) -> io::Result<Option<ChildExit>> {
        if OF_ENDS.contains(&signal) && self.ended_by.get().is_none() && !is_ignored(signal) {
            self.ended_by.set(Some(signal));
        }
        match signal {
            libc::SIGCHLD => return self.look(),
            // What a terminal sends, it sends to the child as well, unless that has a group of its
            // own.
            signal if signal > 0 && (self.group || info.si_code != libc::SI_KERNEL) => {
                let target = if self.group { -self.id } else { self.id };
                // SAFETY: takes numbers; the child is not reaped yet.
                unsafe { libc::kill(target, signal) };
            }
            _ => {}
        }
        Ok(None)
    }

    /// How the child ended, if it has. With one that is stopped this process stops.
    fn look(&self) -> io::Result<Option<ChildExit>> {
        match self.reap(libc::WNOHANG | libc::WUNTRACED) {
            None => Err(io::Error::from_raw_os_error(libc::ECHILD)),
            Some((0, _)) => Ok(None),
            Some((_, status)) if libc::WIFSTOPPED(status) => {
                // SAFETY: takes a number; comes back when somebody continues this process.
                unsafe { libc::raise(libc::SIGSTOP) };
                Ok(None)
            }
            Some((_, status)) if libc::WIFSIGNALED(status) => {
                Ok(Some(ChildExit::Signal(libc::WTERMSIG(status))))
            }
            Some((_, status)) => Ok(Some(ChildExit::Status(libc::WEXITSTATUS(status) as u8))),
        }
    }

    fn reap(&self, options: libc::c_int) -> Option<(libc::pid_t, libc::c_int)> {
        let mut status = 0;
        // SAFETY: `status` is a live local.
        let id = unsafe { libc::waitpid(self.id, &mut status, options) };
        (id >= 0).then_some((id, status))
    }
}

/// Whether this process is to ignore `signal`, as with `nohup`.
pub(super) fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: an all-zero action is a place for the answer.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: `action` is a live local, and nothing is set.
    let asked = unsafe { libc::sigaction(signal, ptr::null(), &mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Ends this process as `signal` ended the child, without a second dump of memory. Comes back
/// only if that signal does not end a process.
pub fn die_of(signal: libc::c_int) {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `none` is a live local.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &none) };
    // SAFETY: a disposition that is no function.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // SAFETY: takes a number.
    unsafe { libc::raise(signal) };
    // SAFETY: an all-zero set is a place for sigemptyset to fill.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a live local.
    unsafe { libc::sigemptyset(&mut set) };
    set_mask(libc::SIG_SETMASK, &set);
}

/// Every signal that somebody may send.
fn awaited() -> libc::sigset_t {
    // SAFETY: an all-zero set is a place for sigfillset to fill.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a live local.
    unsafe { libc::sigfillset(&mut set) };
    for signal in OF_FAULTS {
        // SAFETY: `set` is a live local.
        unsafe { libc::sigdelset(&mut set, signal) };
    }
    set
}

fn set_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    // SAFETY: an all-zero set is a place for the old one.
    let mut before: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: both are initialised and live as long as the call.
    unsafe { libc::sigprocmask(how, ptr::from_ref(set), &mut before) };
    before
}
