//! Set of numbers as sorted runs: packets acknowledged, segments to retransmit.
//!
//! Cost grows with the number of runs changed, not of numbers.

use std::collections::VecDeque;

/// Sorted runs that neither overlap nor touch, first and last number included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet {
    runs: VecDeque<(u64, u64)>,
}

impl RangeSet {
    pub(crate) fn first(&self) -> Option<(u64, u64)> {
        self.runs.front().copied()
    }

    /// The runs, in ascending order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        self.runs.capacity() * size_of::<(u64, u64)>()
    }

    /// Count of numbers in the set; stops counting at `enough`.
    pub(crate) fn count(&self, enough: u64) -> u64 {
        let mut count = 0;
        for (first, last) in &self.runs {
            count += last - first + 1;
            if count >= enough {
                break;
            }
        }
        count
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        let at = self.runs.partition_point(|run| run.1 < number);
        self.runs.get(at).is_some_and(|run| run.0 <= number)
    }

    /// Whether the set contains all of `first..=last`. `at`, `None` at first, caches the position,
    /// so that descending queries cost one pass over the runs.
    pub(crate) fn holds(&self, first: u64, last: u64, at: &mut Option<usize>) -> bool {
        let above = |run: &(u64, u64)| run.0 > last;
        let mut end = at.unwrap_or_else(|| self.runs.partition_point(|run| !above(run)));
        while end > 0 && self.runs.get(end - 1).is_some_and(above) {
            end -= 1;
        }
        *at = Some(end);
        let run = end.checked_sub(1).and_then(|at| self.runs.get(at));
        run.is_some_and(|run| run.0 <= first && last <= run.1)
    }

    /// Adds `first..=last`; calls `new` with each run that was missing.
    pub(crate) fn insert(&mut self, first: u64, last: u64, mut new: impl FnMut(u64, u64)) {
        debug_assert!(first <= last);
        // The first run that touches or follows.
        let start = self.runs.partition_point(|run| run.1.saturating_add(1) < first);
        let (mut merged, mut next, mut end) = ((first, last), first, start);
        while let Some(&(f, l)) = self.runs.get(end)
            && f <= last.saturating_add(1)
        {
            if next < f {
                new(next, (f - 1).min(last));
            }
            next = next.max(l.saturating_add(1));
            merged = (merged.0.min(f), merged.1.max(l));
            end += 1;
        }
        if next <= last {
            new(next, last);
        }
        if end == start {
            self.runs.insert(start, merged);
        } else {
            self.runs[start] = merged;
            self.runs.drain(start + 1..end);
        }
    }

    /// Removes `first..=last`.
    pub(crate) fn remove(&mut self, first: u64, last: u64) {
        let mut at = self.runs.partition_point(|run| run.1 < first);
        while let Some(&(f, l)) = self.runs.get(at)
            && f <= last
        {
            match (f < first, l > last) {
                (true, true) => {
                    self.runs[at].1 = first - 1;
                    self.runs.insert(at + 1, (last + 1, l));
                    return;
                }
                (true, false) => {
                    self.runs[at].1 = first - 1;
                    at += 1;
                }
                (false, true) => {
                    self.runs[at].0 = last + 1;
                    return;
                }
                (false, false) => drop(self.runs.remove(at)),
            }
        }
    }

    /// Removes every number below `number`.
    pub(crate) fn remove_below(&mut self, number: u64) {
        while let Some(run) = self.runs.front_mut()
            && run.0 < number
        {
            if run.1 >= number {
                run.0 = number;
                return;
            }
            self.runs.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_set(ops in prop::collection::vec((0..3_u8, 0..80_u64, 0..12_u64), 0..80)) {
            let (mut set, mut model) = (RangeSet::default(), BTreeSet::new());
            for (op, first, len) in ops {
                let last = first + len;
                match op {
                    0 => {
                        let mut fresh = Vec::new();
                        set.insert(first, last, |f, l| fresh.extend(f..=l));
                        let expected: Vec<_> =
                            (first..=last).filter(|n| model.insert(*n)).collect();
                        prop_assert_eq!(fresh, expected);
                    }
                    1 => {
                        set.remove(first, last);
                        model.retain(|n| *n < first || *n > last);
                    }
                    _ => {
                        set.remove_below(first);
                        model.retain(|n| *n >= first);
                    }
                }
                let flat: Vec<u64> = set.runs.iter().flat_map(|run| run.0..=run.1).collect();
                prop_assert!(flat.iter().eq(&model));
                let mut apart = set.runs.iter().zip(set.runs.iter().skip(1));
                prop_assert!(apart.all(|(a, b)| a.1 + 1 < b.0));
                prop_assert_eq!(set.contains(first), model.contains(&first));
                for enough in [0, len, 10, u64::MAX] {
                    let expected = enough.min(model.len() as u64);
                    prop_assert_eq!(set.count(enough).min(enough), expected);
                }
                let mut at = None;
                for first in (0..80).rev() {
                    let held = (first..=first + len).all(|number| model.contains(&number));
                    prop_assert_eq!(set.holds(first, first + len, &mut at), held);
                }
                prop_assert_eq!(set.first().map(|run| run.0), model.first().copied());
            }
        }
    }
}
