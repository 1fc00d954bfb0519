//! The calling conventions for errors of the two C libraries.
//!
//! Functions that give a pointer set `errno` and give NULL; most that give an integer give the
//! positive errno itself; a few set `errno` and give -1.

use std::ffi::c_int;
use std::ptr;

use weft_verbs::Misuse;

/// Sets the `errno` of this thread.
pub fn set(errno: c_int) {
    // SAFETY: the C library gives each thread a valid location.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location belongs to this thread.
    unsafe { *location = errno };
}

/// The `errno` of this thread.
pub fn get() -> c_int {
    // SAFETY: the C library gives each thread a valid location.
    let location = unsafe { libc::__errno_location() };
    // SAFETY: the location belongs to this thread.
    unsafe { *location }
}

/// Sets `errno` and gives -1.
pub fn minus_one(errno: c_int) -> c_int {
    set(errno);
    -1
}

/// Sets `errno` and gives NULL.
pub fn null<T>(errno: c_int) -> *mut T {
    set(errno);
    ptr::null_mut()
}

/// In what makes something or may let it grow: without memory nothing is begun, since Rust ends
/// the process that an allocation fails in. `needs_memory!(errno::null)` names how the function
/// fails.
macro_rules! needs_memory {
    ($fail:expr) => {
        if weft_memory::is_short() {
            return $fail(libc::ENOMEM);
        }
    };
}
pub(crate) use needs_memory;

/// Zero, or the positive errno. `errno` is set too, since some applications print that one.
pub fn positive(result: Result<(), Misuse>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(misuse) => code(misuse.errno()),
    }
}

/// The positive errno, which is set too.
pub fn code(errno: c_int) -> c_int {
    set(errno);
    errno
}
