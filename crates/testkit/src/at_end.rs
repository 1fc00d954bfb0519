//! What is set when a test ends, also where it fails.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets a flag at the end of its scope: a thread that goes on until then ends although the test has
/// failed, for which the scope of threads waits.
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
