//! Writing to files of our own in the processes of others.
//!
//! A process whose files may not grow further (`RLIMIT_FSIZE`, `ulimit -f`) is not only refused the
//! write, but sent a signal, SIGXFSZ, that ends it. What it does about its own files is its
//! business; it must not end because of one of ours.
//!
//! Invariant: what the application has blocked, and what was pending for it before, is so after.
#![allow(unsafe_code)]

use std::io;
use std::mem;
use std::os::fd::RawFd;
use std::ptr;

use crate::sys;
use crate::thread::Uncancelled;

/// Does `write`, which writes to a file or gives it a length. Too large a one is the errno `EFBIG`
/// and no signal.
///
/// # Errors
/// Those of `write`.
pub fn writing<T>(write: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _uncancelled = Uncancelled::begin();
    let before = sys::blocked_signals();
    block_signal();
    // One that was not blocked would not have stayed pending.
    let was_pending = contains(&before) && contains(&pending_signals());
    let result = write();
    let signalled = result.as_ref().is_err_and(is_too_large);
    // Where a filter refuses to take it, it is to stay blocked.
    if !signalled || was_pending || take_signal() {
        sys::set_blocked_signals(&before);
    }
    result
}

/// Writes a line to a descriptor that is known by its number only, at once, so that the lines of
/// several threads and processes do not mix. Where that fails there is nobody to tell.
pub fn put_line(fd: RawFd, line: &[u8]) {
    let _ = writing(|| {
        // SAFETY: the buffer is `line`, alive and of this length.
        let octets = unsafe { libc::write(fd, line.as_ptr().cast(), line.len()) };
        if octets < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    });
}

/// Makes a write beyond the limit an error for the whole process, which is one of ours: what it
/// starts has the signal ignored too.
pub fn ignore_limit_signal() {
    // SAFETY: SIGXFSZ has no handler here that this could take away.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

fn is_too_large(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EFBIG)
}

fn only_it() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid one, without signals.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a live local.
    unsafe { libc::sigaddset(&mut set, libc::SIGXFSZ) };
    set
}

fn block_signal() {
    // SAFETY: the set is a live local, and the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &only_it(), ptr::null_mut()) };
}

fn pending_signals() -> libc::sigset_t {
    // SAFETY: an all-zero set is a valid one, without signals.
    let mut set: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is a live local.
    unsafe { libc::sigpending(&mut set) };
    set
}

fn contains(set: &libc::sigset_t) -> bool {
    // SAFETY: `set` is initialised.
    unsafe { libc::sigismember(set, libc::SIGXFSZ) == 1 }
}

/// Takes the signal if it is pending; whether it is not any more. One sent to this thread, as the
/// kernel does it, comes before one for the whole process.
fn take_signal() -> bool {
    let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the set and the time are live locals; who sent it is not asked for.
    let taken = unsafe { libc::sigtimedwait(&only_it(), ptr::null_mut(), &at_once) };
    taken == libc::SIGXFSZ || io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    use super::*;

    /// The variable that names the file to write to, in a process that may write to none.
    const FILE: &str = "WEFT_TEST_OWN_FILE";

    /// Runs a test of this name again, in a process whose files may not grow.
    fn runs_where_files_may_not_grow(test: &str) {
        let path = std::env::temp_dir().join(format!("{test}-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -f 0; exec \"$@\"", "sh"]);
        shell.arg(std::env::current_exe().unwrap());
        shell.args(["--exact", &format!("own_file::tests::{test}"), "--ignored"]);
        let end = shell.env(FILE, &path).output().unwrap();
        let length = fs::metadata(&path).unwrap().len();
        fs::remove_file(&path).unwrap();
        assert!(end.status.success(), "{end:?}");
        assert_eq!(length, 0);
    }

    fn write_too_much() {
        let mut file = File::create(std::env::var_os(FILE).unwrap()).unwrap();
        let written = writing(|| file.write_all(b"x"));
        assert!(is_too_large(&written.unwrap_err()));
        assert!(is_too_large(&writing(|| file.set_len(1)).unwrap_err()));
        put_line(file.as_raw_fd(), b"x");
    }

    #[test]
    #[ignore = "for a process whose files may not grow"]
    fn a_file_too_large() {
        let before = sys::blocked_signals();
        write_too_much();
        assert!(!contains(&pending_signals()) && !contains(&sys::blocked_signals()));
        block_signal();
        write_too_much();
        assert!(!contains(&pending_signals()) && contains(&sys::blocked_signals()));
        sys::set_blocked_signals(&before);
    }

    #[test]
    #[ignore = "for a process whose files may not grow"]
    fn a_signal_of_the_application() {
        block_signal();
        // SAFETY: plain arguments; the signal is blocked.
        unsafe { libc::raise(libc::SIGXFSZ) };
        write_too_much();
        assert!(contains(&pending_signals()) && take_signal());
    }

    #[test]
    fn a_file_that_may_not_grow_is_an_errno() {
        runs_where_files_may_not_grow("a_file_too_large");
    }

    #[test]
    fn a_signal_that_was_pending_before_stays_so() {
        runs_where_files_may_not_grow("a_signal_of_the_application");
    }

    #[test]
    fn what_can_be_written_is() {
        let path = std::env::temp_dir().join(format!("weft-own-file-{}", std::process::id()));
        let mut file = File::create(&path).unwrap();
        writing(|| file.write_all(b"a ")).unwrap();
        put_line(file.as_raw_fd(), b"line\n");
        assert_eq!(fs::read(&path).unwrap(), b"a line\n");
        fs::remove_file(&path).unwrap();
    }
}
