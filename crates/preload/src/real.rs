//! The definitions behind ours: what every exported function calls under `WEFT=off`.

use std::ffi::{CStr, c_int, c_void};
use std::ptr;

use weft_os::next::NextDefinition;

use crate::dl::real::{dlopen, dlsym};
use crate::errno;

/// The function that `next` leads to, of the same type as `ours`, the one that is exported.
pub fn like<F: Copy>(next: &NextDefinition, ours: F) -> Option<F> {
    // SAFETY: the real library's function of a name has the signature of the one that stands in
    // for it.
    unsafe { next.like(ours) }
}

/// The next definition in search order, or the one in rdma-core: a plugin that was opened with
/// `RTLD_LOCAL` has it in a scope of its own, where `RTLD_NEXT` does not look.
pub fn find(name: &CStr) -> *mut c_void {
    // SAFETY: the name is NUL-terminated.
    let next = unsafe { dlsym()(libc::RTLD_NEXT, name.as_ptr()) };
    if !next.is_null() {
        return next;
    }
    let cm = name.to_bytes().starts_with(b"rdma_");
    let library = if cm { c"librdmacm.so.1" } else { c"libibverbs.so.1" };
    // SAFETY: the name is NUL-terminated.
    let handle = unsafe { dlopen()(library.as_ptr(), libc::RTLD_LAZY) };
    if handle.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the handle was just opened and is never closed; the name is NUL-terminated.
    unsafe { dlsym()(handle, name.as_ptr()) }
}

/// The return value of a function without a definition to pass to.
pub trait Absent {
    /// The answer; `errno` is set.
    fn absent() -> Self;
}

impl Absent for c_int {
    fn absent() -> Self {
        errno::code(libc::ENOSYS)
    }
}

impl Absent for isize {
    fn absent() -> Self {
        -(errno::code(libc::ENOSYS) as isize)
    }
}

impl Absent for u16 {
    fn absent() -> Self {
        0
    }
}

impl Absent for u32 {
    fn absent() -> Self {
        0
    }
}

impl Absent for u64 {
    fn absent() -> Self {
        0
    }
}

impl Absent for () {
    fn absent() -> Self {}
}

impl<T> Absent for *mut T {
    fn absent() -> Self {
        errno::null(libc::ENOSYS)
    }
}

impl<T> Absent for *const T {
    fn absent() -> Self {
        errno::null::<T>(libc::ENOSYS)
    }
}

/// The next definition of the exported function that encloses this, as an `Option`:
/// `next!(ibv_alloc_pd(context))`; the arguments are those of the function.
macro_rules! next {
    ($name:ident($($arg:expr),* $(,)?)) => {
        $crate::real::like(
            weft_os::next_definition!($name, $crate::real::find),
            $name as unsafe extern "C" fn($($crate::real::any!($arg)),*) -> _,
        )
    };
}

/// First line of every exported function: under `WEFT=off`, returns what the real one returns;
/// otherwise the function is a [`LibraryCall`](weft_os::calls::LibraryCall) from there on.
///
/// `pass_when_off!(ibv_alloc_pd(context))`; the arguments are those of the exported function. With
/// a second one, `pass_when_off!(ibv_alloc_pd(context), pass::calls::alloc_pd)`, that function is
/// called with the real one before them: what faults need with `WEFT_PASSTHROUGH=1`.
macro_rules! pass_when_off {
    ($name:ident($($arg:expr),* $(,)?)) => {
        if $crate::env::off() {
            return match $crate::real::next!($name($($arg),*)) {
                // SAFETY: the arguments are the caller's own, for the same function.
                Some(real) => unsafe { real($($arg),*) },
                None => $crate::real::Absent::absent(),
            };
        }
        let _call = weft_os::calls::LibraryCall::begin();
    };
    ($name:ident($($arg:expr),* $(,)?), $between:path) => {
        if $crate::env::off() {
            return match $crate::real::next!($name($($arg),*)) {
                // SAFETY: the arguments are the caller's own, for a function that stands before
                // the same one.
                Some(real) => unsafe { $between(real, $($arg),*) },
                None => $crate::real::Absent::absent(),
            };
        }
        let _call = weft_os::calls::LibraryCall::begin();
    };
}

/// The type that the compiler infers for an argument.
macro_rules! any {
    ($arg:expr) => {
        _
    };
}

pub(crate) use {any, next, pass_when_off};
