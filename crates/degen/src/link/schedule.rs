//! Schedules: settings that change with time.

use serde::Serialize;

/// A value that changes at given times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stepped<T> {
    now: T,
    /// The changes to come, the next one last.
    changes: Vec<(u64, T)>,
}

impl<T: Copy> Stepped<T> {
    /// A value that never changes.
    pub fn constant(value: T) -> Self {
        Self { now: value, changes: Vec::new() }
    }

    /// A value that becomes another at each of these times, in nanoseconds.
    pub fn new(first: T, mut changes: Vec<(u64, T)>) -> Self {
        changes.sort_by_key(|(at_ns, _)| std::cmp::Reverse(*at_ns));
        Self { now: first, changes }
    }

    /// The value at `now_ns`, which never goes back.
    pub fn at(&mut self, now_ns: u64) -> T {
        while let Some((at_ns, value)) = self.changes.last().copied()
            && at_ns <= now_ns
        {
            self.now = value;
            self.changes.pop();
        }
        self.now
    }

    /// When the value changes next.
    pub fn next_change_ns(&self) -> Option<u64> {
        self.changes.last().map(|(at_ns, _)| *at_ns)
    }
}

/// An outage, once or periodic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Outage {
    /// When it begins.
    pub at_ns: u64,
    /// How long it lasts.
    pub for_ns: u64,
    /// From one beginning to the next, if there is a next.
    pub every_ns: Option<u64>,
}

impl Outage {
    /// Whether `now_ns` lies in it.
    pub fn covers(&self, now_ns: u64) -> bool {
        let Some(since_ns) = now_ns.checked_sub(self.at_ns) else { return false };
        let since_ns = self.every_ns.map_or(since_ns, |every_ns| since_ns % every_ns.max(1));
        since_ns < self.for_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_step() {
        let mut value = Stepped::new('a', vec![(20, 'c'), (10, 'b')]);
        assert_eq!(value.next_change_ns(), Some(10));
        assert_eq!([9, 10, 19, 20, 99].map(|now| value.at(now)), ['a', 'b', 'b', 'c', 'c']);
    }

    #[test]
    fn outages_recur() {
        let once = Outage { at_ns: 10, for_ns: 5, every_ns: None };
        assert_eq!(
            [9, 10, 14, 15, 30].map(|now| once.covers(now)),
            [false, true, true, false, false]
        );
        let often = Outage { every_ns: Some(20), ..once };
        assert_eq!(
            [9, 30, 34, 35, 50].map(|now| often.covers(now)),
            [false, true, true, false, true]
        );
    }
}
