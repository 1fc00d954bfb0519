//! CMD as a child of this process, which passes signals and the exit status on.
//!
//! The child is as CMD would be if this process had become it: the same signal mask, dispositions
//! and streams. It is killed if this process is killed, and is sent the signals that come for it.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::mem;
use std::ptr;

use super::exec;

/// Signals that a fault of this process raises.
const OF_FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// The running child.
pub struct Child {
    id: libc::pid_t,
    awaited: libc::sigset_t,
}

/// End of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// Exit status.
    Status(u8),
    /// Killed by this signal.
    Signal(libc::c_int),
}

/// Starts `command`, found along `PATH`, with exactly this environment. From now on signals for
/// this process wait for [`Child::wait`].
///
/// # Errors
/// It cannot be executed, or there can be no further process.
pub fn spawn(command: &[OsString], environment: &[(OsString, OsString)]) -> io::Result<Child> {
    let awaited = awaited();
    let before = set_mask(libc::SIG_BLOCK, &awaited);
    // With SIGCHLD ignored the kernel discards the exit status.
    // SAFETY: a disposition that is no function.
    let on_child = unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
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
        unsafe { libc::signal(libc::SIGCHLD, on_child) };
        set_mask(libc::SIG_SETMASK, &before);
        let error = match die_with(parent) {
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
    let child = Child { id, awaited };
    match reader.read_exact(&mut code) {
        // `exec` closed the other end.
        Err(_) => Ok(child),
        Ok(()) => {
            child.reap(0);
            Err(io::Error::from_raw_os_error(i32::from_ne_bytes(code)))
        }
    }
}

/// Has the kernel kill this process with its parent; whether that still lives.
fn die_with(parent: libc::pid_t) -> bool {
    // SAFETY: takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::getppid() == parent }
}

impl Child {
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
            match signal {
                libc::SIGCHLD => {
                    if let Some(end) = self.look()? {
                        return Ok(end);
                    }
                }
                // What a terminal sends, it sends to the child as well.
                signal if signal > 0 && info.si_code != libc::SI_KERNEL => {
                    // SAFETY: takes numbers; the child is not reaped yet.
                    unsafe { libc::kill(self.id, signal) };
                }
                _ => {}
            }
        }
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
