//! The definitions behind those of a library that is loaded before others: what it stands in for.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_void};
use std::mem::{size_of, transmute_copy};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The next definition of one function, looked for until it is found.
pub struct NextDefinition {
    name: &'static CStr,
    find: fn(&CStr) -> *mut c_void,
    address: AtomicPtr<c_void>,
}

impl NextDefinition {
    /// That of `name`; `find` gives its address, or null.
    pub const fn new(name: &'static CStr, find: fn(&CStr) -> *mut c_void) -> Self {
        Self { name, find, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The definition, as a function of the same type as `ours`, the one that is exported.
    ///
    /// # Safety
    /// `F` is the type of a function, and what is found is one of that type.
    pub unsafe fn like<F: Copy>(&self, _ours: F) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut address = self.address.load(Ordering::Acquire);
        if address.is_null() {
            address = (self.find)(self.name);
            self.address.store(address, Ordering::Release);
        }
        // SAFETY: a function pointer is as large as its address; the caller vouches for its type.
        (!address.is_null()).then(|| unsafe { transmute_copy::<*mut c_void, F>(&address) })
    }
}

/// The [`NextDefinition`] of the function that is called `$name`, found by `$find`.
#[macro_export]
macro_rules! next_definition {
    ($name:ident, $find:expr) => {{
        static NEXT: $crate::next::NextDefinition = $crate::next::NextDefinition::new(
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a function name has no NUL"),
            },
            $find,
        );
        &NEXT
    }};
}

#[cfg(test)]
mod tests {
    use std::ffi::c_int;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    extern "C" fn twice(value: c_int) -> c_int {
        2 * value
    }

    fn find(name: &CStr) -> *mut c_void {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let found = name == c"twice" && CALLS.fetch_add(1, Ordering::AcqRel) == 1;
        if found { twice as *mut c_void } else { ptr::null_mut() }
    }

    #[test]
    fn what_is_found_is_kept() {
        let next = next_definition!(twice, find);
        let ours: extern "C" fn(c_int) -> c_int = twice;
        // SAFETY: it finds a function of this type.
        let look = || unsafe { next.like(ours) }.map(|real| real(21));
        assert_eq!([look(), look(), look()], [None, Some(42), Some(42)]);
    }
}
