//! After `leave_c_library`, nothing is allocated from the C library or freed to it.

use std::alloc::{GlobalAlloc, Layout, System};

use weft_memory::{ReserveAllocator, leave_c_library};

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).expect("a layout")
}

/// The piece that the C library would return for the next request of 100 bytes.
fn next_of_c_library() -> *mut u8 {
    // SAFETY: the size is not zero.
    let next = unsafe { System.alloc(layout(100)) };
    // SAFETY: it has this layout and is not used.
    unsafe { System.dealloc(next, layout(100)) };
    next
}

#[test]
fn pieces_come_from_the_reserve_and_those_before_keep_their_content() {
    let allocator = ReserveAllocator;
    // SAFETY: the size is not zero.
    let before = unsafe { allocator.alloc(layout(100)) };
    // SAFETY: it has a hundred bytes.
    unsafe { before.write_bytes(7, 100) };
    let next = next_of_c_library();
    leave_c_library();
    // SAFETY: `before` has this layout.
    let grown = unsafe { allocator.realloc(before, layout(100), 101) };
    // SAFETY: the size is not zero.
    let fresh = unsafe { allocator.alloc(layout(100)) };
    // SAFETY: the size is not zero.
    let zeroed = unsafe { allocator.alloc_zeroed(layout(100)) };
    for piece in [grown, fresh, zeroed] {
        assert!(!piece.is_null() && piece != next && piece != before);
    }
    assert_eq!(next_of_c_library(), next, "nothing was asked of it or given back");
    // SAFETY: it has a hundred bytes.
    unsafe { fresh.write_bytes(9, 100) };
    for (piece, size, content) in [(grown, 101, 7), (zeroed, 100, 0), (fresh, 100, 9)] {
        // SAFETY: it has a hundred bytes, which were written.
        assert_eq!(unsafe { piece.cast::<[u8; 100]>().read() }, [content; 100]);
        // SAFETY: it has this layout and is not used any more.
        unsafe { allocator.dealloc(piece, layout(size)) };
    }
}
