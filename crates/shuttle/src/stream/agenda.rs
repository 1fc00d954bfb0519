//! Timer list of streams. Streams are few, so a sorted list does better than a tree, which
//! allocates for each.

use weft_wire::shuttle::StreamId;

/// Times and streams, descending: the soonest is last.
#[derive(Default)]
pub(crate) struct StreamTimers(Vec<(u64, StreamId)>);

impl StreamTimers {
    /// Adds `stream` at `at_ns`, unless it is present.
    pub(crate) fn insert(&mut self, at_ns: u64, stream: StreamId) {
        if let Err(at) = self.search(at_ns, stream) {
            self.0.insert(at, (at_ns, stream));
        }
    }

    /// Removes `stream` at `at_ns`, if present.
    pub(crate) fn remove(&mut self, at_ns: u64, stream: StreamId) {
        if let Ok(at) = self.search(at_ns, stream) {
            self.0.remove(at);
        }
    }

    /// Removes `stream` at any time.
    pub(crate) fn forget(&mut self, stream: StreamId) {
        self.0.retain(|(_, other)| *other != stream);
    }

    /// The soonest entry.
    pub(crate) fn first(&self) -> Option<(u64, StreamId)> {
        self.0.last().copied()
    }

    /// Removes the soonest entry.
    pub(crate) fn pop_first(&mut self) {
        self.0.pop();
    }

    fn search(&self, at_ns: u64, stream: StreamId) -> Result<usize, usize> {
        self.0.binary_search_by(|entry| (at_ns, stream).cmp(entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soonest_comes_first_and_nothing_twice() {
        let mut agenda = StreamTimers::default();
        for (at_ns, stream) in [(5, 1), (3, 2), (5, 0), (3, 2), (9, 4)] {
            agenda.insert(at_ns, StreamId(stream));
        }
        agenda.remove(9, StreamId(4));
        agenda.remove(9, StreamId(1));
        agenda.forget(StreamId(7));
        for expected in [(3, 2), (5, 0), (5, 1)] {
            assert_eq!(agenda.first().map(|(at_ns, stream)| (at_ns, stream.0)), Some(expected));
            agenda.pop_first();
        }
        assert_eq!(agenda.first(), None);
    }
}
