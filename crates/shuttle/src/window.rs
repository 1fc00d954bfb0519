//! Sliding window of received numbers: a bitmap above a contiguous prefix.
//!
//! Memory grows with the distance from the first hole to the newest number, up to the limit.

use std::collections::VecDeque;

/// Result of [`SeenWindow::insert`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// New number.
    New,
    /// Duplicate.
    Before,
    /// Beyond the window: not recorded.
    TooFar,
}

/// The window.
#[derive(Debug)]
pub(crate) struct SeenWindow {
    /// Frontier: every number below was seen.
    frontier: u64,
    /// Bits of the numbers from `word * 64` on; those below the frontier are set if `is_settled`.
    words: VecDeque<u64>,
    word: u64,
    is_settled: bool,
    /// No bit is set from this number on.
    top: u64,
    limit: u64,
}

impl SeenWindow {
    /// An empty window of `limit` numbers above the frontier.
    pub(crate) fn new(limit: u64) -> Self {
        Self { frontier: 0, words: VecDeque::new(), word: 0, is_settled: true, top: 0, limit }
    }

    /// The first number that has not been seen.
    pub(crate) fn frontier(&self) -> u64 {
        self.frontier
    }

    /// Whether nothing beyond the frontier was seen.
    pub(crate) fn is_unbroken(&self) -> bool {
        self.top <= self.frontier
    }

    /// Size of the window in numbers.
    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Heap memory in use, in bytes.
    pub(crate) fn kept_octets(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    pub(crate) fn contains(&self, number: u64) -> bool {
        number < self.frontier || self.bit(number)
    }

    /// Records `number`.
    pub(crate) fn insert(&mut self, number: u64) -> Seen {
        let Some(above) = number.checked_sub(self.frontier) else { return Seen::Before };
        if above >= self.limit {
            return Seen::TooFar;
        }
        // In order with nothing beyond a hole, as nearly always: no bit is needed.
        if above == 0 && self.top <= number {
            self.frontier += 1;
            self.is_settled = false;
            return Seen::New;
        }
        if !self.is_settled {
            self.settle();
        }
        let at = (number / 64 - self.word) as usize;
        if at >= self.words.len() {
            self.words.resize(at + 1, 0);
        }
        let (word, bit) = (&mut self.words[at], 1 << (number % 64));
        if *word & bit != 0 {
            return Seen::Before;
        }
        *word |= bit;
        self.top = self.top.max(number + 1);
        if above == 0 {
            self.advance();
        }
        Seen::New
    }

    /// Raises the frontier to `floor` at least.
    pub(crate) fn raise(&mut self, floor: u64) {
        if floor <= self.frontier {
            return;
        }
        self.frontier = floor;
        self.settle();
        self.advance();
    }

    /// Has the first word be that of the frontier, with the bits below it set.
    fn settle(&mut self) {
        self.is_settled = true;
        let below = (1 << (self.frontier % 64)) - 1;
        let gone = (self.frontier / 64 - self.word).min(self.words.len() as u64);
        self.words.drain(..gone as usize);
        self.word = self.frontier / 64;
        if let Some(first) = self.words.front_mut() {
            *first |= below;
        } else if below != 0 {
            self.words.push_back(below);
        }
    }

    /// Smallest number seen above the frontier.
    pub(crate) fn first_seen(&self) -> Option<u64> {
        let from = (self.frontier / 64 - self.word) as usize;
        let below = (1_u64 << (self.frontier % 64)) - 1;
        let words = self.words.iter().enumerate().skip(from);
        let found = words
            .map(|(at, word)| (at as u64, if at == from { word & !below } else { *word }))
            .find(|(_, word)| *word != 0)?;
        Some((self.word + found.0) * 64 + u64::from(found.1.trailing_zeros()))
    }

    /// Runs of numbers seen from `top` down to the frontier, each as first and last.
    pub(crate) fn runs_down(&self, top: u64) -> impl Iterator<Item = (u64, u64)> + '_ {
        let mut next = Some(top);
        std::iter::from_fn(move || {
            let last = self.last_with(next?, true)?;
            let first = self.last_with(last, false).map_or(self.frontier, |hole| hole + 1);
            next = first.checked_sub(1);
            Some((first, last))
        })
    }

    /// The largest number from `from` down to the frontier that is seen (or is not).
    fn last_with(&self, from: u64, seen: bool) -> Option<u64> {
        let mut at = from.min((self.word + self.words.len() as u64) * 64);
        while at >= self.frontier {
            let word = self.words.get((at / 64 - self.word) as usize).copied().unwrap_or(0);
            let word = if seen { word } else { !word };
            let below = word << (63 - at % 64);
            if below != 0 {
                let found = at - u64::from(below.leading_zeros());
                return (found >= self.frontier).then_some(found);
            }
            at = (at - at % 64).checked_sub(1)?;
        }
        None
    }

    fn bit(&self, number: u64) -> bool {
        let Some(at) = (number / 64).checked_sub(self.word) else { return true };
        self.words.get(at as usize).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    fn advance(&mut self) {
        while self.words.front() == Some(&u64::MAX) {
            self.words.pop_front();
            self.word += 1;
        }
        let ones = self.words.front().map_or(0, |word| word.trailing_ones());
        self.frontier = self.word * 64 + u64::from(ones);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const LIMIT: u64 = 256;

    proptest! {
        #[test]
        fn it_notes_what_it_saw(ops in prop::collection::vec((0..4, 0..300_u64), 0..300)) {
            let (mut window, mut model) = (SeenWindow::new(LIMIT), BTreeSet::new());
            let mut frontier = 0;
            for (kind, number) in ops {
                // Most numbers come in order, or nearly.
                let number = match kind {
                    0 | 1 => frontier,
                    2 => frontier + number % 3,
                    _ => number,
                };
                if kind == 3 && number % 16 == 0 {
                    window.raise(number / 2);
                    model.extend(0..number / 2);
                } else {
                    let expected = match model.contains(&number) {
                        true => Seen::Before,
                        false if number - frontier >= LIMIT => Seen::TooFar,
                        false => Seen::New,
                    };
                    prop_assert_eq!(window.insert(number), expected);
                    if expected == Seen::New {
                        model.insert(number);
                    }
                }
                frontier = (0..).find(|n| !model.contains(n)).unwrap();
                prop_assert_eq!(window.frontier(), frontier);
                prop_assert_eq!(window.first_seen(), model.range(frontier..).next().copied());
                prop_assert_eq!(window.is_unbroken(), window.first_seen().is_none());
                let flat: Vec<u64> =
                    window.runs_down(900).flat_map(|(f, l)| (f..=l).rev()).collect();
                let expected: Vec<u64> = model.range(frontier..).rev().copied().collect();
                prop_assert_eq!(flat, expected);
            }
        }
    }
}
