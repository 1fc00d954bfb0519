//! What neither the standard library nor rustix has: what a process cost, what must be set between
//! `fork` and `exec`, and how much a stream has not delivered.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};

/// What is left of a process.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    /// How it ended.
    pub status: ExitStatus,
    /// The CPU time it used, its own and the kernel's for it.
    pub cpu: Duration,
}

/// Makes `command` start a process that dies with this thread and runs on `cpu` only.
pub fn tie_down(command: &mut Command, cpu: Option<usize>) {
    let tie = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if let Some(cpu) = cpu {
            let mut set = CpuSet::new();
            set.set(cpu);
            sched_setaffinity(None, &set)?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(tie) };
}

/// Bytes that a stream has been given to send and its peer has not acknowledged.
pub fn unacknowledged(stream: BorrowedFd<'_>) -> io::Result<u64> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives it.
    check(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) })?;
    Ok(u64::try_from(bytes).unwrap_or(0))
}

/// Waits until one of `fds` is readable, a signal comes or `timeout` is over.
pub fn wait_readable<'a>(
    fds: impl IntoIterator<Item = BorrowedFd<'a>>,
    timeout: Duration,
) -> io::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        fds.into_iter().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Collects the process `pid` if it has ended. It must be a child that nobody else waits for.
pub fn reap(pid: Pid) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: a rusage is made of integers; all zero is one.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    let pid = pid.as_raw_nonzero().get();
    // SAFETY: both pointers are to live variables of the right type.
    let found = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut usage) };
    check(found)?;
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok((found != 0).then(|| Reaped { status: ExitStatus::from_raw(status), cpu }))
}

fn time(value: libc::timeval) -> Duration {
    Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000)
}

/// The CPU time of the children that were waited for, and of theirs.
pub fn children_cpu() -> Duration {
    // SAFETY: a rusage is made of integers; all zero is one.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live variable of the right type.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    time(usage.ru_utime) + time(usage.ru_stime)
}

static INTERRUPTED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// From now on Ctrl-C and a request to end are noted instead of being obeyed at once, so that what
/// was started is stopped and what was written is removed.
pub fn catch_interrupts() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&INTERRUPTED))?;
    }
    Ok(())
}

/// Whether somebody wants this to end.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::Relaxed)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::process::{PidfdFlags, pidfd_open};

    use super::*;

    #[test]
    fn a_process_is_waited_for_and_accounted() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3"]);
        tie_down(&mut command, Some(0));
        let pid = Pid::from_child(&command.spawn().unwrap());
        let fd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
        let mut reaped = None;
        for _ in 0..100 {
            wait_readable([fd.as_fd()], Duration::from_secs(1)).unwrap();
            reaped = reap(pid).unwrap();
            if reaped.is_some() {
                break;
            }
        }
        let reaped = reaped.expect("it ended");
        assert_eq!(reaped.status.code(), Some(3));
        assert!(reaped.cpu > Duration::ZERO);
        assert!(reap(pid).is_err(), "it is gone");
    }

    #[test]
    fn pinning_reaches_the_process() {
        let mut command = Command::new("grep");
        command.args(["Cpus_allowed_list", "/proc/self/status"]);
        tie_down(&mut command, Some(0));
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "Cpus_allowed_list:\t0");
    }

    #[test]
    fn an_impossible_processor_is_an_error() {
        let mut command = Command::new("true");
        tie_down(&mut command, Some(1023));
        assert!(command.spawn().is_err());
    }
}
