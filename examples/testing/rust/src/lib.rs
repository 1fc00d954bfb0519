//! What a project might have of its own over verbs: how many devices there are.

use std::ffi::{c_int, c_void};

unsafe extern "C" {
    fn ibv_get_device_list(count: *mut c_int) -> *mut *mut c_void;
    fn ibv_free_device_list(list: *mut *mut c_void);
}

/// How many RDMA devices this process sees.
pub fn device_count() -> usize {
    let mut count = 0;
    // SAFETY: the count is writable.
    let list = unsafe { ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return 0;
    }
    // SAFETY: the list came from the call above, and nobody uses it any more.
    unsafe { ibv_free_device_list(list) };
    usize::try_from(count).unwrap_or(0)
}
