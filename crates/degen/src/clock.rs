//! The only place that asks what time it is.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use weft_units::NS_PER_SEC;

/// Nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub struct PathClock {
    start: Instant,
    /// What the calendar said then, in nanoseconds since 1970.
    epoch_ns: u64,
}

impl PathClock {
    /// A clock that begins at 0.
    #[allow(clippy::disallowed_methods)]
    pub fn start() -> Self {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), epoch_ns: nanoseconds(epoch) }
    }

    /// The time.
    pub fn now_ns(&self) -> u64 {
        nanoseconds(self.start.elapsed())
    }

    /// A time of this clock in nanoseconds since 1970.
    pub fn calendar_ns(&self, now_ns: u64) -> u64 {
        self.epoch_ns + now_ns
    }
}

/// The CPU time that this thread has used.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * NS_PER_SEC + time.tv_nsec as u64
}

/// How long this thread was ready to run and had no CPU; 0 where the kernel does not say.
pub fn thread_kept_waiting_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|number| number.parse().ok()).unwrap_or(0)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
