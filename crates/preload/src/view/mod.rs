//! The files that applications look for in `/sys/class/infiniband*` and `/dev/infiniband`.
//!
//! Programs, and the shell scripts around them, take a device for real when the kernel shows it
//! there. [`devices`] says which files there are, [`tree`] resolves paths among them, and
//! [`lookup`] decides which paths of an application are meant; [`files`], [`directories`] and
//! [`search`] answer the C library's functions for such paths. Nothing of it exists on disk: a file
//! is its text in memory, made when it is opened ([`handles`]). Other devices are not to be seen,
//! since no verb would reach them. [`current`] is where an application is whose directory is one of
//! the view, and [`shared`] adds the view's names to the kernel's directories that they are in.
//!
//! So applications in containers without `/sys` find the devices too, and so do their children, and
//! nothing is left behind on disk.
//!
//! What goes by system calls of its own does not see it: static programs, and the C library's
//! `fts`, which opens and reads directories inside of it.
//!
//! Invariant: a path that does not lead there is passed on as it is, after a look at its bytes, and
//! so is every path under `WEFT=off`.

#[cfg_attr(test, allow(dead_code, reason = "for the functions that tests do without"))]
mod counters;
#[cfg_attr(test, allow(dead_code, reason = "for the functions that tests do without"))]
mod current;
mod devices;
// The tests of this crate are a program of their own, whose files stay with the C library.
#[cfg(not(test))]
mod directories;
#[cfg(not(test))]
mod files;
#[cfg_attr(test, allow(dead_code, reason = "for the functions that tests do without"))]
mod handles;
#[cfg_attr(test, allow(dead_code, reason = "for the functions that tests do without"))]
mod lookup;
#[cfg(not(test))]
mod search;
#[cfg(not(test))]
mod shared;
#[cfg(not(test))]
mod status;
mod tree;

use std::ffi::CStr;

use tree::{Last, Node, ViewEntry, ViewPath};

/// The content of the file at `path`, if it is one of the view's.
pub fn text(path: &CStr) -> Option<String> {
    // SAFETY: NUL-terminated.
    match unsafe { lookup::at(libc::AT_FDCWD, path.as_ptr(), Last::Follow) } {
        Some(ViewPath { node: Node::Entry(ViewEntry::Text(text)), .. }) => Some(text),
        _ => None,
    }
}
