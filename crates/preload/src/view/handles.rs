//! The descriptors that are opened by a path of the view.
//!
//! Each is a file in memory whose name is the path that it stands for, so it means the same however
//! it is copied or passed on, and nothing has to be kept about it.

use std::ffi::{CString, c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::errno;

/// Prefix of the name of such a file, before its path.
const MARK: &str = "weft:";
/// Inserted between both if it is the current directory.
const CURRENT: &str = "current:";
/// Added to the name by `/proc`: before it and, as nothing links to the file, behind it.
const BEFORE: &str = "/memfd:";
const BEHIND: &str = " (deleted)";

/// The device number of files in memory; 0 until the process has opened a path of the view.
static MEMORY: AtomicU64 = AtomicU64::new(0);

/// A descriptor that stands for `path` and reads as `text`; -1 with `errno` if there is none.
pub fn make(path: &str, text: &str, flags: c_int) -> c_int {
    let fd = in_memory(path, !text.is_empty(), flags & libc::O_CLOEXEC);
    if fd < 0 || text.is_empty() {
        return fd;
    }
    // SAFETY: the text is readable; it is far shorter than what one call writes.
    let written = unsafe { libc::write(fd, text.as_ptr().cast::<c_void>(), text.len()) };
    // SAFETY: plain arguments.
    unsafe { libc::lseek(fd, 0, libc::SEEK_SET) };
    if written != text.len() as isize {
        // SAFETY: a descriptor of ours.
        unsafe { libc::close(fd) };
        return errno::minus_one(libc::EIO);
    }
    fd
}

/// A descriptor that stands for the current directory, and is left to children; -1 with `errno` if
/// there is none.
pub fn make_current(path: &str) -> c_int {
    in_memory(&format!("{CURRENT}{path}"), false, 0)
}

/// Whether `fd`, which another program may have made, stands for the current directory.
pub fn stands_for_current(fd: c_int) -> bool {
    let Ok(name) = std::fs::read_link(format!("/proc/self/fd/{fd}")) else { return false };
    let is_one = name.to_str().is_some_and(|n| n.starts_with(&format!("{BEFORE}{MARK}{CURRENT}")));
    if let (true, Some(device)) = (is_one, device_of(fd)) {
        MEMORY.store(device, Ordering::Release);
    }
    is_one
}

/// An empty file in memory. Where sandboxes forbid that, any file without a name will do for text.
fn in_memory(path: &str, has_text: bool, close: c_int) -> c_int {
    let Ok(name) = CString::new(format!("{MARK}{path}")) else {
        return errno::minus_one(libc::ENOENT);
    };
    let cloexec = if close != 0 { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: the name is NUL-terminated.
    let mut fd = unsafe { libc::memfd_create(name.as_ptr(), cloexec) };
    if let Some(device) = device_of(fd) {
        MEMORY.store(device, Ordering::Release);
    }
    for dir in [c"/dev/shm", c"/tmp"] {
        if fd < 0 && has_text {
            let flags = libc::O_TMPFILE | libc::O_RDWR | close;
            // SAFETY: the path is NUL-terminated; the mode is an integer.
            fd = unsafe { libc::open(dir.as_ptr(), flags, 0o600) };
        }
    }
    fd
}

/// The path that `fd` was opened by, if it is of the view. `errno` stays.
pub fn path_of(fd: c_int) -> Option<String> {
    let memory = MEMORY.load(Ordering::Acquire);
    if fd < 0 || memory == 0 {
        return None;
    }
    let before = errno::get();
    let name = (device_of(fd) == Some(memory))
        .then(|| std::fs::read_link(format!("/proc/self/fd/{fd}")).ok())
        .flatten();
    errno::set(before);
    let name = name?.into_os_string().into_string().ok()?;
    let path = name.strip_prefix(BEFORE)?.strip_prefix(MARK)?;
    let path = path.strip_prefix(CURRENT).unwrap_or(path);
    Some(path.strip_suffix(BEHIND).unwrap_or(path).to_owned())
}

fn device_of(fd: c_int) -> Option<u64> {
    // SAFETY: all zeroes is valid: integers.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // `fstat` of the C library is one of the view's own hooks.
    // SAFETY: the kernel's structure is the C library's on this machine.
    let done = unsafe { libc::syscall(libc::SYS_fstat, fd, &raw mut stat) };
    (done == 0).then_some(stat.st_dev)
}
