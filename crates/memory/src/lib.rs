//! The allocator of what is loaded into other processes.
//!
//! Rust ends a process that an allocation fails in, which is not for a library to do to its host.
//! So [`ReserveAllocator`] serves from a reserve what the C library refuses, and [`is_short`] says
//! when the reserve has become too small to begin anything on: who makes an object then answers
//! `ENOMEM`, and what exists goes on. What an application sizes is asked for by `try_reserve`.
//! aws-lc, which would go to the C library by itself, is served as well ([`serve_aws_lc`]).
//!
//! A request that finds no room is refused, a completion is lost as in a queue that is full, and
//! requests of peers wait or are ignored until the peer repeats them.
//!
//! Invariant: what is freed goes back to where it came from. The size says so of large pieces,
//! which are mappings of their own; the address says so of the others.

#![cfg_attr(
    not(test),
    deny(clippy::expect_used, clippy::panic, clippy::unreachable, clippy::unwrap_used)
)]

use std::alloc::{GlobalAlloc, Layout, System, alloc_zeroed};
use std::ptr::{copy_nonoverlapping, slice_from_raw_parts_mut, write_bytes};
use std::sync::atomic::{AtomicBool, Ordering};

mod aws_lc;
mod mapping;
mod reserve;

pub use aws_lc::serve_aws_lc;
pub use reserve::{RESERVED_MAX, is_short};

/// Above this a piece is a mapping of its own, much as with the C library's allocator: the reserve
/// has nothing for it.
const LARGE: usize = RESERVED_MAX;

/// Set once the process is ending: the C library's allocator is not called any more.
static WITHOUT_C: AtomicBool = AtomicBool::new(false);

/// From now on nothing is allocated from the C library or freed to it: everything comes from the
/// reserve. For a process that is about to end: the caller may be a signal handler that interrupted
/// `malloc`, whose lock is then never released.
pub fn leave_c_library() {
    WITHOUT_C.store(true, Ordering::Relaxed);
}

/// Ends what [`leave_c_library`] began, in the child of a fork: another thread of the parent may
/// have been ending the process. `fork` leaves the child with the lock of `malloc` released.
pub fn return_to_c_library() {
    WITHOUT_C.store(false, Ordering::Relaxed);
}

fn uses_c_library() -> bool {
    !WITHOUT_C.load(Ordering::Relaxed)
}

/// A slice of `bytes` zeros; none if there is no memory. The kernel supplies the pages of a large
/// one at first use.
pub fn zeroed(bytes: usize) -> Option<Box<[u8]>> {
    let layout = Layout::array::<u8>(bytes).ok()?;
    if bytes == 0 {
        return Some(Box::default());
    }
    // SAFETY: the size is not zero.
    let piece = unsafe { alloc_zeroed(layout) };
    if piece.is_null() {
        return None;
    }
    // SAFETY: the piece has the layout of a slice of so many bytes, which are zero, and is owned.
    Some(unsafe { Box::from_raw(slice_from_raw_parts_mut(piece, bytes)) })
}

/// The C library's allocator with a reserve behind it.
#[derive(Clone, Copy, Debug)]
pub struct ReserveAllocator;

fn is_large(layout: Layout) -> bool {
    layout.size() > LARGE && layout.align() <= mapping::ALIGN
}

// SAFETY: each piece is a mapping, one of the C library's or a slot of the reserve that nobody else
// has; none unwinds.
unsafe impl GlobalAlloc for ReserveAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return mapping::map(layout.size());
        }
        if uses_c_library() {
            // SAFETY: as this function's contract.
            let piece = unsafe { System.alloc(layout) };
            if !piece.is_null() {
                return piece;
            }
        }
        reserve::take(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return mapping::map(layout.size());
        }
        if uses_c_library() {
            // SAFETY: as this function's contract.
            let piece = unsafe { System.alloc_zeroed(layout) };
            if !piece.is_null() {
                return piece;
            }
        }
        let piece = reserve::take(layout);
        if !piece.is_null() {
            // SAFETY: the slot has room for the layout and is this caller's.
            unsafe { write_bytes(piece, 0, layout.size()) };
        }
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if is_large(layout) {
            // SAFETY: a large piece is a mapping of this size, and is not used any more.
            unsafe { mapping::unmap(piece, layout.size()) };
        } else if !reserve::give_back(piece) && uses_c_library() {
            // SAFETY: what is neither large nor of the reserve is the C library's.
            unsafe { System.dealloc(piece, layout) };
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the size is valid for the alignment by contract.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if is_large(layout) && is_large(wanted) {
            // SAFETY: a large piece is a mapping of this size.
            return unsafe { mapping::resize(piece, layout.size(), size) };
        }
        let is_small = !is_large(layout) && !is_large(wanted);
        if is_small && !reserve::holds(piece) && uses_c_library() {
            // SAFETY: what is neither large nor of the reserve is the C library's.
            let moved = unsafe { System.realloc(piece, layout, size) };
            if !moved.is_null() {
                return moved;
            }
        }
        // SAFETY: as this function's contract.
        unsafe { self.move_to(wanted, piece, layout) }
    }
}

