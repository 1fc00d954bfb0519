//! System calls that the standard library lacks or does differently: a `main` and an `exec` that
//! leave signals and descriptors as they are, starting a child likewise, and socket options.
//!
//! Rust's own start ignores SIGPIPE and opens closed streams; its `exec` sets SIGPIPE back to its
//! default. CMD would see either. With some C libraries it does not know the arguments, either,
//! where `main` is not its own.
#![allow(unsafe_code)]

mod child;
mod ends;
mod socket;

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::ptr;

pub use child::{Child, ChildExit, SpawnManner, die_of, spawn, spawn_in};
pub use ends::{end_late, ended_by};
pub use socket::{forbid_fragments, join, segment, widen};

/// `main`, called by the C library directly.
#[cfg(not(test))]
// SAFETY: this is the program's only `main`, with the signature that the C library calls.
#[unsafe(no_mangle)]
pub extern "C" fn main(argc: libc::c_int, argv: *const *const libc::c_char) -> libc::c_int {
    let argument = |at: usize| {
        // SAFETY: the C library passes as many strings as it says, which nobody changes.
        let text = unsafe { *argv.wrapping_add(at) };
        // SAFETY: NUL-terminated, and there while the process is.
        OsStr::from_bytes(unsafe { CStr::from_ptr(text) }.to_bytes()).to_owned()
    };
    let count = usize::try_from(argc).unwrap_or(0);
    libc::c_int::from(crate::weft((0..count).map(argument).collect()))
}

/// Sets a variable of this process and of the programs that it starts.
pub fn set_variable(name: &CStr, value: &CStr) {
    // SAFETY: both are NUL-terminated, and this process has one thread.
    unsafe { libc::setenv(name.as_ptr(), value.as_ptr(), 1) };
}

/// Makes writing to a pipe that nobody reads an error, instead of the end of this process. What
/// this process starts has the default again.
pub fn ignore_broken_pipes() {
    // SAFETY: SIGPIPE has no handler here that this could take away.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
}

/// Opens those of the standard streams that are closed: what is opened next would have their
/// numbers, and be read and written as they are.
pub fn open_streams() {
    let is_open = |fd| {
        // SAFETY: takes no pointers.
        unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
    };
    // The lowest number is taken, which is that of the stream.
    for _fd in (libc::STDIN_FILENO..=libc::STDERR_FILENO).filter(|fd| !is_open(*fd)) {
        // SAFETY: the path is NUL-terminated. Without the device there is nothing to be done.
        unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) };
    }
}

/// Becomes `command[0]`, found along `PATH` as `execvp` finds it, with these arguments and exactly
/// this environment. Comes back only with the reason why not.
pub fn exec(command: &[OsString], environment: &[(OsString, OsString)]) -> io::Error {
    match exec_strings(command, environment) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn exec_strings(
    command: &[OsString],
    environment: &[(OsString, OsString)],
) -> io::Result<std::convert::Infallible> {
    let args = command.iter().map(|arg| c_string(arg.as_bytes())).collect::<Result<Vec<_>, _>>()?;
    let pair = |(name, value): &(OsString, OsString)| {
        c_string(&[name.as_bytes(), OsStr::new("=").as_bytes(), value.as_bytes()].concat())
    };
    let environment = environment.iter().map(pair).collect::<Result<Vec<_>, _>>()?;
    let (argv, envp) = (pointers(&args), pointers(&environment));
    // SAFETY: both arrays end in a null pointer, and their strings live until the call returns.
    unsafe { libc::execvpe(argv[0], argv.as_ptr(), envp.as_ptr()) };
    Err(io::Error::last_os_error())
}

fn c_string(bytes: &[u8]) -> io::Result<CString> {
    CString::new(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

fn pointers(strings: &[CString]) -> Vec<*const libc::c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([ptr::null()]).collect()
}

/// The real user and group of this process.
pub fn user_and_group() -> (u32, u32) {
    // SAFETY: getuid takes nothing and cannot fail.
    let user = unsafe { libc::getuid() };
    // SAFETY: getgid takes nothing and cannot fail.
    let group = unsafe { libc::getgid() };
    (user, group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_run_is_an_error() {
        let error = exec(&["/nonexistent/program".into()], &[]);
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let error = exec(&["/".into()], &[]);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        let error = exec(&["a\0b".into()], &[]);
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
