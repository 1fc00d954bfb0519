//! The definitions behind ours.

use std::ffi::{CStr, c_void};
use std::mem::{size_of, transmute_copy};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of one function, found at its first use.
pub struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    /// The next definition of `name`.
    pub const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The definition, as a function of the same type as `ours`, the one that is exported.
    pub fn like<F: Copy>(&self, _ours: F) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            // SAFETY: the name is NUL-terminated.
            address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
            self.address.store(address, Ordering::Release);
        }
        if address.is_null() {
            // The C library has had each of these for longer than this system exists.
            std::process::abort();
        }
        // SAFETY: a function pointer is as large as its address, and the C library's function of
        // this name has the signature of the one that stands in for it.
        unsafe { transmute_copy::<*mut c_void, F>(&address) }
    }
}

/// The next definition of an exported function: `next!(connect as fn(c_int) -> c_int)`.
macro_rules! next {
    ($name:ident as $type:ty) => {{
        static NEXT: $crate::real::Next = $crate::real::Next::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a function name has no NUL"),
            },
        );
        NEXT.like($name as $type)
    }};
}

pub(crate) use next;
