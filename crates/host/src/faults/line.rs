//! What is on its way and not here yet.

use std::collections::VecDeque;

use weft_os::clock::Moment;

/// Bytes on their way at most.
const OCTETS_MAX: usize = 64 << 20;

/// Pieces that come in the order in which they left, each when it is due.
#[derive(Debug)]
pub(crate) struct DelayQueue<T> {
    pieces: VecDeque<(Moment, Vec<u8>, T)>,
    octets: usize,
}

impl<T> Default for DelayQueue<T> {
    fn default() -> Self {
        Self { pieces: VecDeque::new(), octets: 0 }
    }
}

impl<T> DelayQueue<T> {
    /// Whether nothing more should be put on it.
    pub fn is_full(&self) -> bool {
        self.octets >= OCTETS_MAX
    }

    /// Whether nothing is on it.
    pub fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Puts a piece on it, which comes at `due` but not before the one that left before it.
    pub fn push(&mut self, due: Moment, octets: Vec<u8>, note: T) {
        let due = self.pieces.back().map_or(due, |(last, _, _)| due.max(*last));
        self.octets += octets.len();
        self.pieces.push_back((due, octets, note));
    }

    /// Takes the oldest piece, if it is due.
    pub fn pop(&mut self, now: Moment) -> Option<(Vec<u8>, T)> {
        if self.next_due()? > now {
            return None;
        }
        let (_, octets, note) = self.pieces.pop_front()?;
        self.octets -= octets.len();
        Some((octets, note))
    }

    /// When the oldest piece is due.
    pub fn next_due(&self) -> Option<Moment> {
        self.pieces.front().map(|(due, _, _)| *due)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weft_os::clock;

    use super::*;

    #[test]
    fn pieces_come_when_they_are_due_and_in_order() {
        let (start, ms) = (clock::now(), Duration::from_millis(1));
        let mut line = DelayQueue::default();
        line.push(start + 5 * ms, vec![1], ());
        line.push(start + 3 * ms, vec![2], ());
        assert_eq!(line.next_due(), Some(start + 5 * ms));
        assert_eq!(line.pop(start + 4 * ms), None);
        assert_eq!(line.pop(start + 5 * ms), Some((vec![1], ())));
        assert_eq!(line.pop(start + 5 * ms), Some((vec![2], ())));
        assert!(line.is_empty() && line.next_due().is_none());
    }

    #[test]
    fn a_line_is_bounded() {
        let mut line = DelayQueue::default();
        line.push(clock::now(), vec![0; OCTETS_MAX], ());
        assert!(line.is_full());
        line.pop(clock::now());
        assert!(!line.is_full());
    }
}
