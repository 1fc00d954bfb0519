//! Holds a sender to a rate.
//!
//! Invariant: over any time no more is let go than the rate allows, and what it allows in 100 ms.
//!
//! Order: [`Throttle::take`] before each message, again after the time that it gives; or
//! [`Throttle::wait`] by who has nothing else to heed meanwhile.

use std::thread;
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_sync::Mutex;

/// What may go at once, after a pause.
const BURST: Duration = Duration::from_millis(100);

/// A rate, and when the next byte may go.
#[derive(Debug)]
pub struct Throttle {
    bits_per_second: Option<u64>,
    free_at: Mutex<Option<Moment>>,
}

impl Throttle {
    /// At most this rate; `None` for any.
    pub fn new(bits_per_second: Option<u64>) -> Self {
        let bits_per_second = bits_per_second.filter(|rate| *rate > 0);
        Self { bits_per_second, free_at: Mutex::default() }
    }

    /// Lets `bytes` more go now.
    ///
    /// # Errors
    /// They may not yet, but after this time, unless others go first. Nothing is kept free for
    /// them, so that who does not come back holds nobody up.
    pub fn take(&self, bytes: usize) -> Result<(), Duration> {
        let Some(rate) = self.bits_per_second else { return Ok(()) };
        take(&mut self.free_at.lock(), clock::now(), bytes, rate)
    }

    /// Waits until `bytes` more may go.
    pub fn wait(&self, bytes: usize) {
        while let Err(wait) = self.take(bytes) {
            thread::park_timeout(wait);
        }
    }
}

/// Lets `bytes` go at `now`, or says how long they have to wait.
fn take(
    free_at: &mut Option<Moment>,
    now: Moment,
    bytes: usize,
    rate: u64,
) -> Result<(), Duration> {
    let takes = Duration::from_secs_f64(bytes as f64 * 8.0 / rate as f64);
    let earliest = now.checked_sub(BURST).unwrap_or(now);
    let from = free_at.map_or(earliest, |at| at.max(earliest));
    let wait = from.saturating_duration_since(now);
    if !wait.is_zero() {
        return Err(wait);
    }
    *free_at = Some(from + takes);
    Ok(())
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
            let mut take = |now| take(&mut free_at, now, bytes, 1_000_000);
            if let Err(wait) = take(now) {
                now += wait;
                assert_eq!(take(now), Ok(()), "it has waited as long as it was told");
            }
            // What is sent takes its time, so the message before is what has gone by now.
            let most = (now - start + BURST).as_secs_f64() * 1e6 / 8.0;
            assert!(sent <= most + 1.0, "{sent} bytes, {most} at most");
            sent += bytes as f64;
            if step % 100 == 0 {
                now += Duration::from_secs(1);
            }
        }
    }

    #[test]
    fn who_does_not_come_back_holds_nobody_up() {
        let (now, mut free_at) = (clock::now(), None);
        let mut take = |now, bytes| take(&mut free_at, now, bytes, 8);
        assert_eq!(take(now, 10), Ok(()));
        let wait = take(now, 1_000_000).unwrap_err();
        assert!(wait < Duration::from_secs(10), "{wait:?}");
        assert_eq!(take(now, 1), Err(wait));
    }
}
