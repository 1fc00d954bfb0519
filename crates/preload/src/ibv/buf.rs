//! Buffers that the device allocates for an application's regions.
//!
//! A card in a confidential guest may need memory of a special kind. These devices reach whatever
//! the process reaches, so a buffer is whole pages of ordinary memory, or the application's own.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{c_int, c_void};

use super::pd_mr;
use crate::errno::{self, needs_memory};
use crate::real::pass_when_off;
use weft_verbs_abi::*;

const PAGE: usize = 4096;

/// The content of an `ibv_buf`.
struct Buf {
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
    /// How the memory was allocated, if it is not the application's.
    layout: Option<Layout>,
}

impl Buf {
    /// For [`Buf::free`] to take back.
    fn make(self) -> *mut ibv_buf {
        Box::into_raw(Box::new(self)).cast()
    }

    /// # Safety
    /// `buf` is NULL or came from [`Buf::make`], and neither it nor its memory is used afterwards.
    unsafe fn free(buf: *mut ibv_buf) {
        if buf.is_null() {
            return;
        }
        // SAFETY: made by `Box::into_raw` and not freed before, by contract.
        let buf = unsafe { Box::from_raw(buf.cast::<Buf>()) };
        if let Some(layout) = buf.layout {
            // SAFETY: allocated with this layout, and not used afterwards by contract.
            unsafe { dealloc(buf.addr.cast(), layout) };
        }
    }
}

/// An errno unless the range is within `buf`, and `buf` of the domain.
///
/// # Safety
/// `buf` is NULL or alive.
pub unsafe fn check(
    buf: *mut ibv_buf,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
) -> Result<(), c_int> {
    // SAFETY: NULL or alive by contract; only its owner frees it.
    let buf = unsafe { buf.cast::<Buf>().as_ref() }.ok_or(libc::EINVAL)?;
    let offset = addr.addr().checked_sub(buf.addr.addr()).ok_or(libc::EINVAL)?;
    let room = buf.size.checked_sub(offset).ok_or(libc::EINVAL)?;
    if buf.pd == pd && length <= room { Ok(()) } else { Err(libc::EINVAL) }
}

/// `ibv_alloc_buf`: whole pages, zeroed; NULL with `errno` if there is no memory.
///
/// # Safety
/// `pd` outlives the buffer, `buf` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_buf(
    pd: *mut ibv_pd,
    size: usize,
    buf: *mut *mut ibv_buf,
) -> *mut c_void {
    pass_when_off!(ibv_alloc_buf(pd, size, buf));
    needs_memory!(errno::null);
    if pd.is_null() || buf.is_null() || size == 0 {
        return errno::null(libc::EINVAL);
    }
    let whole = size.checked_next_multiple_of(PAGE);
    let Some(layout) = whole.and_then(|size| Layout::from_size_align(size, PAGE).ok()) else {
        return errno::null(libc::ENOMEM);
    };
    // SAFETY: the size is not zero.
    let addr = unsafe { alloc_zeroed(layout) }.cast::<c_void>();
    if addr.is_null() {
        return errno::null(libc::ENOMEM);
    }
    let made = Buf { pd, addr, size, layout: Some(layout) }.make();
    // SAFETY: writable by contract.
    unsafe { buf.write(made) };
    addr
}

/// `ibv_free_buf`: ends the buffer and its memory.
///
/// # Safety
/// `buf` came from [`ibv_alloc_buf`], and no region is in it; neither is used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_buf(buf: *mut ibv_buf) {
    pass_when_off!(ibv_free_buf(buf));
    // SAFETY: as this function's contract.
    unsafe { Buf::free(buf) };
}

/// `ibv_alloc_user_buf`: a buffer of the application's own memory, which stays the application's.
///
/// # Safety
/// `pd` and the memory outlive the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_alloc_user_buf(
    pd: *mut ibv_pd,
    addr: *mut c_void,
    size: usize,
    dmabuf_fd: c_int,
) -> *mut ibv_buf {
    pass_when_off!(ibv_alloc_user_buf(pd, addr, size, dmabuf_fd));
    needs_memory!(errno::null);
    if dmabuf_fd >= 0 {
        return errno::null(libc::EOPNOTSUPP);
    }
    if pd.is_null() || addr.is_null() || size == 0 {
        return errno::null(libc::EINVAL);
    }
    Buf { pd, addr, size, layout: None }.make()
}

/// `ibv_free_user_buf`: ends the buffer and leaves its memory.
///
/// # Safety
/// `buf` came from [`ibv_alloc_user_buf`] and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_free_user_buf(buf: *mut ibv_buf) {
    pass_when_off!(ibv_free_user_buf(buf));
    // SAFETY: as this function's contract.
    unsafe { Buf::free(buf) };
}

/// `ibv_export_buf_dmabuf_fd`: no buffer is a DMA-buf.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_export_buf_dmabuf_fd(buf: *mut ibv_buf) -> c_int {
    pass_when_off!(ibv_export_buf_dmabuf_fd(buf));
    errno::minus_one(libc::EOPNOTSUPP)
}

/// `ibv_reg_buf_mr`: a region in a buffer; `EINVAL` outside of it, or for another domain.
///
/// # Safety
/// `pd` and `buf` are alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_reg_buf_mr(
    pd: *mut ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    pass_when_off!(ibv_reg_buf_mr(pd, buf, addr, length, access));
    // SAFETY: alive by contract.
    if let Err(code) = unsafe { check(buf, pd, addr, length) } {
        return errno::null(code);
    }
    // SAFETY: alive by contract.
    unsafe { pd_mr::register(pd, addr, length, addr as u64, access as u32) }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn a_range_is_in_its_buffer_and_of_its_domain() {
        let (one, other) = (ptr::without_provenance_mut(8), ptr::without_provenance_mut(16));
        let mut buf = ptr::null_mut();
        // SAFETY: the domain is only compared, the buffer is writable.
        let addr = unsafe { ibv_alloc_buf(one, 5000, &raw mut buf) };
        assert!(!addr.is_null() && addr.addr().is_multiple_of(PAGE));
        // SAFETY: alive until it is freed below.
        let at = |pd, offset: usize, length| unsafe {
            check(buf, pd, addr.wrapping_byte_add(offset), length)
        };
        assert_eq!(at(one, 0, 5000), Ok(()));
        assert_eq!(at(one, 4096, 904), Ok(()));
        let outside = [(0, 5001), (4096, 905), (5001, 0), (usize::MAX, 1), (1, usize::MAX)];
        for (offset, length) in outside {
            assert_eq!(at(one, offset, length), Err(libc::EINVAL), "{offset} {length}");
        }
        assert_eq!(at(other, 0, 1), Err(libc::EINVAL));
        // SAFETY: not used afterwards.
        unsafe { ibv_free_buf(buf) };
    }

    #[test]
    fn what_cannot_be_had_is_an_errno() {
        let pd = ptr::without_provenance_mut(8);
        let mut buf = ptr::null_mut();
        for (size, code) in [(0, libc::EINVAL), (usize::MAX, libc::ENOMEM)] {
            // SAFETY: the domain is not looked at, the buffer is writable.
            assert!(unsafe { ibv_alloc_buf(pd, size, &raw mut buf) }.is_null());
            assert_eq!(errno::get(), code);
        }
        // SAFETY: as above.
        assert!(unsafe { ibv_alloc_user_buf(pd, pd.cast(), 1, 0) }.is_null());
        assert_eq!(errno::get(), libc::EOPNOTSUPP);
    }
}
