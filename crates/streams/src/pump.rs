//! Carries bytes between a standard stream of this process and a pipe, by a thread.
//!
//! The event loop needs descriptors that never block, and that is a property of an open file which
//! a shell and its other children share: setting it on stdin would break them. A regular file as
//! stdin could not be waited for either.
//!
//! Invariant: the end of one side ends the other.
//!
//! Order: [`from`] or [`to`] is all.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use weft_os::blocking::Blocking;

/// Bytes that are moved at once.
const CHUNK: usize = 256 * 1024;

/// A descriptor to read what comes from `source`, and the error that ended it, if any: the
/// descriptor only ends. One that is not open for reading, as `nohup` makes stdin, has no bytes.
///
/// # Errors
/// No descriptor or thread is left.
pub fn from(source: impl AsFd) -> io::Result<(OwnedFd, Arc<OnceLock<io::Error>>)> {
    let source = File::from(source.as_fd().try_clone_to_owned()?);
    let (read, write) = pipe()?;
    rustix::io::ioctl_fionbio(&read, true)?;
    // It is not waited for: it may read from a terminal when all else is over.
    let failure = Arc::new(OnceLock::new());
    let failed = Arc::clone(&failure);
    thread::Builder::new().name("weft-stdin".into()).spawn(move || {
        let write = File::from(write);
        if let Err(Carried::Source(error)) = carry(source, &write)
            && error.raw_os_error() != Some(Errno::BADF.raw_os_error())
        {
            // Before the other side sees the end.
            let _ = failed.set(error);
        }
    })?;
    Ok((read, failure))
}

/// A descriptor to write what goes to `target`, and the thread, which ends when all is written, or
/// with the error by which the target has failed: not with that of one which nobody reads any more.
///
/// # Errors
/// No descriptor or thread is left.
pub fn to(target: impl AsFd) -> io::Result<(OwnedFd, JoinHandle<io::Result<()>>)> {
    let target = File::from(target.as_fd().try_clone_to_owned()?);
    let (read, write) = pipe()?;
    rustix::io::ioctl_fionbio(&write, true)?;
    let thread = thread::Builder::new().name("weft-stdout".into());
    let thread = thread.spawn(move || match carry(read.into(), &target) {
        Err(Carried::Target(error)) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    })?;
    Ok((write, thread))
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    // A larger one saves wakes; the limit of the user's pipes may forbid it.
    let _ = fcntl_setpipe_size(&write, CHUNK);
    Ok((read, write))
}

/// The side that has failed.
enum Carried {
    Source(io::Error),
    Target(io::Error),
}

/// Moves bytes until `from` ends, also where another process has made one of the open files one
/// that does not wait.
///
/// # Errors
/// Either side has failed.
fn carry(from: File, to: &File) -> Result<(), Carried> {
    let (mut from, mut to) = (Blocking(from), Blocking(to));
    let mut bytes = vec![0; CHUNK];
    loop {
        match from.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(count) => to.write_all(&bytes[..count]).map_err(Carried::Target)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Carried::Source(error)),
        }
    }
}
