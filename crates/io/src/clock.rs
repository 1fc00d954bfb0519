//! The only place that asks what time it is.

use std::time::{Instant, SystemTime};

/// Now.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// Nanoseconds of the time of day since 1970; zero before that.
#[allow(clippy::disallowed_methods)]
pub(crate) fn time_of_day_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
