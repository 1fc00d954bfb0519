//! Lines to the standard error of the process, which is a number that the application may close,
//! so that its next connection has it, or put a connection at, as services of inetd do.
//!
//! Invariant: no line goes to a socket but the one that was standard error when the library was
//! loaded, nor to that one if it is a connection to another host.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;

use crate::own_file;

/// The device and the inode of a socket.
type SocketFile = (libc::dev_t, libc::ino_t);

/// What standard error is where lines may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StderrKind {
    Socket(SocketFile),
    /// It is a file, a pipe or a terminal, or closed.
    Other,
}

/// The socket that lines may be written to, if there is one.
static PERMITTED: OnceLock<SocketFile> = OnceLock::new();

/// The library was loaded: if standard error is a socket of this host (`AF_UNIX`), such as the one
/// of a system's journal, lines may be written to that.
pub fn permit() {
    if let (StderrKind::Socket(file), true) = (kind(), is_local()) {
        PERMITTED.get_or_init(|| file);
    }
}

/// Writes a line at once, unless standard error is a connection of the application.
pub fn put_line(line: &[u8]) {
    let may_write = match kind() {
        StderrKind::Socket(file) => PERMITTED.get() == Some(&file),
        StderrKind::Other => true,
    };
    if may_write {
        own_file::put_line(libc::STDERR_FILENO, line);
    }
}

fn kind() -> StderrKind {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    let place = stat.as_mut_ptr();
    // `fstat` of the C library may be a hook of this library.
    // SAFETY: the place has room for the structure, which is the kernel's.
    let done = unsafe { libc::syscall(libc::SYS_fstat, libc::STDERR_FILENO, place) };
    if done != 0 {
        return StderrKind::Other;
    }
    // SAFETY: the kernel has filled it.
    let stat = unsafe { stat.assume_init() };
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFSOCK => StderrKind::Socket((stat.st_dev, stat.st_ino)),
        _ => StderrKind::Other,
    }
}

fn is_local() -> bool {
    let (mut domain, mut len): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    let (fd, level, option) = (libc::STDERR_FILENO, libc::SOL_SOCKET, libc::SO_DOMAIN);
    let (value, len) = (ptr::from_mut(&mut domain), ptr::from_mut(&mut len));
    // SAFETY: both are live locals, and the length is that of the first.
    let done = unsafe { libc::syscall(libc::SYS_getsockopt, fd, level, option, value, len) };
    done == 0 && domain == libc::AF_UNIX
}
