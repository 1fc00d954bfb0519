//! Memory of aws-lc, which allocates by itself: a key cannot be made without.
//!
//! A piece is given back by its address alone, so its size stands before it. It is overwritten
//! then, as aws-lc does with its own: it may have held a key.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::{self, copy_nonoverlapping};
use std::sync::Once;

use aws_lc_sys::{CRYPTO_set_mem_functions, OPENSSL_cleanse};

use crate::ReserveAllocator;

/// Bytes before a piece. They keep it aligned as the C library's pieces are.
const HEAD: usize = 16;

/// Has aws-lc allocate from [`ReserveAllocator`].
///
/// Order of calls: before everything that aws-lc allocates in this process.
pub fn serve_aws_lc() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        // SAFETY: the functions are an allocator, and aws-lc has nothing yet that it would free
        // with them and has not got from them.
        let _first = unsafe { CRYPTO_set_mem_functions(Some(alloc), Some(realloc), Some(free)) };
    });
}

/// Of a piece of `size` bytes with its head.
fn layout(size: usize) -> Option<Layout> {
    Layout::from_size_align(size.checked_add(HEAD)?, HEAD).ok()
}

unsafe extern "C" fn alloc(size: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    let Some(layout) = layout(size) else { return ptr::null_mut() };
    // SAFETY: the layout has a head, so its size is not zero.
    let head = unsafe { ReserveAllocator.alloc(layout) };
    if head.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the head is aligned to its size and has room for a number.
    unsafe { head.cast::<usize>().write(size) };
    head.wrapping_add(HEAD).cast()
}

/// # Safety
/// `piece` must be one of [`alloc`].
unsafe fn size_of(piece: *mut c_void) -> usize {
    // SAFETY: the size stands in front of each piece.
    unsafe { piece.wrapping_byte_sub(HEAD).cast::<usize>().read() }
}

unsafe extern "C" fn realloc(
    piece: *mut c_void,
    size: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void {
    // SAFETY: any size will do.
    let moved = unsafe { alloc(size, file, line) };
    if moved.is_null() || piece.is_null() {
        return moved;
    }
    // SAFETY: aws-lc has its pieces from here.
    let had = unsafe { size_of(piece) };
    // SAFETY: both have that much room, and the new piece is apart from the old one.
    unsafe { copy_nonoverlapping(piece.cast::<u8>(), moved.cast(), had.min(size)) };
    // SAFETY: as above, and it is not used any more.
    unsafe { free(piece, file, line) };
    moved
}

unsafe extern "C" fn free(piece: *mut c_void, _file: *const c_char, _line: c_int) {
    if piece.is_null() {
        return;
    }
    // SAFETY: aws-lc has its pieces from here.
    let size = unsafe { size_of(piece) };
    // SAFETY: the piece has that size.
    unsafe { OPENSSL_cleanse(piece, size) };
    let Some(layout) = layout(size) else { return };
    // SAFETY: the piece was allocated with this layout, its head first, and is not used any more.
    unsafe { ReserveAllocator.dealloc(piece.wrapping_byte_sub(HEAD).cast(), layout) };
}

#[cfg(test)]
mod tests {
    use aws_lc_sys::{OPENSSL_free, OPENSSL_malloc, OPENSSL_realloc};

    use super::*;
    use crate::{LARGE, reserve};

    #[test]
    fn aws_lc_has_its_pieces_from_here_and_they_keep_their_content() {
        serve_aws_lc();
        // SAFETY: any size will do.
        let mut piece = unsafe { OPENSSL_malloc(8) };
        // SAFETY: it has eight bytes.
        unsafe { piece.cast::<u64>().write(77) };
        for size in [8, 5000, LARGE, 10 * LARGE, 100, 9] {
            // SAFETY: the piece is one of aws-lc's.
            piece = unsafe { OPENSSL_realloc(piece, size) };
            // SAFETY: it is one of `alloc`, too.
            assert_eq!(unsafe { size_of(piece) }, size);
            // SAFETY: it has more than eight bytes, and is aligned for every type.
            assert_eq!(unsafe { piece.cast::<u64>().read() }, 77, "{size}");
        }
        // SAFETY: it is one of aws-lc's and not used any more.
        unsafe { OPENSSL_free(piece) };
        // SAFETY: any size will do.
        assert!(unsafe { OPENSSL_malloc(usize::MAX) }.is_null());
    }

    #[test]
    fn a_piece_of_the_reserve_moves_on_and_leaves_nothing_behind() {
        // No other test takes slots of this size: what stands in this one afterwards can be read.
        const SIZE: usize = 10_000;
        let head = reserve::take(layout(SIZE).unwrap());
        // SAFETY: the slot has room for a head and the piece.
        unsafe { head.cast::<usize>().write(SIZE) };
        let piece = head.wrapping_add(HEAD).cast::<c_void>();
        // SAFETY: as above.
        unsafe { piece.cast::<u64>().write(5) };
        // SAFETY: the piece is as those of `alloc`.
        let moved = unsafe { realloc(piece, 100, ptr::null(), 0) };
        assert!(!reserve::holds(moved.cast()));
        // SAFETY: it has 100 bytes.
        assert_eq!(unsafe { moved.cast::<u64>().read() }, 5);
        // SAFETY: the first chunk is never unmapped, and nobody writes there.
        assert_eq!(unsafe { piece.cast::<u64>().read_volatile() }, 0);
        // SAFETY: it is one of `alloc` and not used any more.
        unsafe { free(moved, ptr::null(), 0) };
    }
}
