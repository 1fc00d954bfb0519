//! The only place that asks what time it is.

use std::ops::{Add, AddAssign, Sub};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use crate::sys;

/// The clock begins this long before the first look at it, so that there is a time before every
/// event.
const START_NS: u64 = 10_000_000_000;

/// Who comes so late to what was due was stopped, or waited for a processor: the time counts for no
/// verdict about a peer, who may have spoken meanwhile.
const STOPPED: Duration = Duration::from_millis(500);

/// A time on the clock of the process, which never goes back: nanoseconds, so that what is done for
/// each packet compares and stores it as it is. Sums and differences end at the ends of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    ns: u64,
}

impl Moment {
    /// How long after `earlier` it is; zero if it is before.
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// The same, or none.
    pub fn checked_duration_since(self, earlier: Self) -> Option<Duration> {
        self.ns.checked_sub(earlier.ns).map(Duration::from_nanos)
    }

    /// `time` later, or none if the clock ends before.
    pub fn checked_add(self, time: Duration) -> Option<Self> {
        let ns = u64::try_from(time.as_nanos()).ok()?;
        Some(Self { ns: self.ns.checked_add(ns)? })
    }

    /// `time` earlier, or none if the clock begins after.
    pub fn checked_sub(self, time: Duration) -> Option<Self> {
        Some(Self { ns: self.ns.checked_sub(length_ns(time))? })
    }

    /// How long ago it is.
    pub fn elapsed(self) -> Duration {
        now().saturating_duration_since(self)
    }
}

/// Nanoseconds, as far as they can be told.
fn length_ns(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(time.subsec_nanos().into())
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self { ns: self.ns.saturating_add(length_ns(time)) }
    }
}

impl AddAssign<Duration> for Moment {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self { ns: self.ns.saturating_sub(length_ns(time)) }
    }
}

impl Sub for Moment {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// For how long before `now` nobody ran, if something was `due` in that time and is only done now.
pub fn stopped_since(due: Moment, now: Moment) -> Option<Duration> {
    let late = now.saturating_duration_since(due);
    (late >= STOPPED).then_some(late)
}

/// Now.
pub fn now() -> Moment {
    // What others see of the clock says nothing of how long the machine has run.
    static FIRST_NS: AtomicU64 = AtomicU64::new(0);
    let mut first_ns = FIRST_NS.load(Ordering::Relaxed);
    if first_ns == 0 {
        first_ns = sys::monotonic_ns().max(1);
        // A signal handler may be here as well, and waits for nobody.
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if let Err(other) = FIRST_NS.compare_exchange(0, first_ns, success, failure) {
            first_ns = other;
        }
    }
    Moment { ns: START_NS.saturating_add(sys::monotonic_ns()).saturating_sub(first_ns) }
}

/// What `attempt` gives, tried again until then: who ends the process may have interrupted, in a
/// signal handler, the very thread that it would wait for.
pub fn retry<T>(until: Moment, attempt: impl Fn() -> Option<T>) -> Option<T> {
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
pub fn ns_at(now: Moment) -> u64 {
    now.ns
}

/// When Shuttle's clock shows `ns`.
pub fn moment_at(ns: u64) -> Moment {
    Moment { ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_time_before_the_first_look_and_none_after_the_last() {
        let first = now();
        assert!(ns_at(first) >= START_NS);
        assert!(first - Duration::from_secs(10) < first);
        assert_eq!(first - Duration::MAX, moment_at(0));
        assert_eq!(first + Duration::MAX, moment_at(u64::MAX));
        assert_eq!(first.checked_add(Duration::MAX), None);
        assert_eq!(first.checked_sub(Duration::MAX), None);
    }

    #[test]
    fn a_difference_is_what_was_added_and_none_backwards() {
        let (first, length) = (now(), Duration::new(3, 999_999_999));
        let later = first + length;
        assert_eq!((later - first, first - later), (length, Duration::ZERO));
        assert_eq!(later.checked_duration_since(first), Some(length));
        assert_eq!(first.checked_duration_since(later), None);
        assert_eq!(later - length, first);
    }
}
