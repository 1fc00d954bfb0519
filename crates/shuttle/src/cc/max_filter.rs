//! Windowed maximum filter.

use std::collections::VecDeque;

/// Maximum of the values of the last steps.
#[derive(Clone, Debug)]
pub struct MaxFilter {
    length: u64,
    /// Candidates for the maximum, with their steps: each larger than all after it.
    values: VecDeque<(u64, u64)>,
}

impl MaxFilter {
    /// An empty filter over `length` steps, the current one included.
    pub fn new(length: u64) -> Self {
        Self { length, values: VecDeque::new() }
    }

    /// Adds `value` at `step`, which must not decrease.
    pub fn add(&mut self, step: u64, value: u64) {
        while self.values.back().is_some_and(|(_, last)| *last <= value) {
            self.values.pop_back();
        }
        if self.values.back().is_none_or(|(last, _)| *last != step) {
            self.values.push_back((step, value));
        }
        self.expire(step);
    }

    /// Drops values older than the window at `step`, except the last one.
    pub fn expire(&mut self, step: u64) {
        while self.values.len() > 1
            && let Some((oldest, _)) = self.values.front()
            && oldest + self.length <= step
        {
            self.values.pop_front();
        }
    }

    /// Replaces all values by `value`.
    pub fn reset(&mut self, step: u64, value: u64) {
        self.values.clear();
        self.values.push_back((step, value));
    }

    /// The maximum; 0 if empty.
    pub fn max(&self) -> u64 {
        self.values.front().map_or(0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_a_search() {
        let mut filter = MaxFilter::new(4);
        let mut all: Vec<(u64, u64)> = Vec::new();
        let mut number = 3u64;
        for index in 0..1000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(17);
            let (step, value) = (index / 3, (number >> 40) % 100);
            all.push((step, value));
            filter.add(step, value);
            let of_late = all.iter().filter(|(at, _)| at + 4 > step);
            assert_eq!(filter.max(), of_late.map(|(_, value)| *value).max().unwrap());
        }
        filter.reset(400, 7);
        assert_eq!(filter.max(), 7);
    }

    #[test]
    fn the_last_value_stays() {
        let mut filter = MaxFilter::new(2);
        filter.add(1, 5);
        filter.expire(9);
        assert_eq!(filter.max(), 5);
    }
}
