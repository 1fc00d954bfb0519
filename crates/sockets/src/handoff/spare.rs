//! A descriptor that gives its number to another one.
//!
//! A process that accepts with its last descriptor has none for the socket by which it asks the
//! process that serves the listener, and callers by TCP, which need no other, would be turned away.
//! So each process has a descriptor in reserve, as soon as it serves a listener or has asked once;
//! the child of a fork has that of its parent.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use weft_os::fds::high;
use weft_sync::Mutex;

use crate::sys::{self, Inode};

/// The descriptor, while it is there.
#[derive(Default)]
pub struct SpareDescriptor(Mutex<Option<(OwnedFd, Inode)>>);

impl SpareDescriptor {
    /// That of a parent, in its child, unless another thread of the parent held the lock.
    pub fn of_parent(parent: &Self) -> Self {
        Self(Mutex::new(parent.0.try_lock().and_then(|mut spare| spare.take())))
    }

    /// Has one for the next time, if there is one left.
    pub fn keep(&self) {
        let mut spare = self.0.lock();
        if spare.is_none()
            && let Ok(socket) = sys::message_socket().map(high)
        {
            *spare = sys::inode(socket.as_raw_fd()).map(|inode| (socket, inode));
        }
    }

    /// A new socket of messages, in place of the spare one if no other descriptor is left.
    ///
    /// # Errors
    /// Without descriptors or memory.
    pub fn message_socket(&self) -> io::Result<OwnedFd> {
        let socket = sys::message_socket();
        if !socket.as_ref().is_err_and(sys::is_lack) {
            return socket;
        }
        self.release();
        sys::message_socket()
    }

    fn release(&self) {
        let Some((socket, inode)) = self.0.lock().take() else { return };
        // The application may have closed it, as daemons do, and have another file there.
        if sys::inode(socket.as_raw_fd()) != Some(inode) {
            mem::forget(socket);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_has_got_its_number_stays_open() {
        let spare = SpareDescriptor::default();
        spare.keep();
        let at = spare.0.lock().as_ref().map(|(socket, _)| socket.as_raw_fd()).unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        sys::install(&writer, at, true).unwrap();
        drop(writer);
        spare.release();
        let again = sys::flags(at).unwrap();
        assert_eq!(again & libc::O_ACCMODE, libc::O_WRONLY, "the pipe's end is still there");
        sys::close(at);
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_child_of_a_fork_has_that_of_its_parent() {
        let parent = SpareDescriptor::default();
        parent.keep();
        let child = SpareDescriptor::of_parent(&parent);
        assert!(parent.0.lock().is_none() && child.0.lock().is_some());
        child.release();
        assert!(child.0.lock().is_none());
    }
}
