//! The interposed `dlopen`, `dlsym` and `dlvsym`.
//!
//! Each hook first asks a Rust function whether it has an answer of its own. If so it returns
//! it; if not it restores the arguments and *jumps* to the real function, which then sees the
//! caller's return address.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;

use super::real;
use crate::{env, pass};

/// Names of functions that libibverbs and librdmacm export begin with one of these.
const PREFIXES: [&[u8]; 5] = [b"ibv_", b"_ibv_", b"rdma_", b"mbps_to_ibv_", b"mult_to_ibv_"];

/// The libraries this one stands in for.
const STEMS: [&[u8]; 2] = [b"libibverbs.so", b"librdmacm.so"];

/// The body of a hook of up to three arguments: what `$answer` says, unless that is NULL; then a
/// jump to the function whose address is in `$real`.
#[cfg(target_arch = "x86_64")]
macro_rules! answer_or_jump {
    ($answer:path, $real:path) => {
        naked_asm!(
            "push rdi",
            "push rsi",
            "push rdx",
            "call {answer}",
            "pop rdx",
            "pop rsi",
            "pop rdi",
            "test rax, rax",
            "jne 2f",
            "jmp qword ptr [rip + {real}]",
            "2: ret",
            answer = sym $answer,
            real = sym $real,
        )
    };
}

/// As on x86-64. The link register holds the caller's return address.
#[cfg(target_arch = "aarch64")]
macro_rules! answer_or_jump {
    ($answer:path, $real:path) => {
        naked_asm!(
            "stp x29, x30, [sp, #-48]!",
            "mov x29, sp",
            "stp x0, x1, [sp, #16]",
            "str x2, [sp, #32]",
            "bl {answer}",
            "mov x16, x0",
            "ldp x0, x1, [sp, #16]",
            "ldr x2, [sp, #32]",
            "ldp x29, x30, [sp], #48",
            "cbnz x16, 2f",
            "adrp x16, {real}",
            "ldr x16, [x16, :lo12:{real}]",
            "br x16",
            "2: mov x0, x16",
            "ret",
            answer = sym $answer,
            real = sym $real,
        )
    };
}

/// `dlsym(handle, name)`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    answer_or_jump!(answer_dlsym, real::DLSYM)
}

/// `dlvsym(handle, name, version)`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlvsym(
    handle: *mut c_void,
    name: *const c_char,
    version: *const c_char,
) -> *mut c_void {
    answer_or_jump!(answer_dlvsym, real::DLVSYM)
}

/// `dlopen(file, flags)`.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    answer_or_jump!(answer_dlopen, real::DLOPEN)
}

unsafe extern "C" fn answer_dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    let real_dlsym = real::dlsym();
    let Some(ours) = wanted(name) else { return ptr::null_mut() };
    if handle == libc::RTLD_NEXT {
        return ours;
    }
    // SAFETY: the caller's handle and name; what this lookup finds does not depend on who asks,
    // because `RTLD_NEXT` was handled above.
    let found = unsafe { real_dlsym(handle, name) };
    let served = match found.is_null() {
        // What the installed version does not have, nobody has with passthrough.
        true => !pass::is_wanted_now() && leads_to_rdma_core(handle, name),
        false => found == ours || is_rdma_core(found),
    };
    if served { ours } else { ptr::null_mut() }
}

/// Whether the library that `name` belongs to is found under `handle`. If so, a name that the
/// installed version does not have yet is served too, and the message of the lookup that failed is
/// taken away.
fn leads_to_rdma_core(handle: *mut c_void, name: *const c_char) -> bool {
    // SAFETY: the caller passes a NUL-terminated string.
    let cm = unsafe { CStr::from_ptr(name) }.to_bytes().starts_with(b"rdma_");
    let old = if cm { c"rdma_create_id" } else { c"ibv_open_device" };
    // SAFETY: the caller's handle and a NUL-terminated name.
    let known = is_rdma_core(unsafe { real::dlsym()(handle, old.as_ptr()) });
    if known {
        // SAFETY: taking the message clears it, as after a success.
        unsafe { libc::dlerror() };
    }
    known
}

/// A version restricts the search to the real libraries, because this one has no versions; so a
/// search by order is answered at once.
unsafe extern "C" fn answer_dlvsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    real::resolve_dlvsym();
    if handle == libc::RTLD_DEFAULT
        && let Some(ours) = wanted(name)
    {
        return ours;
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { answer_dlsym(handle, name) }
}

unsafe extern "C" fn answer_dlopen(file: *const c_char, flags: c_int) -> *mut c_void {
    let real_dlopen = real::dlopen();
    // `RTLD_NOLOAD` only queries whether a library is loaded: the true answer.
    if file.is_null() || flags & libc::RTLD_NOLOAD != 0 || env::has_no_devices_now() {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes a NUL-terminated string.
    if !names_rdma_core(unsafe { CStr::from_ptr(file) }) {
        return ptr::null_mut();
    }
    // SAFETY: the caller's arguments.
    let handle = unsafe { real_dlopen(file, flags) };
    if !handle.is_null() {
        return handle;
    }
    // SAFETY: taking the message of the failed attempt clears it, as after a success.
    unsafe { libc::dlerror() };
    real::own_handle().unwrap_or(ptr::null_mut())
}

/// Our definition of `name`, if it is one that Weft serves and Weft is on.
fn wanted(name: *const c_char) -> Option<*mut c_void> {
    if name.is_null() {
        return None;
    }
    // SAFETY: the caller passes a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(name) };
    if !PREFIXES.iter().any(|p| name.to_bytes().starts_with(p)) || env::off_now() {
        return None;
    }
    real::own(name)
}

/// Whether `address` lies in libibverbs or librdmacm.
fn is_rdma_core(address: *const c_void) -> bool {
    if address.is_null() {
        return false;
    }
    let object = real::object_of(address);
    // SAFETY: paths of loaded objects are NUL-terminated.
    !object.is_null() && names_rdma_core(unsafe { CStr::from_ptr(object) })
}

/// Whether a path ends in the file name of one of the libraries, with or without a version.
fn names_rdma_core(path: &CStr) -> bool {
    let file = path.to_bytes().rsplit(|c| *c == b'/').next().unwrap_or_default();
    STEMS.iter().any(|stem| match file.strip_prefix(*stem) {
        Some(rest) => rest.is_empty() || rest[0] == b'.',
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_of_rdma_core_are_recognised() {
        for yes in [c"libibverbs.so.1", c"/usr/lib/libibverbs.so.1.14.44.0", c"librdmacm.so"] {
            assert!(names_rdma_core(yes), "{yes:?}");
        }
        for no in [c"libibverbs.solo", c"libibverbs.so.1/x", c"libmlx5.so.1", c"libc.so.6", c""] {
            assert!(!names_rdma_core(no), "{no:?}");
        }
    }

    /// The first version of the C library on this architecture.
    const FIRST_VERSION: &CStr =
        if cfg!(target_arch = "x86_64") { c"GLIBC_2.2.5" } else { c"GLIBC_2.17" };

    #[test]
    fn other_names_reach_the_real_function() {
        // SAFETY: a NUL-terminated name.
        let found = unsafe { dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()) };
        assert_eq!(found as usize, libc::malloc as *const () as usize);
        // SAFETY: as above.
        let versioned =
            unsafe { dlvsym(libc::RTLD_DEFAULT, c"qsort".as_ptr(), FIRST_VERSION.as_ptr()) };
        assert!(!versioned.is_null());
        // SAFETY: as above.
        assert!(unsafe { dlopen(c"no_such_library.so".as_ptr(), libc::RTLD_LAZY) }.is_null());
    }
}
