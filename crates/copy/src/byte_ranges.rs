//! Sets of bytes of a file, as ranges.
//!
//! Invariant: ranges are not empty, do not touch each other, and are in order.
//!
//! Order: any.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of bytes. What is copied in order is one range, however long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByteRanges {
    /// Ends by starts.
    ends: BTreeMap<u64, u64>,
}

impl ByteRanges {
    /// Adds the bytes of `range`.
    pub fn insert(&mut self, range: Range<u64>) {
        let Range { mut start, mut end } = range;
        if start >= end {
            return;
        }
        if let Some((&before, &its_end)) = self.ends.range(..=start).next_back()
            && its_end >= start
        {
            start = before;
            end = end.max(its_end);
        }
        while let Some((&next, &its_end)) = self.ends.range(start..=end).next() {
            self.ends.remove(&next);
            end = end.max(its_end);
        }
        self.ends.insert(start, end);
    }

    /// Whether all bytes of `range` are in it.
    pub fn contains(&self, range: Range<u64>) -> bool {
        let before = self.ends.range(..=range.start).next_back();
        range.is_empty() || before.is_some_and(|(_, &end)| end >= range.end)
    }

    /// What of the first `size` bytes is not in it.
    pub fn gaps(&self, size: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = 0;
        for range in self.iter() {
            if range.start >= size {
                break;
            }
            if range.start > at {
                gaps.push(at..range.start);
            }
            at = range.end;
        }
        if at < size {
            gaps.push(at..size);
        }
        gaps
    }

    /// The ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(&start, &end)| start..end)
    }

    /// How many bytes are in it.
    pub fn count(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    /// The end of the last range, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.ends.last_key_value().map_or(0, |(_, &end)| end)
    }
}

impl FromIterator<Range<u64>> for ByteRanges {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::default();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SIZE: usize = 64;

    proptest! {
        #[test]
        fn it_is_the_set_of_its_bytes(
            ranges in prop::collection::vec((0..SIZE as u64, 0..SIZE as u64), 0..12),
        ) {
            let mut bytes = [false; SIZE];
            let mut set = ByteRanges::default();
            for (start, end) in ranges {
                set.insert(start..end);
                for at in start..end {
                    bytes[at as usize] = true;
                }
            }
            let listed: Vec<_> = set.iter().collect();
            for pair in listed.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
            let is_in = |at: usize| set.contains(at as u64..at as u64 + 1);
            prop_assert!((0..SIZE).all(|at| is_in(at) == bytes[at]));
            prop_assert_eq!(set.count(), bytes.iter().filter(|is| **is).count() as u64);
            let mut whole = set.clone();
            for gap in set.gaps(SIZE as u64) {
                prop_assert!(gap.clone().all(|at| !bytes[at as usize]));
                whole.insert(gap);
            }
            prop_assert_eq!(whole.iter().collect::<Vec<_>>(), vec![0..SIZE as u64]);
            prop_assert_eq!(listed.iter().cloned().collect::<ByteRanges>(), set);
        }
    }
}
