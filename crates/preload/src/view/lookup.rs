//! From the arguments of a C function to what is in the tree.
//!
//! Every `open` of the process comes by here, so a path is passed on after a look at its bytes:
//! only what names the devices is resolved, and what is relative to a descriptor of the view.

use std::cell::Cell;
use std::env::current_dir;
use std::ffi::{CStr, c_char, c_int};
use std::sync::Arc;

use super::devices::{self, PCI_DOMAIN};
use super::tree::{DirentKind, Last, Tree, ViewPath};
use super::{counters, current, handles};
use crate::env;

/// Every path to the devices contains one of these.
const NAMES: [&[u8]; 2] = [b"infiniband", PCI_DOMAIN.as_bytes()];
/// Prefixes of such paths.
const TOPS: [&[u8]; 2] = [b"/sys/", b"/dev/"];

/// Resolves `path`, relative to the directory `dir`; `None` if it is the kernel's.
///
/// # Safety
/// `path` is NULL or NUL-terminated.
pub unsafe fn at(dir: c_int, path: *const c_char, last: Last) -> Option<ViewPath> {
    if path.is_null() {
        return None;
    }
    // SAFETY: NUL-terminated by contract.
    let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
    if bytes.starts_with(b"/") {
        return if may_be_ours(bytes) {
            find(std::str::from_utf8(bytes).ok()?, last)
        } else {
            None
        };
    }
    let dir = match current::descriptor() {
        Some(current) if dir == libc::AT_FDCWD && !bytes.is_empty() => current,
        _ => dir,
    };
    if let Some(base) = handles::path_of(dir) {
        let path = std::str::from_utf8(bytes).ok()?;
        // The kernel cannot resolve what is relative to a descriptor of the view.
        return Some(beside(&base, path, last));
    }
    if !names_devices(bytes) || dir < 0 && dir != libc::AT_FDCWD {
        return None;
    }
    let base = if dir == libc::AT_FDCWD {
        current_dir().ok()?
    } else {
        std::fs::read_link(format!("/proc/self/fd/{dir}")).ok()?
    };
    let path = base.join(std::str::from_utf8(bytes).ok()?);
    let path = path.to_str()?;
    if may_be_ours(path.as_bytes()) { find(path, last) } else { None }
}

fn beside(base: &str, path: &str, last: Last) -> ViewPath {
    if path.is_empty() {
        return find(base, Last::Keep).unwrap_or_else(|| ViewPath::elsewhere(base, &[]));
    }
    let path = format!("{base}/{path}");
    find(&path, last).unwrap_or_else(|| ViewPath::elsewhere(&path, &[]))
}

/// Resolves an absolute path in the tree.
pub fn find(path: &str, last: Last) -> Option<ViewPath> {
    with_tree(|tree| tree.resolve(path, last)).flatten().map(counters::filled)
}

/// The names in the directory at a canonical path of the tree.
pub fn children(path: &str) -> Vec<(String, DirentKind)> {
    with_tree(|tree| tree.children(path)).unwrap_or_default()
}

fn with_tree<T>(act: impl FnOnce(&Tree) -> T) -> Option<T> {
    thread_local! {
        /// Making the tree reads files, which are the kernel's whatever their names.
        static BUSY: Cell<bool> = const { Cell::new(false) };
    }
    if env::has_no_devices_now() || BUSY.try_with(|busy| busy.replace(true)).unwrap_or(true) {
        return None;
    }
    let tree: Arc<Tree> = devices::tree();
    let _threads_that_end_have_none = BUSY.try_with(|busy| busy.set(false));
    Some(act(&tree))
}

fn may_be_ours(path: &[u8]) -> bool {
    TOPS.iter().any(|top| path.starts_with(top)) && names_devices(path)
}

fn names_devices(path: &[u8]) -> bool {
    NAMES.iter().any(|name| path.windows(name.len()).any(|part| part == *name))
}
