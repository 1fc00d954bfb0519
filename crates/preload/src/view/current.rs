//! The current directory, while it is one of the view.
//!
//! The kernel cannot be there: it is in [`AWAY`] meanwhile, where it can make nothing, and a
//! descriptor stands for the directory. Programs that are started there inherit both, and by the
//! one they know that they are to look for the other.

use std::ffi::{CString, c_char, c_int};
use std::fs;
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

use weft_os::borrowed;

use super::tree::{Last, Node, ViewPath};
use super::{handles, lookup};
use crate::real::next;
use crate::{env, errno};

/// The directory that the kernel has meanwhile.
const AWAY: &[u8] = b"/proc\0";
/// No descriptor: the kernel is where the application is.
const NONE: c_int = -1;
/// No call has looked for an inherited descriptor.
const UNKNOWN: c_int = -2;
/// Out of the way of applications that count on low numbers.
const LEAST_FD: c_int = 512;

static CURRENT: AtomicI32 = AtomicI32::new(UNKNOWN);

/// The descriptor that stands for the current directory, if that is of the view.
pub fn descriptor() -> Option<c_int> {
    let mut fd = CURRENT.load(Ordering::Acquire);
    if fd == UNKNOWN {
        let before = errno::get();
        let found = inherited().unwrap_or(NONE);
        errno::set(before);
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let was = CURRENT.compare_exchange(UNKNOWN, found, success, failure);
        fd = was.map_or_else(|now| now, |_| found);
    }
    (fd != NONE).then_some(fd)
}

/// The descriptor that the program that started this one left open.
fn inherited() -> Option<c_int> {
    let mut place = [0_u8; AWAY.len() + 1];
    // SAFETY: there is room for as much as is said.
    unsafe { libc::syscall(libc::SYS_getcwd, place.as_mut_ptr(), place.len()) };
    if !place.starts_with(AWAY) || env::has_no_devices_now() {
        return None;
    }
    let open = fs::read_dir("/proc/self/fd").ok()?.flatten();
    let mut numbers = open.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|fd| handles::stands_for_current(*fd))
}

/// The path of the current directory, if that is of the view.
fn path() -> Option<String> {
    handles::path_of(descriptor()?)
}

/// Goes to what was found.
fn enter(found: &ViewPath) -> c_int {
    match found.node {
        Node::Directory => {}
        Node::Missing(code) => return errno::minus_one(code),
        _ => return errno::minus_one(libc::ENOTDIR),
    }
    let low = handles::make_current(&found.path);
    if low < 0 {
        return low;
    }
    // SAFETY: takes integers only.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD, LEAST_FD) };
    let fd = if high < 0 { low } else { high };
    if high >= 0 {
        // SAFETY: made above.
        unsafe { libc::close(low) };
    }
    // SAFETY: a NUL-terminated path. Without `/proc` the kernel stays where it is.
    unsafe { libc::syscall(libc::SYS_chdir, AWAY.as_ptr()) };
    leave_for(fd);
    0
}

/// Looks for an inherited descriptor before the kernel goes elsewhere, when nobody could tell any
/// more whose it is.
fn look() {
    let _known = descriptor();
}

/// `fd` stands for the current directory from now on. A child that shares its memory with its
/// parent has descriptors and a directory of its own, which the program that it executes finds; the
/// parent's stay as they are.
fn leave_for(fd: c_int) {
    let looked_for = descriptor().unwrap_or(NONE);
    let old = match borrowed::is_guest() {
        true => looked_for,
        false => CURRENT.swap(fd, Ordering::AcqRel),
    };
    // The application may have closed all that it does not know, and have others of that number.
    if old != NONE && old != fd && handles::stands_for_current(old) {
        // SAFETY: it was made here, or inherited from who made it here.
        unsafe { libc::close(old) };
    }
}

/// The kernel has gone where the application wanted to, if `done` says so.
fn left(done: c_int) -> c_int {
    if done == 0 {
        leave_for(NONE);
    }
    done
}

/// `chdir`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn chdir(path: *const c_char) -> c_int {
    look();
    let real = |path| match next!(chdir(path)) {
        // SAFETY: as for the C function.
        Some(real) => unsafe { real(path) },
        None => errno::minus_one(libc::ENOSYS),
    };
    // SAFETY: as for the C function.
    match unsafe { lookup::at(libc::AT_FDCWD, path, Last::Follow) } {
        None => left(real(path)),
        Some(ViewPath { node: Node::Elsewhere(target), .. }) => left(real(target.as_ptr())),
        Some(found) => enter(&found),
    }
}

/// `fchdir`.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn fchdir(fd: c_int) -> c_int {
    look();
    let found = handles::path_of(fd).and_then(|path| lookup::find(&path, Last::Keep));
    match (found, next!(fchdir(fd))) {
        (Some(found), _) => enter(&found),
        // SAFETY: as for the C function.
        (None, Some(real)) => left(unsafe { real(fd) }),
        (None, None) => errno::minus_one(libc::ENOSYS),
    }
}

/// `getcwd`: where the application is, not the kernel.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn getcwd(out: *mut c_char, size: usize) -> *mut c_char {
    match (path(), next!(getcwd(out, size))) {
        // SAFETY: as for the C function.
        (Some(path), _) => unsafe { write(path, out, size) },
        // SAFETY: as for the C function.
        (None, Some(real)) => unsafe { real(out, size) },
        (None, None) => errno::null(libc::ENOSYS),
    }
}

/// `__getcwd_chk`: `getcwd` where the compiler knows how large the buffer is.
///
/// # Safety
/// As for the C function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn __getcwd_chk(out: *mut c_char, size: usize, room: usize) -> *mut c_char {
    match (path(), next!(__getcwd_chk(out, size, room))) {
        // SAFETY: as for the C function.
        (Some(path), _) => unsafe { write(path, out, size.min(room)) },
        // SAFETY: as for the C function.
        (None, Some(real)) => unsafe { real(out, size, room) },
        (None, None) => errno::null(libc::ENOSYS),
    }
}

/// `get_current_dir_name`.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn get_current_dir_name() -> *mut c_char {
    match (path(), next!(get_current_dir_name())) {
        // SAFETY: without a buffer a new one is made, which the application frees.
        (Some(path), _) => unsafe { write(path, ptr::null_mut(), 0) },
        // SAFETY: it takes nothing.
        (None, Some(real)) => unsafe { real() },
        (None, None) => errno::null(libc::ENOSYS),
    }
}

/// # Safety
/// `out` is NULL or has room for `size` bytes.
unsafe fn write(path: String, out: *mut c_char, size: usize) -> *mut c_char {
    let Ok(path) = CString::new(path) else { return errno::null(libc::ENOENT) };
    let bytes = path.as_bytes_with_nul();
    if size < bytes.len() && !(out.is_null() && size == 0) {
        return errno::null(if size == 0 { libc::EINVAL } else { libc::ERANGE });
    }
    if out.is_null() {
        // SAFETY: NUL-terminated; the application frees the copy.
        return unsafe { libc::strdup(path.as_ptr()) };
    }
    // SAFETY: `out` has room for so many by contract.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr().cast(), out, bytes.len()) };
    out
}
