//! The only place that asks what time it is.

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use crate::sys;

/// The clock of Shuttle begins this long before the first look at it, so that there is a time
/// before every event.
const SHUTTLE_START_NS: u64 = 10_000_000_000;

/// Who comes so late to what was due was stopped, or waited for a processor: the time counts for no
/// verdict about a peer, who may have spoken meanwhile.
const STOPPED: Duration = Duration::from_millis(500);

/// For how long before `now` nobody ran, if something was `due` in that time and is only done now.
pub fn stopped_since(due: Instant, now: Instant) -> Option<Duration> {
    let late = now.saturating_duration_since(due);
    (late >= STOPPED).then_some(late)
}

/// Now.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}

/// What `attempt` gives, tried again until then: who ends the process may have interrupted, in a
/// signal handler, the very thread that it would wait for.
pub fn retry<T>(until: Instant, attempt: impl Fn() -> Option<T>) -> Option<T> {
    loop {
        let found = attempt();
        if found.is_some() || now() >= until {
            return found;
        }
        std::thread::yield_now();
    }
}

/// Nanoseconds of the time of day since 1970; zero before that.
#[allow(clippy::disallowed_methods)]
pub fn time_of_day_ns() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Milliseconds of the time of day since 1970; zero before that.
pub fn time_of_day_ms() -> u64 {
    time_of_day_ns() / 1_000_000
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

/// Nanoseconds on Shuttle's clock, which all connections of the process share.
pub fn ns_at(now: Instant) -> u64 {
    let past = now.saturating_duration_since(shuttle_start());
    SHUTTLE_START_NS + u64::try_from(past.as_nanos()).unwrap_or(u64::MAX / 2)
}

/// When Shuttle's clock shows `ns`.
pub fn instant_at(ns: u64) -> Instant {
    shuttle_start() + Duration::from_nanos(ns.saturating_sub(SHUTTLE_START_NS))
}

fn shuttle_start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(now)
}
