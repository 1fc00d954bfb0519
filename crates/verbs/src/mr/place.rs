//! The only reads and writes of the application's memory.
//!
//! Addresses stay integers up to the copy itself: the application and its peers change this
//! memory at any time, so no Rust reference to it may live longer than the one read it serves.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use weft_wire::crc::Crc32c;
use weft_wire::llp::MemoryPiece;

/// Copies `bytes` to `addr`, the last octet after all others.
///
/// Programs poll the last octet of a Write, so it must not become visible before the rest. Eight
/// octets that lie in one word appear at once, as an atomic write promises.
pub(super) fn copy_in(addr: u64, bytes: &[u8]) {
    if let (Ok(word), true) = (<[u8; 8]>::try_from(bytes), addr.is_multiple_of(8)) {
        // SAFETY: as below, and the address is a multiple of eight.
        let cell = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
        return cell.store(u64::from_ne_bytes(word), Ordering::Release);
    }
    let Some((last, body)) = bytes.split_last() else { return };
    // SAFETY: the caller checked addr..addr+len against a region under the table's lock; the
    // application vouched for that memory when it registered it, and `bytes` is our own buffer.
    unsafe { std::ptr::copy_nonoverlapping(body.as_ptr(), addr as *mut u8, body.len()) };
    let end = (addr + body.len() as u64) as *mut u8;
    // SAFETY: `end` is the last octet of the checked range, and octets are always aligned.
    let end = unsafe { AtomicU8::from_ptr(end) };
    end.store(*last, Ordering::Release);
}

/// Copies the octets from `addr` on to `out`.
pub(super) fn copy_over(addr: u64, out: &mut [u8]) {
    // SAFETY: the caller checked as many octets from `addr` as `out` has against a region under
    // the table's lock, and `out` is our own buffer.
    unsafe { std::ptr::copy(addr as *const u8, out.as_mut_ptr(), out.len()) };
}

/// Appends the octets at `piece` to `out`.
pub(super) fn copy_out(piece: MemoryPiece, out: &mut Vec<u8>) {
    let len = piece.len as usize;
    if len == 0 {
        return;
    }
    out.reserve(len);
    let end = out.len();
    let room = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
    // SAFETY: the caller checked `piece` against a region under the table's lock, and `reserve`
    // made `len` octets of room at `room`, which nothing else points to.
    unsafe { std::ptr::copy_nonoverlapping(piece.addr as *const u8, room, len) };
    // SAFETY: the copy above initialised exactly these `len` octets within the capacity.
    unsafe { out.set_len(end + len) };
}

/// Continues `crc` over the octets at `piece`.
pub(super) fn crc32c(crc: Crc32c, piece: MemoryPiece) -> Crc32c {
    if piece.len == 0 {
        return crc;
    }
    #[allow(clippy::disallowed_methods)]
    // SAFETY: the caller checked `piece` against a region under the table's lock. The slice lives
    // for this one read; a program that changes the memory meanwhile sends a wrong checksum, as
    // it would with an adapter that reads by DMA.
    let bytes = unsafe { std::slice::from_raw_parts(piece.addr as *const u8, piece.len as usize) };
    crc.update(bytes)
}

/// Runs `operate` on the 64 bits at `addr`, atomically against the CPU too; gives the old value.
///
/// `operate` may run several times.
pub(super) fn atomic_update(addr: u64, operate: impl Fn(u64) -> Option<u64>) -> u64 {
    // SAFETY: the caller checked the eight octets against a region under the table's lock and
    // that the address is a multiple of eight.
    let cell = unsafe { AtomicU64::from_ptr(addr as *mut u64) };
    cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, operate).unwrap_or_else(|old| old)
}

/// Appends the octets of an inline work request to `out`: memory that needs no registration
/// because the caller of post names it for the length of the call.
pub fn inline_bytes(sges: &[crate::wr::Sge], out: &mut Vec<u8>) {
    for sge in sges {
        copy_out(sge.unkeyed(), out);
    }
}

/// What regions without memory are read from.
static ZEROES: [u8; 1 << 16] = [0; 1 << 16];

/// Names `len` octets that are zero.
pub(super) fn zeroes(len: u32, mut name: impl FnMut(MemoryPiece)) {
    let mut left = len;
    while left > 0 {
        let len = left.min(ZEROES.len() as u32);
        name(MemoryPiece { addr: ZEROES.as_ptr() as u64, len });
        left -= len;
    }
}

/// Whether `piece` is one of those.
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
            copy_in(addr, &bytes);
            let mut back = vec![9];
            copy_out(MemoryPiece { addr, len: len as u32 }, &mut back);
            assert_eq!(&back[1..], bytes);
            let mut over = vec![7; len];
            copy_over(addr, &mut over);
            assert_eq!(over, bytes);
            assert_eq!((target[0], target[len + 1]), (0, 0));
            let crc = crc32c(Crc32c::new(), MemoryPiece { addr, len: len as u32 });
            assert_eq!(crc.to_wire(), Crc32c::of(&bytes));
        }
    }

    #[test]
    fn atomics_give_the_old_value() {
        let cell = AtomicU64::new(5);
        let addr = std::ptr::from_ref(&cell) as u64;
        assert_eq!(atomic_update(addr, |v| Some(v + 2)), 5);
        assert_eq!(atomic_update(addr, |_| None), 7);
        assert_eq!(cell.load(Ordering::Relaxed), 7);
    }
}
