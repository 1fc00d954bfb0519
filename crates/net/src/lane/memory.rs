//! The memory of a lane: a sealed `memfd` with two rings, each a page and its bytes.
//!
//! Invariant: what is mapped cannot shrink, so that no access ever faults: the seals are put on
//! before the descriptor leaves the process that made it, and checked where it arrives.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::fs::{self, MemfdFlags, SealFlags};

/// The page of the counters.
const PAGE_BYTES: usize = 4096;
/// Bytes of a ring: what stays in the second-level caches, and three batches of frames.
pub const RING_BYTES: usize = 256 << 10;
/// The size of the whole.
const FILE_BYTES: usize = 2 * (PAGE_BYTES + RING_BYTES);
/// One ring as it is mapped: the bytes follow themselves.
const VIEW_BYTES: usize = PAGE_BYTES + 2 * RING_BYTES;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// New memory for a lane, all zero, sealed.
///
/// # Errors
/// If the system gives none.
pub fn create() -> io::Result<OwnedFd> {
    let fd = fs::memfd_create("weft-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fs::ftruncate(&fd, FILE_BYTES as u64)?;
    fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// Two rings in the address space of this process.
pub struct Mapping {
    start: *mut u8,
}

// SAFETY: an address range that is accessed through `LaneRing` only.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps memory from [`create`], of this process or of a peer.
    ///
    /// # Errors
    /// If it is not sealed or of another size, or the address space is full.
    pub fn new(fd: BorrowedFd<'_>) -> io::Result<Self> {
        check(fd)?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let len = 2 * VIEW_BYTES;
        // SAFETY: a new range that nothing else uses, and nothing can access.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self { start: start.cast() };
        for index in 0..2 {
            let (view, file) = (index * VIEW_BYTES, index * (PAGE_BYTES + RING_BYTES));
            mapping.place(fd, view, file, PAGE_BYTES + RING_BYTES)?;
            let again = view + PAGE_BYTES + RING_BYTES;
            mapping.place(fd, again, file + PAGE_BYTES, RING_BYTES)?;
        }
        Ok(mapping)
    }

    fn place(&self, fd: BorrowedFd<'_>, at: usize, file: usize, len: usize) -> io::Result<()> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: within the range that `new` reserved.
        let to: *mut c_void = unsafe { self.start.add(at) }.cast();
        // SAFETY: as above: it takes the place of what this process reserved for it.
        let placed =
            unsafe { libc::mmap(to, len, rights, flags, fd.as_raw_fd(), file as libc::off_t) };
        if placed == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Page and bytes of one of the two rings.
    pub fn ring(&self, index: usize) -> (*mut u8, *mut u8) {
        // SAFETY: within the range, for the two that there are.
        let page = unsafe { self.start.add((index & 1) * VIEW_BYTES) };
        // SAFETY: as above.
        (page, unsafe { page.add(PAGE_BYTES) })
    }

    /// Bytes of each.
    pub fn ring_bytes(&self) -> usize {
        RING_BYTES
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` reserved, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), 2 * VIEW_BYTES) };
    }
}

/// Whether the memory that a peer sent is of the right size and can never have another.
fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let sealed = fs::fcntl_get_seals(fd)?.contains(SEALS);
    let len = fs::fstat(fd)?.st_size;
    if sealed && len == FILE_BYTES as i64 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
