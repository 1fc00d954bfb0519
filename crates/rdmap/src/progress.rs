//! Placement counts of both ends, for completions that wait for placement at the peer
//! ([`crate::StreamConfig::confirm`]).
//!
//! Both ends count the messages of an application: Sends, Writes and Immediate Data. Before a
//! request is sent, the peer is told how many of its messages were placed. So a message that may be
//! a reply follows the confirmation of what it replies to, and nothing else is confirmed by it.
//!
//! Invariant: no request counts as placed before the peer has confirmed it.

use std::collections::VecDeque;

/// Placement counts of a stream, modulo 2^32.
#[derive(Debug, Default)]
pub(crate) struct PlacementProgress {
    /// Messages of the peer placed here, and the count last sent to it.
    placed: u32,
    told: u32,
    /// Messages of this end that the peer has confirmed.
    known: u32,
    /// For each message not confirmed yet, the last request that is placed with it.
    out: VecDeque<u32>,
}

impl PlacementProgress {
    /// Counts a placed message of the peer.
    pub fn note_placed(&mut self) {
        self.placed = self.placed.wrapping_add(1);
    }

    /// Count of placed messages to send to the peer, if it changed.
    pub fn tell(&mut self) -> Option<u32> {
        let news = self.placed != self.told;
        self.told = self.placed;
        news.then_some(self.placed)
    }

    /// Notes that a message was sent; its placement confirms everything up to request `last`.
    pub fn note_out(&mut self, last: u32) {
        self.out.push_back(last);
    }

    /// Handles the peer's count of placed messages; returns the last request among them, if any is
    /// newly confirmed. An impossible count is ignored.
    pub fn handle_told(&mut self, count: u32) -> Option<u32> {
        let news = count.wrapping_sub(self.known) as usize;
        if news > self.out.len() {
            return None;
        }
        self.known = count;
        self.out.drain(..news).next_back()
    }

    /// Notes that the peer placed everything up to request `last`, as a Read response has shown.
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
        let mut progress = PlacementProgress::default();
        assert_eq!(progress.tell(), None);
        progress.note_placed();
        progress.note_placed();
        assert_eq!((progress.tell(), progress.tell()), (Some(2), None));
    }

    #[test]
    fn requests_are_placed_up_to_what_was_told_and_nonsense_is_ignored() {
        let mut progress = PlacementProgress::default();
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