impl ReserveAllocator {
    /// Moves a piece to a new one; NULL, and the old one as it was, if there is none.
    ///
    /// # Safety
    /// As of [`GlobalAlloc::realloc`].
    unsafe fn move_to(self, wanted: Layout, piece: *mut u8, layout: Layout) -> *mut u8 {
        // SAFETY: the size is not zero by contract.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            let octets = layout.size().min(wanted.size());
            // SAFETY: both have that much room, and the new piece is apart from the old one.
            unsafe { copy_nonoverlapping(piece, moved, octets) };
            // SAFETY: as this function's contract.
            unsafe { self.dealloc(piece, layout) };
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static MEMORY: ReserveAllocator = ReserveAllocator;

    fn layout(size: usize) -> Layout {
        Layout::from_size_align(size, 8).expect("a layout")
    }

    #[test]
    fn a_piece_keeps_its_content_wherever_its_size_takes_it() {
        let sizes = [10, 5000, LARGE, LARGE + 1, 10 * LARGE, 3 * LARGE, LARGE, 9];
        // SAFETY: the size is not zero.
        let mut piece = unsafe { ReserveAllocator.alloc_zeroed(layout(8)) };
        // SAFETY: it has eight bytes.
        unsafe { piece.write(77) };
        let mut had = 8;
        for size in sizes {
            // SAFETY: `piece` has the layout of `had`.
            piece = unsafe { ReserveAllocator.realloc(piece, layout(had), size) };
            had = size;
            // SAFETY: it has more than eight bytes.
            let content = unsafe { piece.cast::<[u8; 8]>().read() };
            assert_eq!(content, [77, 0, 0, 0, 0, 0, 0, 0], "{size}");
        }
        // SAFETY: `piece` has the layout of `had` and is not used any more.
        unsafe { ReserveAllocator.dealloc(piece, layout(had)) };
    }

    #[test]
    fn a_piece_of_the_reserve_moves_on_and_leaves_its_slot() {
        let piece = reserve::take(layout(64));
        assert!(reserve::holds(piece));
        // SAFETY: the slot has 64 bytes.
        unsafe { piece.write(5) };
        // SAFETY: it has this layout.
        let moved = unsafe { ReserveAllocator.realloc(piece, layout(64), 100) };
        assert!(!reserve::holds(moved));
        // SAFETY: it has 100 bytes.
        assert_eq!(unsafe { moved.read() }, 5);
        // SAFETY: it has this layout and is not used any more.
        unsafe { ReserveAllocator.dealloc(moved, layout(100)) };
    }

    #[test]
    fn zeroed_pieces_are_zero_and_as_large_as_asked_or_none() {
        for bytes in [0, 1, LARGE, LARGE + 1] {
            let piece = zeroed(bytes).expect("there is memory");
            assert!(piece.len() == bytes && piece.iter().all(|byte| *byte == 0));
        }
        assert!(zeroed(1 << 62).is_none() && zeroed(usize::MAX).is_none());
    }

    #[test]
    fn what_is_too_large_for_everything_is_refused() {
        let huge = layout(1 << 62);
        // SAFETY: the size is not zero.
        assert!(unsafe { ReserveAllocator.alloc(huge) }.is_null());
        let mut vec = Vec::<u8>::new();
        assert!(vec.try_reserve(1 << 62).is_err());
    }
}
