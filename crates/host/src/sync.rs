//! What [`crate::slot`] and [`crate::lease`] are made of, which `tests/slot.rs` replaces by what
//! loom offers.

pub use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

pub use weft_os::thread::{ThreadId, this_thread};
pub use weft_sync::{Condvar, Mutex, MutexGuard};
