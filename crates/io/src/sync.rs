//! What [`crate::slot`] is made of, which `tests/slot.rs` replaces by what loom offers.

pub use std::sync::atomic::{AtomicU8, Ordering};
pub use std::thread::{self, ThreadId};

pub use weft_sync::{Condvar, Mutex, MutexGuard};
