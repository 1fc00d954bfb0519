//! Directories of the kernel's own in which the view has names: a listing ends with them. What the
//! kernel has under such a name is listed once, as ours, since a path by it leads to ours.

use std::ffi::{CStr, c_char, c_int};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_sync::Mutex;

use super::devices::SHARED;
use super::directories::entry;
use super::lookup;
use super::tree::DirentKind;
use crate::errno;

/// The view's entries in a directory that is being read.
struct Guests {
    /// The address of the C library's stream.
    dir: usize,
    path: &'static str,
    names: Vec<(String, DirentKind)>,
    next: usize,
    /// The entry that was returned last; the next read overwrites it.
    entry: Box<libc::dirent64>,
}

/// They are few, and mostly there are none, which the count tells without a lock.
static OPEN: Mutex<Vec<Guests>> = Mutex::new(Vec::new());
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether the path of an application is one of these, in its plainest form.
///
/// # Safety
/// `path` is NULL or NUL-terminated.
pub unsafe fn is_shared(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: NUL-terminated by contract.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    find(&path[..end]).is_some()
}

fn find(path: &[u8]) -> Option<&'static str> {
    SHARED.iter().copied().find(|shared| shared.as_bytes() == path)
}

/// Looks whether the stream that the kernel's directory `fd` was opened as is one of these, and
/// gives it back. `errno` stays.
pub fn watched(dir: *mut libc::DIR, fd: impl FnOnce() -> c_int) -> *mut libc::DIR {
    if dir.is_null() {
        return dir;
    }
    let before = errno::get();
    let link = fs::read_link(format!("/proc/self/fd/{}", fd()));
    let path = link.ok().and_then(|link| find(link.as_os_str().as_bytes()));
    if let Some(path) = path {
        let names = lookup::children(path);
        // SAFETY: all zeroes is valid: integers.
        let entry = Box::new(unsafe { std::mem::zeroed() });
        OPEN.lock().push(Guests { dir: dir.addr(), path, names, next: 0, entry });
        COUNT.fetch_add(1, Ordering::AcqRel);
    }
    errno::set(before);
    dir
}

fn with<T>(dir: *mut libc::DIR, act: impl FnOnce(&mut Guests) -> T) -> Option<T> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    OPEN.lock().iter_mut().find(|guests| guests.dir == dir.addr()).map(act)
}

/// Whether the stream of the C library's is one of these.
pub fn has(dir: *mut libc::DIR) -> bool {
    with(dir, |_| ()).is_some()
}

/// The next entry of a stream of the C library's, which `real` reads.
pub fn read(dir: *mut libc::DIR, real: impl Fn() -> *mut libc::dirent64) -> *mut libc::dirent64 {
    loop {
        let found = real();
        if found.is_null() {
            return with(dir, Guests::read).unwrap_or(found);
        }
        // SAFETY: the entry is valid until the next read.
        let name: *const c_char = unsafe { (&raw const (*found).d_name).cast() };
        // SAFETY: names of entries are NUL-terminated.
        let name = unsafe { CStr::from_ptr(name) };
        let is_ours = |guests: &mut Guests| {
            guests.names.iter().any(|(ours, _)| ours.as_bytes() == name.to_bytes())
        };
        if with(dir, is_ours) != Some(true) {
            return found;
        }
    }
}

/// The stream begins anew, or goes on from a place that the kernel knows.
pub fn rewind(dir: *mut libc::DIR) {
    with(dir, |guests| guests.next = 0);
}

/// Forgets a stream that is being closed.
pub fn close(dir: *mut libc::DIR) {
    if COUNT.load(Ordering::Acquire) > 0 {
        let mut open = OPEN.lock();
        let before = open.len();
        open.retain(|guests| guests.dir != dir.addr());
        COUNT.fetch_sub(before - open.len(), Ordering::AcqRel);
    }
}

impl Guests {
    fn read(&mut self) -> *mut libc::dirent64 {
        let Some((name, kind)) = self.names.get(self.next) else { return ptr::null_mut() };
        self.next += 1;
        *self.entry = entry(self.path, name, *kind, self.next);
        &raw mut *self.entry
    }
}
