//! Log of tagged segments placed out of order, so that a late earlier segment does not overwrite a
//! later one: memory ends as if Writes had arrived in the order of posting, and so do Reads into
//! one sink.
//!
//! Invariant: every byte written by a segment above the frontier is in one range, with the largest
//! of those segments' numbers.
//!
//! A peer chooses how its Writes overlap, so the log has room for [`RANGES_MAX`] ranges and a
//! segment that comes early goes into [`GAPS_MAX`] gaps at most: one that needs more is held until
//! all before it are placed, and needs no entry then.

use std::collections::BTreeMap;

/// Ranges of memory written ahead of the frontier.
#[derive(Debug, Default)]
pub struct EarlyWrites {
    /// By start address in this process, as several keys may name the same memory: end address, and
    /// number of the writing segment.
    stretches: BTreeMap<u64, EarlyRange>,
    /// Largest segment number among them.
    latest: u64,
    /// Ranges that the last sweep has left, and the frontier that it was made for. The next one
    /// comes when there are twice as many, or where there is no room for that, once the frontier
    /// has moved on by as many: the amortised cost is constant per segment.
    rest: usize,
    swept_at: u64,
    #[cfg(test)]
    swept: usize,
}

/// Least count of ranges that triggers a sweep.
const KEPT_MIN: usize = 64;
/// Ranges of a stream, some 3 MB. Each packet that is lost begins a new one: a path of 100 Gbit/s
/// and 70 ms that loses 5 % has half as many.
const RANGES_MAX: usize = 1 << 16;
/// Gaps that a segment which comes early is placed into, each of which becomes a range.
pub(crate) const GAPS_MAX: usize = 64;

#[derive(Clone, Copy, Debug)]
struct EarlyRange {
    end: u64,
    seq: u64,
}

impl EarlyWrites {
    /// Drops ranges of segments before `frontier`: no earlier segment can arrive any more.
    pub fn pass(&mut self, frontier: u64) {
        if self.latest < frontier {
            self.stretches.clear();
        } else if self.needs_sweep(frontier) {
            #[cfg(test)]
            {
                self.swept += self.stretches.len();
            }
            self.stretches.retain(|_, stretch| stretch.seq >= frontier);
            (self.rest, self.swept_at) = (self.stretches.len(), frontier);
        }
    }

    fn needs_sweep(&self, frontier: u64) -> bool {
        let (count, rest) = (self.stretches.len(), self.rest);
        count > (2 * rest).max(KEPT_MIN)
            || self.is_full() && frontier.saturating_sub(self.swept_at) >= rest as u64
    }

    /// Whether there is no room for another segment that comes early.
    pub fn is_full(&self) -> bool {
        self.stretches.len() >= RANGES_MAX
    }

    /// Whether a later segment than `seq` has written anything.
    pub fn concerns(&self, seq: u64) -> bool {
        !self.stretches.is_empty() && seq < self.latest
    }

    /// Parts of `start..end` that no segment later than `seq` has written, in order.
    pub fn gaps(&self, seq: u64, start: u64, end: u64) -> impl Iterator<Item = (u64, u64)> {
        let later = self.within(start, end).filter(move |(_, stretch)| stretch.seq > seq);
        let bounds = later.map(|(from, stretch)| (from, stretch.end)).chain([(end, end)]);
        let mut at = start;
        bounds.filter_map(move |(from, to)| {
            let gap = (at, from);
            at = at.max(to);
            (gap.0 < gap.1).then_some(gap)
        })
    }

    /// Records that segment `seq`, which is above the frontier, has written `start..end`.
    pub fn note(&mut self, seq: u64, start: u64, end: u64) {
        let covered: Vec<_> = self.within(start, end).collect();
        for (from, stretch) in covered {
            self.stretches.remove(&from);
            if from < start {
                self.stretches.insert(from, EarlyRange { end: start, ..stretch });
            }
            if stretch.end > end {
                self.stretches.insert(end, stretch);
            }
        }
        self.latest = self.latest.max(seq);
        // Segments consecutive in memory and number merge into one range with the last number: a
        // late segment precedes all of them, or does not overlap.
        if let Some((&from, stretch)) = self.stretches.range_mut(..start).next_back()
            && stretch.end == start
            && stretch.seq + 1 == seq
        {
            debug_assert!(from < start);
            *stretch = EarlyRange { end, seq };
            return;
        }
        self.stretches.insert(start, EarlyRange { end, seq });
    }

