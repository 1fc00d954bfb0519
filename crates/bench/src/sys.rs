//! The system calls that the standard library does not have: what a process cost, waiting for
//! several with a deadline, and what must be set between `fork` and `exec`.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is left of a process.
#[derive(Clone, Copy, Debug)]
pub struct Reaped {
    /// How it ended.
    pub status: ExitStatus,
    /// The processor time it used, its own and the kernel's for it.
    pub cpu: Duration,
}

/// Makes `command` start a process that dies with this thread and runs on `cpu` only.
pub fn tie_down(command: &mut Command, cpu: Option<usize>) {
    let set = cpu.map(cpu_set);
    let tie = move || {
        // SAFETY: prctl with these arguments touches no memory of ours.
        let tied = unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        check(tied)?;
        let Some(set) = &set else { return Ok(()) };
        // SAFETY: the set is a valid one, of the size that is given.
        let pinned = unsafe { libc::sched_setaffinity(0, mem::size_of_val(set), set) };
        check(pinned)
    };
    // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(tie) };
}

fn cpu_set(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: a cpu_set_t is an array of integers; all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: CPU_SET checks that the index is inside the set.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}

/// A descriptor that becomes readable when the process `pid` ends.
pub fn pidfd(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    check(fd)?;
    // SAFETY: the kernel has just given us this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Octets that a stream has been given to send and its peer has not acknowledged.
pub fn unacknowledged(stream: BorrowedFd<'_>) -> io::Result<u64> {
    let mut octets: libc::c_int = 0;
    // SAFETY: the call writes one int, which outlives it.
    check(unsafe { libc::ioctl(stream.as_raw_fd(), libc::TIOCOUTQ, &raw mut octets) })?;
    Ok(u64::try_from(octets).unwrap_or(0))
}

/// Has a stream reset when it is closed, whatever it has not sent.
pub fn reset_on_close(stream: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (fd, len) = (stream.as_raw_fd(), size_of::<libc::linger>() as libc::socklen_t);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_LINGER);
    // SAFETY: the option's value outlives the call, and its length is given.
    check(unsafe { libc::setsockopt(fd, level, name, (&raw const linger).cast(), len) })
}

/// Waits until one of `fds` is readable, a signal comes or `timeout` is over.
pub fn wait_readable(fds: &[BorrowedFd<'_>], timeout: Duration) -> io::Result<()> {
    let entry =
        |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = fds.iter().map(entry).collect();
    // Rounded up, so that a caller that waits for a deadline does not spin before it.
    let millis = i32::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
    let count = polled.len() as libc::nfds_t;
    // SAFETY: the array has `count` entries and lives until the call returns.
    let ready = unsafe { libc::poll(polled.as_mut_ptr(), count, millis) };
    match check(ready) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
        other => other,
    }
}

/// Collects the process `pid` if it has ended. It must be a child that nobody else waits for.
pub fn reap(pid: u32) -> io::Result<Option<Reaped>> {
    let mut status = 0;
    // SAFETY: a rusage is made of integers; all zero is one.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: both pointers are to live variables of the right type.
    let found = unsafe { libc::wait4(pid as libc::pid_t, &mut status, libc::WNOHANG, &mut usage) };
    check(found)?;
    let cpu = time(usage.ru_utime) + time(usage.ru_stime);
    Ok((found != 0).then(|| Reaped { status: ExitStatus::from_raw(status), cpu }))
}

fn time(value: libc::timeval) -> Duration {
    Duration::new(value.tv_sec as u64, value.tv_usec as u32 * 1000)
}

/// The processor time of the children that were waited for, and of theirs.
pub fn children_cpu() -> Duration {
    // SAFETY: a rusage is made of integers; all zero is one.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a live variable of the right type.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    time(usage.ru_utime) + time(usage.ru_stime)
}

/// Makes a FIFO that only this user may use.
pub fn make_fifo(path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that lives until the call returns.
    check(unsafe { libc::mkfifo(path.as_ptr(), 0o600) })
}

/// Sends a signal to a child that has not been collected yet.
pub fn send_signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes two integers.
    check(unsafe { libc::kill(pid as libc::pid_t, signal) })
}

/// Kills a child that leads a group, with its group.
pub fn kill_group(pid: u32) -> io::Result<()> {
    // SAFETY: kill takes two integers.
    check(unsafe { libc::kill(-(pid as libc::pid_t), libc::SIGKILL) })
}

/// Chooses the congestion control of a TCP socket. Not every kernel lets everybody have each.
pub fn set_congestion(socket: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let (level, option) = (libc::IPPROTO_TCP, libc::TCP_CONGESTION);
    let length = name.len() as libc::socklen_t;
    // SAFETY: the kernel reads `length` octets of `name` and keeps no pointer.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, option, name.as_ptr().cast(), length)
    };
    check(set)
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note_interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// From now on Ctrl-C and a request to end are noted instead of being obeyed at once, so that what
/// was started is stopped and what was written is removed.
pub fn catch_interrupts() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: a sigaction of zeroes is valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        action.sa_sigaction = note_interrupt as *const () as usize;
        // SAFETY: the handler only stores to an atomic; the old action is not asked for.
        check(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) })?;
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

    use super::*;

    #[test]
    fn a_process_is_waited_for_and_accounted() {
        let mut command = Command::new("sh");
        command.args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 3"]);
        tie_down(&mut command, Some(0));
        let pid = command.spawn().unwrap().id();
        let fd = pidfd(pid).unwrap();
        let mut reaped = None;
        for _ in 0..100 {
            wait_readable(&[fd.as_fd()], Duration::from_secs(1)).unwrap();
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
