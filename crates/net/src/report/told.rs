//! Which lines were told, and how many more may be.
//!
//! Invariant: what is told of one level takes nothing from another, and with time there is room
//! again, however many lines were told.

use std::collections::BTreeSet;
use std::time::Duration;

use log::Level;
use weft_os::clock::Moment;

/// Lines of one level at once, and how long until another one may be told.
const BURST: u32 = 64;
const PAUSE: Duration = Duration::from_secs(10);
/// Lines of one level that are remembered; beyond that all are forgotten, and may be told again.
const REMEMBERED_MAX: usize = 1024;

/// So many at once, and one more after each pause.
#[derive(Clone, Debug)]
pub(super) struct LineAllowance {
    burst: u32,
    pause: Duration,
    /// How many are left, and since when there are so many.
    left: u32,
    since: Option<Moment>,
}

impl LineAllowance {
    pub(super) const fn new(burst: u32, pause: Duration) -> Self {
        Self { burst, pause, left: burst, since: None }
    }

    /// Takes one; whether there was one.
    pub(super) fn spend(&mut self, now: Moment) -> bool {
        let since = self.since.get_or_insert(now);
        while self.left < self.burst && now >= *since + self.pause {
            self.left += 1;
            *since += self.pause;
        }
        if self.left == self.burst {
            *since = now;
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

/// Lines that were told, each of them once, as far as they are remembered.
#[derive(Clone, Debug)]
pub struct ToldLines {
    errors: LevelLines,
    others: LevelLines,
}

#[derive(Clone, Debug)]
struct LevelLines {
    topics: BTreeSet<String>,
    allowance: LineAllowance,
}

impl ToldLines {
    /// Nothing was told.
    pub const fn new() -> Self {
        Self { errors: LevelLines::new(), others: LevelLines::new() }
    }

    /// Whether a line of this level about `topic` is to be told now; it counts as told then.
    pub fn admit(&mut self, now: Moment, level: Level, topic: &str) -> bool {
        match level {
            Level::Error => self.errors.admit(now, topic),
            _ => self.others.admit(now, topic),
        }
    }
}

impl Default for ToldLines {
    fn default() -> Self {
        Self::new()
    }
}

impl LevelLines {
    const fn new() -> Self {
        Self { topics: BTreeSet::new(), allowance: LineAllowance::new(BURST, PAUSE) }
    }

    fn admit(&mut self, now: Moment, topic: &str) -> bool {
        if self.topics.contains(topic) || !self.allowance.spend(now) {
            return false;
        }
        if self.topics.len() >= REMEMBERED_MAX {
            self.topics.clear();
        }
        self.topics.insert(topic.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_os::clock;

    #[test]
    fn warnings_leave_errors_their_room_and_both_have_more_with_time() {
        let now = clock::now();
        let mut told = ToldLines::new();
        let mut told = |now, level, line: u32| told.admit(now, level, &line.to_string());
        assert!(told(now, Level::Warn, 0) && !told(now, Level::Warn, 0));
        let more = (1..1000).filter(|line| told(now, Level::Warn, *line)).count();
        assert_eq!(more, BURST as usize - 1);
        let errors = (0..1000).filter(|line| told(now, Level::Error, *line)).count();
        assert_eq!(errors, BURST as usize);
        for level in [Level::Warn, Level::Error] {
            assert!(!told(now + PAUSE / 2, level, 2000));
            assert!(told(now + PAUSE, level, 2000) && !told(now + PAUSE, level, 2001));
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut now = clock::now();
        let mut told = ToldLines::new();
        for line in 0..=REMEMBERED_MAX {
            now += PAUSE;
            assert!(told.admit(now, Level::Error, &line.to_string()));
        }
        assert_eq!(told.errors.topics.len(), 1);
    }
}
