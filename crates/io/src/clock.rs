//! The only place that asks what time it is.

use std::time::{Instant, SystemTime};

use crate::sys;

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

/// Nanoseconds since the machine started: the clock of the devices.
pub fn ticks_ns() -> u64 {
    sys::monotonic_ns()
}

/// Nanoseconds since 1970 of a moment that the devices' clock gives as `ticks_ns`, as the
/// machine's own clock has it now.
pub fn wall_ns(ticks_ns: u64) -> u64 {
    time_of_day_ns().saturating_sub(self::ticks_ns().saturating_sub(ticks_ns))
}
