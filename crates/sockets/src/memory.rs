//! The private memory of a connection, and system calls on parts of it.
//!
//! Invariant: no reference to it is ever made: the kernel reads and writes it for this library, and
//! the reactor's threads for posted work requests.

use std::ffi::c_void;
use std::io;
use std::marker::PhantomData;
use std::os::fd::RawFd;

use libc::{c_int, iovec, msghdr};
use weft_sdp::Stretch;

use crate::sys::check;

/// Most parts of a system call.
const PARTS_MAX: usize = 8;

/// An anonymous private mapping.
#[derive(Debug)]
pub struct PrivateMemory {
    addr: *mut c_void,
    bytes: usize,
}

// SAFETY: it is an address and a length; its owner decides who uses the memory.
unsafe impl Send for PrivateMemory {}

impl PrivateMemory {
    /// Maps so many bytes; pages that are never used take no memory. Children of a fork do not get
    /// them: they use no connection of their parent, and may have limited their addresses.
    ///
    /// # Errors
    /// If the kernel has no address space left.
    pub fn map(bytes: usize) -> io::Result<Self> {
        let (rights, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE);
        let kind = kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: new memory, at a place of the kernel's choice.
        let addr = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, kind, -1, 0) };
        if addr == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the memory was mapped above. A kernel that refuses leaves it to children.
        unsafe { libc::madvise(addr, bytes, libc::MADV_DONTFORK) };
        Ok(Self { addr, bytes })
    }

    /// The address of its first byte.
    pub fn addr(&self) -> u64 {
        self.addr as u64
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and its owner has ended every use.
        unsafe { libc::munmap(self.addr, self.bytes) };
    }
}

/// Parts of the memory, for one system call.
pub struct MemoryParts<'a> {
    parts: [iovec; PARTS_MAX],
    count: usize,
    bytes: usize,
    memory: PhantomData<&'a PrivateMemory>,
}

impl PrivateMemory {
    /// The first of `stretches`, as many as a system call takes, up to one that is outside.
    pub fn parts(&self, stretches: impl Iterator<Item = Stretch>) -> MemoryParts<'_> {
        let none = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut all =
            MemoryParts { parts: [none; PARTS_MAX], count: 0, bytes: 0, memory: PhantomData };
        for (place, Stretch { at, len }) in all.parts.iter_mut().zip(stretches) {
            let end = at.checked_add(u64::from(len));
            if end.is_none_or(|end| end > self.bytes as u64) {
                break;
            }
            let iov_base = self.addr.cast::<u8>().wrapping_add(at as usize).cast();
            *place = iovec { iov_base, iov_len: len as usize };
            all.count += 1;
            all.bytes += len as usize;
        }
        all
    }
}

impl MemoryParts<'_> {
    /// Sum of the lengths of all parts, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Receives into them without waiting.
    ///
    /// # Errors
    /// Those of `recvmsg`.
    pub fn receive(&mut self, fd: RawFd) -> io::Result<usize> {
        self.call(libc::SYS_recvmsg, fd, libc::MSG_DONTWAIT)
    }

    /// Sends from them without waiting, and without a signal.
    ///
    /// # Errors
    /// Those of `sendmsg`.
    pub fn send(&mut self, fd: RawFd) -> io::Result<usize> {
        self.call(libc::SYS_sendmsg, fd, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    }

    fn call(&mut self, number: libc::c_long, fd: RawFd, flags: c_int) -> io::Result<usize> {
        // SAFETY: all zeroes is valid: no address and no control data.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (self.parts.as_mut_ptr(), self.count);
        // SAFETY: the parts are in mapped memory, which is borrowed for as long; nothing else uses
        // them, because the connection gives out what is not posted.
        check(unsafe { libc::syscall(number, fd, &raw mut message, flags) })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::sys::{receive, send, stream_pair};

    fn stretches(all: &[(u64, u32)]) -> impl Iterator<Item = Stretch> {
        all.iter().map(|&(at, len)| Stretch { at, len })
    }

    #[test]
    fn parts_are_filled_and_sent_in_their_order() {
        let memory = PrivateMemory::map(100).unwrap();
        let (theirs, ours) = stream_pair().unwrap();
        let [theirs, ours] = [theirs.as_raw_fd(), ours.as_raw_fd()];
        send(theirs, b"abcdef", 0).unwrap();
        assert_eq!(memory.parts(stretches(&[(50, 2), (10, 3)])).receive(ours).unwrap(), 5);
        assert_eq!(memory.parts(stretches(&[(10, 3), (50, 2)])).send(ours).unwrap(), 5);
        let mut got = [0; 9];
        assert_eq!(receive(theirs, &mut got, 0).unwrap(), 5);
        assert_eq!(&got[..5], b"cdeab");
    }

    #[test]
    fn a_child_has_none_of_it() {
        let memory = PrivateMemory::map(1 << 16).unwrap();
        // SAFETY: asks the kernel to look at a page, and changes nothing.
        let is_here = || unsafe { libc::madvise(memory.addr, 1, libc::MADV_NORMAL) } == 0;
        assert!(is_here());
        // SAFETY: the child asks the kernel once and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(c_int::from(is_here())) };
        }
        let mut status = -1;
        // SAFETY: `status` is a live local.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
    }

    #[test]
    fn parts_end_where_the_memory_does_and_where_a_call_does() {
        let memory = PrivateMemory::map(100).unwrap();
        assert_eq!(memory.parts(stretches(&[(0, 60), (60, 41), (0, 1)])).bytes(), 60);
        assert_eq!(memory.parts(stretches(&[(u64::MAX, 2)])).bytes(), 0);
        assert_eq!(memory.parts(stretches(&[(0, 1); 2 * PARTS_MAX])).bytes(), PARTS_MAX);
    }
}