    /// Ranges that overlap `start..end`, in order.
    fn within(&self, start: u64, end: u64) -> impl Iterator<Item = (u64, EarlyRange)> {
        let before = self.stretches.range(..start).next_back();
        let from_start = self.stretches.range(start..end);
        before
            .into_iter()
            .chain(from_start)
            .map(|(&from, &stretch)| (from, stretch))
            .filter(move |(_, stretch)| stretch.end > start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaps(early: &EarlyWrites, seq: u64, start: u64, end: u64) -> Vec<(u64, u64)> {
        early.gaps(seq, start, end).collect()
    }

    #[test]
    fn what_is_late_goes_around_what_is_later() {
        let mut early = EarlyWrites::default();
        early.note(5, 100, 200);
        early.note(6, 200, 250);
        assert!(early.concerns(3) && !early.concerns(6));
        assert_eq!(gaps(&early, 3, 50, 300), [(50, 100), (250, 300)]);
        assert_eq!(gaps(&early, 3, 120, 140), []);
        assert_eq!(gaps(&early, 9, 50, 300), [(50, 300)]);
    }

    #[test]
    fn a_later_segment_takes_its_octets_over() {
        let mut early = EarlyWrites::default();
        early.note(4, 0, 100);
        early.note(9, 40, 60);
        assert_eq!(gaps(&early, 6, 0, 100), [(0, 40), (60, 100)]);
        assert_eq!(gaps(&early, 2, 0, 120), [(100, 120)]);
        early.pass(10);
        assert!(!early.concerns(2));
    }

    /// What no segment can be late for is forgotten, and nothing else.
    #[test]
    fn what_waits_is_forgotten_when_the_frontier_has_passed() {
        let mut early = EarlyWrites::default();
        early.note(4, 0, 10);
        early.pass(4);
        assert_eq!(gaps(&early, 2, 0, 10), [], "the latest has not been passed");
        early.pass(5);
        assert_eq!(gaps(&early, 2, 0, 10), [(0, 10)]);
        // More than are kept without a look: those before the frontier go, the others stay.
        let ranges = 2 * KEPT_MIN as u64;
        (0..ranges).for_each(|seq| early.note(10 + 2 * seq, 100 * seq, 100 * seq + 1));
        early.pass(10 + ranges);
        assert_eq!(early.stretches.len() as u64, ranges / 2);
        assert_eq!(early.swept as u64, ranges);
        assert_eq!(gaps(&early, 5, 100 * (ranges - 1), 100 * ranges - 99), []);
        // Not looked at again before there are twice as many.
        early.pass(12 + ranges);
        assert_eq!(early.swept as u64, ranges);
    }

    /// Ranges merge only if memory and number both follow.
    #[test]
    fn only_what_follows_merges() {
        let mut early = EarlyWrites::default();
        early.note(4, 0, 10);
        early.note(5, 10, 20);
        assert_eq!(early.stretches.len(), 1);
        early.note(6, 21, 30);
        early.note(9, 30, 40);
        assert_eq!(early.stretches.len(), 3);
        assert_eq!(gaps(&early, 3, 0, 50), [(20, 21), (40, 50)]);
        assert_eq!(gaps(&early, 7, 0, 40), [(0, 30)]);
    }

    /// A peer that sends every other segment first has the frontier move on by two at a time.
    #[test]
    fn what_waits_is_swept_seldom() {
        const SEGMENTS: u64 = if cfg!(miri) { 200 } else { 10_000 };
        let mut early = EarlyWrites::default();
        let odd = || (1..SEGMENTS).step_by(2);
        odd().for_each(|seq| early.note(seq, 2 * seq, 2 * seq + 1));
        for seq in odd() {
            early.pass(seq + 1);
            early.note(SEGMENTS + seq, 2 * (SEGMENTS + seq), 2 * (SEGMENTS + seq) + 1);
        }
        assert!(early.swept as u64 <= 4 * SEGMENTS, "{} looked at", early.swept);
        early.pass(SEGMENTS);
        assert!(early.stretches.len() as u64 <= 2 * SEGMENTS, "they are forgotten");
    }

    /// A peer that fills the log is held up, and has it swept no more often than it sends.
    #[test]
    fn the_log_has_an_end_and_empties_as_the_frontier_moves() {
        let mut early = EarlyWrites::default();
        let first = 1_000_000;
        let mut noted = 0;
        while !early.is_full() {
            early.note(first + 2 * noted, 2 * noted, 2 * noted + 1);
            noted += 1;
        }
        for frontier in 0..4 * RANGES_MAX as u64 {
            early.pass(frontier);
        }
        assert!(early.is_full() && early.swept <= 5 * RANGES_MAX, "{} looked at", early.swept);
        early.pass(first + noted);
        assert!(!early.is_full());
    }

    /// Random segments in random order leave what the right order leaves.
    #[test]
    fn any_order_leaves_what_the_right_order_leaves() {
        let mut state = 1_u64;
        let mut random = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % bound
        };
        let rounds = if cfg!(miri) { 20 } else { 2000 };
        for _ in 0..rounds {
            let segments: Vec<(u64, u64)> = (0..8)
                .map(|_| {
                    let start = random(30);
                    (start, start + 1 + random(10))
                })
                .collect();
            let mut order: Vec<usize> = (0..8).collect();
            (0..8).for_each(|at| order.swap(at, random(8) as usize));
            let (mut right, mut found) = ([0; 40], [0; 40]);
            for (seq, &(start, end)) in segments.iter().enumerate() {
                right[start as usize..end as usize].fill(seq + 1);
            }
            let mut early = EarlyWrites::default();
            for seq in order {
                let (start, end) = segments[seq];
                for (from, to) in gaps(&early, seq as u64, start, end) {
                    found[from as usize..to as usize].fill(seq + 1);
                    early.note(seq as u64, from, to);
                }
            }
            assert_eq!(found, right, "{segments:?}");
        }
    }
}
