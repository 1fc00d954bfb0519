//! The memory of a lane: a sealed `memfd` with a page of counters and two rings of segments for
//! each direction.
//!
//! Invariant: what is mapped cannot shrink, so that no access ever faults: the seals are put on
//! before the descriptor leaves the process that made it, and checked where it arrives.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::OnceLock;

use rustix::fs::{self, FallocateFlags, MemfdFlags, SealFlags};
use weft_os::own_file;

/// The page of the counters of one direction.
const PAGE_BYTES: usize = 4096;
/// Bytes of a ring: what stays in the second-level caches of two processors. Pages that nothing
/// has gone through take no memory.
pub const RING_BYTES: usize = 512 << 10;
/// Rings of a direction, one for each flow.
const RINGS: usize = 2;
/// What one direction takes.
const DIRECTION_BYTES: usize = PAGE_BYTES + RINGS * RING_BYTES;
/// The size of the whole.
const FILE_BYTES: usize = 2 * DIRECTION_BYTES;
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// New memory for a lane, all zero, sealed.
///
/// # Errors
/// If the system gives none.
pub fn create() -> io::Result<OwnedFd> {
    let fd = fs::memfd_create("weft-lane", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    own_file::writing(|| Ok(fs::ftruncate(&fd, FILE_BYTES as u64)?))?;
    if counts_each_page() {
        fs::fallocate(&fd, FallocateFlags::empty(), 0, FILE_BYTES as u64)?;
    }
    fs::fcntl_add_seals(&fd, SEALS)?;
    Ok(fd)
}

/// Whether the system may refuse a page at its first use, by SIGBUS, because all memory is promised
/// (`vm.overcommit_memory` 2).
fn counts_each_page() -> bool {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    let policy = || std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    *COUNTS.get_or_init(|| policy().is_ok_and(|policy| policy.trim() == "2"))
}

/// Both directions in the address space of this process.
pub struct Mapping {
    start: *mut u8,
}

// SAFETY: an address range that is accessed through `ring` only.
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
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let (flags, fd) = (libc::MAP_SHARED, fd.as_raw_fd());
        // SAFETY: a new range that nothing else uses.
        let start = unsafe { libc::mmap(ptr::null_mut(), FILE_BYTES, rights, flags, fd, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start: start.cast() })
    }

    /// The page of a direction.
    pub fn page(&self, direction: usize) -> *mut u8 {
        // SAFETY: within the range, for the two that there are.
        unsafe { self.start.add((direction & 1) * DIRECTION_BYTES) }
    }

    /// The first byte of one of the rings of a direction.
    pub fn ring(&self, direction: usize, flow: usize) -> *mut u8 {
        let offset = PAGE_BYTES + (flow % RINGS) * RING_BYTES;
        // SAFETY: within the direction.
        unsafe { self.page(direction).add(offset) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: what `new` mapped, and nothing refers to it any more.
        unsafe { libc::munmap(self.start.cast(), FILE_BYTES) };
    }
}

/// Whether the memory that a peer sent is of the right size and can never have another.
fn check(fd: BorrowedFd<'_>) -> io::Result<()> {
    let sealed = fs::fcntl_get_seals(fd)?.contains(SEALS);
    let len = fs::fstat(fd)?.st_size;
    if sealed && len == FILE_BYTES as i64 { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
