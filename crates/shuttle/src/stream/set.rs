//! Set of streams: 256 bits without allocation.

use weft_wire::shuttle::StreamId;

/// The set, by stream number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamSet([u64; 4]);

impl StreamSet {
    /// Adds a stream; returns whether it was absent.
    pub(crate) fn insert(&mut self, stream: StreamId) -> bool {
        let (word, bit) = self.at(stream);
        let news = *word & bit == 0;
        *word |= bit;
        news
    }

    pub(crate) fn remove(&mut self, stream: StreamId) {
        let (word, bit) = self.at(stream);
        *word &= !bit;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0 == [0; 4]
    }

    /// Removes and returns the lowest stream.
    pub(crate) fn pop_first(&mut self) -> Option<StreamId> {
        let at = self.0.iter().position(|word| *word != 0)?;
        let bit = self.0[at].trailing_zeros() as usize;
        self.0[at] &= self.0[at] - 1;
        Some(StreamId((at * 64 + bit) as u8))
    }

    fn at(&mut self, stream: StreamId) -> (&mut u64, u64) {
        (&mut self.0[usize::from(stream.0) / 64], 1 << (stream.0 % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_every_number_and_gives_the_lowest_first() {
        let mut set = StreamSet::default();
        for number in [255, 3, 64, 0, 191, 3] {
            assert_eq!(set.insert(StreamId(number)), number != 3 || set.0[0] == 8);
        }
        set.remove(StreamId(64));
        assert!(!set.is_empty());
        let all: Vec<u8> = std::iter::from_fn(|| set.pop_first()).map(|stream| stream.0).collect();
        assert_eq!(all, [0, 3, 191, 255]);
        assert!(set.is_empty());
    }
}
