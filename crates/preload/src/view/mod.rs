//! What programs look for in `/sys/class/infiniband*` and `/dev/infiniband`.
//!
//! Programs, and the shell scripts around them, take a device for real when the kernel shows it
//! there. [`tree`] says what is at a path; [`files`] and [`directories`] answer the C library's
//! functions for such paths. Nothing of it exists on disk: a file is its text in memory, made when
//! it is opened. Other devices are not to be seen, since no verb would reach them.
//!
//! Invariant: a path that does not lead there is passed on as it is, after a look at its first
//! octets, and so is every path under `WEFT=off`.

// The tests of this crate are a program of their own, whose files stay with the C library.
#[cfg(not(test))]
mod directories;
#[cfg(not(test))]
mod files;
pub mod tree;
