//! Memory straight from the kernel.

use std::ptr;

/// What mappings are aligned to at least.
pub const ALIGN: usize = 4096;

/// So many bytes, all zero; NULL if there are none.
pub fn map(octets: usize) -> *mut u8 {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping that nothing else uses.
    found(unsafe { libc::mmap(ptr::null_mut(), octets, rights, flags, -1, 0) })
}

/// A mapping with its content in another size, wherever there is room; NULL, and the mapping as it
/// was, if there is none.
///
/// # Safety
/// `place` came from [`map`] or this function with the size `from`.
pub unsafe fn resize(place: *mut u8, from: usize, to: usize) -> *mut u8 {
    // SAFETY: the caller's mapping by contract.
    found(unsafe { libc::mremap(place.cast(), from, to, libc::MREMAP_MAYMOVE) })
}

/// Ends a mapping.
///
/// # Safety
/// `place` came from [`map`] or [`resize`] with this size, and is not used any more.
pub unsafe fn unmap(place: *mut u8, octets: usize) {
    // SAFETY: the caller's mapping by contract.
    unsafe { libc::munmap(place.cast(), octets) };
}

fn found(place: *mut libc::c_void) -> *mut u8 {
    if place == libc::MAP_FAILED { ptr::null_mut() } else { place.cast() }
}
