//! The functions behind the interposed ones.

use std::ffi::{CStr, c_void};

use weft_os::next::NextDefinition;

/// The next definition in search order.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// The definition behind `ours`, as a function of the same type.
pub fn like<F: Copy>(next: &NextDefinition, ours: F) -> F {
    // SAFETY: the C library's function has the signature of the one that stands in for it.
    let real = unsafe { next.like(ours) };
    // Every C library has each of these.
    real.unwrap_or_else(|| std::process::abort())
}

/// The next definition of an exported function: `next!(connect as fn(c_int) -> c_int)`.
macro_rules! next {
    ($name:ident as $type:ty) => {
        $crate::real::like(weft_os::next_definition!($name, $crate::real::find), $name as $type)
    };
}

pub(crate) use next;
