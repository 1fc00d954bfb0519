//! All reads and writes of application memory.
//!
//! Addresses stay integers up to the copy itself: the application and its peers change this memory
//! at any time, so no Rust reference to it may outlive the one access that it serves. The
//! application may have unmapped it; then the access reports that, and the request fails.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering, fence};

use weft_guard as guard;
use weft_wire::crc::Crc32c;
use weft_wire::llp::MemoryPiece;

/// Writes `bytes` to `addr`, the last byte after all others; returns whether the memory is mapped.
///
/// Applications poll the last byte of a Write, so it must not become visible before the rest. Eight
/// bytes within one word appear at once, as an atomic write promises.
#[must_use]
pub(super) fn write_app(addr: u64, bytes: &[u8]) -> bool {
    if bytes.len() == 8 && addr.is_multiple_of(8) {
        // SAFETY: as below.
        return unsafe { guard::write(addr, bytes) };
    }
    let Some((last, body)) = bytes.split_last() else { return true };
    // SAFETY: the caller checked addr..addr+len against a region under the table's lock; the
    // application vouched for that memory when it registered it.
    let is_there = unsafe { guard::write(addr, body) };
    fence(Ordering::Release);
    // SAFETY: the last byte of the checked range.
    is_there && unsafe { guard::write(addr + body.len() as u64, &[*last]) }
}

/// Reads bytes from `addr` into `out`; returns whether the memory is mapped. If not, `out` is
/// zeroed.
#[must_use]
pub(super) fn read_app_into(addr: u64, out: &mut [u8]) -> bool {
    // SAFETY: the caller checked as many bytes from `addr` as `out` has against a region under
    // the table's lock, and `out` is our own buffer.
    let is_there = unsafe { guard::read(addr, out.as_mut_ptr(), out.len()) };
    if !is_there {
        out.fill(0);
    }
    is_there
}

/// Appends the bytes of `piece` to `out`; returns whether the memory is mapped. If not, zeroes are
/// appended.
#[must_use]
pub(super) fn read_app_append(piece: MemoryPiece, out: &mut Vec<u8>) -> bool {
    let len = piece.len as usize;
    if len == 0 {
        return true;
    }
    out.reserve(len);
    let end = out.len();
    let room = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: the caller checked `piece` against a region under the table's lock, and `reserve`
    // made `len` bytes of room at `room`, which nothing else points to.
    let is_there = unsafe { guard::read(piece.addr, room, len) };
    if !is_there {
        // SAFETY: as much room as above.
        unsafe { room.write_bytes(0, len) };
    }
    // SAFETY: one of the two initialised exactly these `len` bytes within the capacity.
    unsafe { out.set_len(end + len) };
    is_there
}

/// Continues `crc` over the bytes of `piece`, if mapped.
pub(super) fn crc32c(crc: Crc32c, piece: MemoryPiece) -> Option<Crc32c> {
    let mut covered = crc;
    let range = piece.addr..piece.addr.saturating_add(piece.len.into());
    let cover = || {
        #[allow(clippy::disallowed_methods)]
        // SAFETY: the caller checked `piece` against a region under the table's lock. The slice
        // lives for this one read; an application that changes the memory meanwhile sends a wrong
        // checksum, as it would with an adapter that reads by DMA.
        let bytes =
            unsafe { std::slice::from_raw_parts(piece.addr as *const u8, piece.len as usize) };
        covered = crc.update(bytes);
    };
    // SAFETY: a checksum holds nothing, and one that ends early is not looked at.
    let is_there = piece.len == 0 || unsafe { guard::attempt(range, cover) };
    is_there.then_some(covered)
}

/// Runs `operate` on the 64 bits at `addr`, atomically with respect to the CPU too; returns the old
/// value, or `None` if the memory is not mapped.
///
/// `operate` may run several times.
pub(super) fn atomic_update(addr: u64, operate: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    let mut old = 0;
    let update = || {
        // SAFETY: the caller checked the eight bytes against a region under the table's lock and
        // that the address is a multiple of eight.
        let cell = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        let updated = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, &operate);
        old = updated.unwrap_or_else(|old| old);
    };
    // SAFETY: an atomic operation holds nothing and happens as a whole or not at all.
    let is_there = unsafe { guard::attempt(addr..addr.saturating_add(8), update) };
    is_there.then_some(old)
}

/// Whether all of `piece` is readable now.
pub(super) fn is_there(piece: MemoryPiece) -> bool {
    guard::is_readable(piece.addr, piece.len.into())
}

/// Appends the bytes of an inline work request to `out`: memory that needs no registration
/// because the caller of post names it for the length of the call.
pub fn inline_bytes(sges: &[crate::sge::Sge], out: &mut Vec<u8>) {
    for sge in sges.iter().filter(|sge| sge.length > 0) {
        #[allow(clippy::disallowed_methods)]
        // SAFETY: the caller of post vouches for this memory, which nobody writes meanwhile.
        let bytes =
            unsafe { std::slice::from_raw_parts(sge.addr as *const u8, sge.length as usize) };
        out.extend_from_slice(bytes);
    }
}

/// Source of reads from null regions.
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// Calls `name` with pieces of `len` zero bytes.
pub(super) fn zeroes(len: u32, mut name: impl FnMut(MemoryPiece)) {
    let mut left = len;
    while left > 0 {
        let len = left.min(ZEROES.len() as u32);
        name(MemoryPiece { addr: ZEROES.as_ptr() as u64, len });
        left -= len;
    }
}

/// Whether `piece` is such a piece.
pub(super) fn is_zeroes(piece: MemoryPiece) -> bool {
    piece.addr == ZEROES.as_ptr() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_arrive_whole() {
        for len in [0usize, 1, 2, 7, 64, 65, 4096] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8 ^ 0x5a).collect();
            let target = vec![0u8; len + 2];
            let addr = target.as_ptr() as u64 + 1;
            assert!(write_app(addr, &bytes));
            let mut back = vec![9];
            assert!(read_app_append(MemoryPiece { addr, len: len as u32 }, &mut back));
            assert_eq!(&back[1..], bytes);
            let mut over = vec![7; len];
            assert!(read_app_into(addr, &mut over));
            assert_eq!(over, bytes);
            assert_eq!((target[0], target[len + 1]), (0, 0));
            let crc = crc32c(Crc32c::new(), MemoryPiece { addr, len: len as u32 });
            assert_eq!(crc.map(Crc32c::to_wire), Some(Crc32c::of(&bytes)));
        }
    }

    #[test]
    fn atomics_give_the_old_value() {
        let cell = AtomicU64::new(5);
        let addr = std::ptr::from_ref(&cell) as u64;
        assert_eq!(atomic_update(addr, |v| Some(v + 2)), Some(5));
        assert_eq!(atomic_update(addr, |_| None), Some(7));
        assert_eq!(cell.load(Ordering::Relaxed), 7);
    }
}
