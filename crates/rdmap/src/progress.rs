//! How far the peer has placed the messages of this end, and this end those of the peer, where
//! completions depend on it ([`crate::Config::confirm`]).
//!
//! Both ends count the messages that an application sends: Sends, Writes and Immediate Data. Before
//! a request leaves, the peer is told how many of its messages are placed; so whatever may be a
//! reply comes behind the word that completes what it replies to, and nothing else is complete.
//!
//! Invariant: no request is taken for placed before the peer has said so.

use std::collections::VecDeque;

/// The counts of a stream.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Messages of the peer that are placed, and how many of them it has been told of.
    placed: u32,
    told: u32,
    /// Messages of this end that the peer is known to have placed.
    known: u32,
    /// For each message after those, the last request that is placed once it is.
    out: VecDeque<u32>,
}

impl Progress {
    /// A message of the peer is placed.
    pub fn note_placed(&mut self) {
        self.placed = self.placed.wrapping_add(1);
    }

    /// What the peer is to be told now, if anything: messages of it that are placed.
    pub fn tell(&mut self) -> Option<u32> {
        let news = self.placed != self.told;
        self.told = self.placed;
        news.then_some(self.placed)
    }

    /// A message is out; once it is placed, so is everything up to the request `last`.
    pub fn note_out(&mut self, last: u32) {
        self.out.push_back(last);
    }

    /// The peer says that it has placed `count` messages; gives the last request among them, if
    /// that is news. What cannot be is ignored.
    pub fn handle_told(&mut self, count: u32) -> Option<u32> {
        let news = count.wrapping_sub(self.known) as usize;
        if news > self.out.len() {
            return None;
        }
        self.known = count;
        self.out.drain(..news).next_back()
    }

    /// The peer has placed everything up to the request `last`, as is known in another way.
    pub fn handle_confirmed(&mut self, last: u32) {
        while self.out.front().is_some_and(|seq| last.wrapping_sub(*seq) as i32 >= 0) {
            self.out.pop_front();
            self.known = self.known.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_peer_was_told_is_not_told_again() {
        let mut progress = Progress::default();
        assert_eq!(progress.tell(), None);
        progress.note_placed();
        progress.note_placed();
        assert_eq!((progress.tell(), progress.tell()), (Some(2), None));
    }

    #[test]
    fn requests_are_placed_up_to_what_was_told_and_nonsense_is_ignored() {
        let mut progress = Progress::default();
        for last in [u32::MAX - 1, u32::MAX, 0, 0, 1] {
            progress.note_out(last);
        }
        assert_eq!(progress.handle_told(2), Some(u32::MAX));
        assert_eq!((progress.handle_told(2), progress.handle_told(1)), (None, None));
        assert_eq!(progress.handle_told(6), None, "more than is out");
        progress.handle_confirmed(0);
        assert_eq!((progress.handle_told(4), progress.handle_told(5)), (None, Some(1)));
    }
}
