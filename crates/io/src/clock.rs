//! The only place that asks what time it is.

use std::time::Instant;

/// Now.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}
