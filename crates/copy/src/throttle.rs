//! Holds a sender to a rate.
//!
//! Invariant: over any time no more is let go than the rate allows, and what it allows in 100 ms.
//!
//! Order: [`Throttle::wait`] before each message.

use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_sync::{Condvar, Mutex};

/// What may go at once, after a pause.
const BURST: Duration = Duration::from_millis(100);

/// A rate, and when the next byte may go.
#[derive(Debug)]
pub struct Throttle {
    bits_per_second: Option<u64>,
    free_at: Mutex<Option<Moment>>,
    never: Condvar,
}

impl Throttle {
    /// At most this rate; `None` for any.
    pub fn new(bits_per_second: Option<u64>) -> Self {
        let (free_at, never) = (Mutex::default(), Condvar::default());
        Self { bits_per_second: bits_per_second.filter(|rate| *rate > 0), free_at, never }
    }

    /// Waits until `bytes` more may go.
    pub fn wait(&self, bytes: usize) {
        let Some(rate) = self.bits_per_second else { return };
        let mut free_at = self.free_at.lock();
        let now = clock::now();
        let wait = delay(&mut free_at, now, bytes, rate);
        drop(free_at);
        if !wait.is_zero() {
            let guard = Mutex::new(());
            drop(self.never.wait_timeout_while(guard.lock(), wait, |()| true));
        }
    }
}

/// How long `bytes` have to wait at `now`.
fn delay(free_at: &mut Option<Moment>, now: Moment, bytes: usize, rate: u64) -> Duration {
    let takes = Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
    let earliest = now.checked_sub(BURST).unwrap_or(now);
    let from = free_at.map_or(earliest, |at| at.max(earliest));
    *free_at = Some(from + takes);
    from.saturating_duration_since(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_any_time() {
        let start = clock::now();
        let (mut now, mut free_at, mut sent) = (start, None, 0.0);
        for step in 1..1000_usize {
            let bytes = step * 37 % 5000;
            now += delay(&mut free_at, now, bytes, 1_000_000);
            // What is sent takes its time, so the message before is what has gone by now.
            let most = (now - start + BURST).as_secs_f64() * 1e6 / 8.0;
            assert!(sent <= most + 1.0, "{sent} bytes, {most} at most");
            sent += bytes as f64;
            if step % 100 == 0 {
                now += Duration::from_secs(1);
            }
        }
    }
}
