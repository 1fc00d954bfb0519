//! How long connections by pairs last, so that those of one small request each go by TCP.
//!
//! A pair costs some 60 µs of CPU more to make than TCP's connection, both ends together, and saves
//! a few microseconds a round trip. A process that calls a listener again and again for connections
//! of less than [`SHORT`] loses by it, so its next ones go by TCP, for [`PAUSE`].
//!
//! It is an estimate, made at the end that connects. A descriptor that another process closes, or
//! `dup2` replaces, is not seen to end: its life is long then, which changes nothing.
//!
//! Order of calls: [`PairLives::is_short_lived`] before a pair is offered, [`PairLives::begin`]
//! once it is there, [`PairLives::end`] when its descriptor is closed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use weft_os::clock::{self, Moment};
use weft_sync::Mutex;

/// A connection that ends sooner than this had no time to make up for what its pair cost.
const SHORT: Duration = Duration::from_millis(1);
/// So many short ones in a row are a habit.
const ROW: u8 = 8;
/// For so long a habit is believed in. Then one connection shows whether it has ended.
const PAUSE: Duration = Duration::from_secs(10);
/// Connections and listeners that are watched at most; there is no estimate for others.
const WATCHED_MAX: usize = 1024;

/// The habit of the connections to a listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LifeHabit {
    /// Short ones in a row.
    row: u8,
    /// Until then they go by TCP.
    until: Option<Moment>,
}

#[derive(Default)]
struct LivesByFd {
    open: HashMap<RawFd, (SocketAddr, Moment)>,
    habits: HashMap<SocketAddr, LifeHabit>,
}

/// The lives of the pairs that this process has made.
#[derive(Default)]
pub struct PairLives {
    lives: Mutex<LivesByFd>,
    /// How many are open, for who closes other descriptors.
    open: AtomicUsize,
}

impl PairLives {
    /// Whether the connections to `listener` are too short for a pair.
    pub fn is_short_lived(&self, listener: SocketAddr, now: Moment) -> bool {
        let lives = self.lives.lock();
        let until = lives.habits.get(&listener).and_then(|habit| habit.until);
        until.is_some_and(|until| now < until)
    }

    /// `fd` is an end of a pair with who accepts at `listener`.
    pub fn begin(&self, fd: RawFd, listener: SocketAddr, now: Moment) {
        let mut lives = self.lives.lock();
        let LivesByFd { open, habits } = &mut *lives;
        let known = habits.contains_key(&listener);
        if open.len() < WATCHED_MAX && (known || habits.len() < WATCHED_MAX) {
            habits.entry(listener).or_default();
            open.insert(fd, (listener, now));
            self.open.store(open.len(), Ordering::Relaxed);
        }
    }

    /// The application closes `fd`, whatever it is.
    pub fn end(&self, fd: RawFd) {
        if self.open.load(Ordering::Relaxed) > 0 {
            self.end_at(fd, clock::now());
        }
    }

    fn end_at(&self, fd: RawFd, now: Moment) {
        let mut lives = self.lives.lock();
        let LivesByFd { open, habits } = &mut *lives;
        let Some((listener, began)) = open.remove(&fd) else { return };
        self.open.store(open.len(), Ordering::Relaxed);
        if let Some(habit) = habits.get_mut(&listener) {
            habit.note(now.saturating_duration_since(began), now);
        }
    }
}

impl LifeHabit {
    /// One has ended after `life`, at `now`.
    fn note(&mut self, life: Duration, now: Moment) {
        if life >= SHORT {
            *self = Self::default();
            return;
        }
        self.row = self.row.saturating_add(1);
        if self.row >= ROW {
            self.until = Some(now + PAUSE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listener() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 80))
    }

    /// Has `count` connections live for `life` each, one after the other from `now` on.
    fn live(lives: &PairLives, now: &mut Moment, count: u8, life: Duration) {
        for _ in 0..count {
            lives.begin(3, listener(), *now);
            *now += life;
            lives.end_at(3, *now);
        }
    }

    #[test]
    fn who_connects_for_moments_is_left_to_tcp_for_a_while() {
        let (lives, mut now) = (PairLives::default(), clock::now());
        live(&lives, &mut now, ROW - 1, SHORT / 2);
        assert!(!lives.is_short_lived(listener(), now));
        live(&lives, &mut now, 1, SHORT / 2);
        assert!(lives.is_short_lived(listener(), now) && lives.open.load(Ordering::Relaxed) == 0);
        now += PAUSE;
        assert!(!lives.is_short_lived(listener(), now));
        // The habit goes on, or has ended.
        live(&lives, &mut now, 1, SHORT / 2);
        assert!(lives.is_short_lived(listener(), now));
        now += PAUSE;
        live(&lives, &mut now, 1, SHORT);
        live(&lives, &mut now, ROW - 1, SHORT / 2);
        assert!(!lives.is_short_lived(listener(), now));
    }

    #[test]
    fn other_descriptors_say_nothing_and_a_bounded_number_is_watched() {
        let (lives, now) = (PairLives::default(), clock::now());
        (0..RawFd::from(u16::MAX)).for_each(|fd| lives.begin(fd, listener(), now));
        (0..RawFd::from(u16::MAX))
            .rev()
            .take(usize::from(ROW))
            .for_each(|fd| lives.end_at(fd, now));
        assert!(!lives.is_short_lived(listener(), now));
        assert_eq!(lives.open.load(Ordering::Relaxed), WATCHED_MAX);
    }
}
