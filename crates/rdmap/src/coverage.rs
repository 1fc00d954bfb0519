//! Whether the segments of a message cover it, each byte once, in whatever order they come.
//!
//! A segment leads from its offset to the one behind its last byte, and so forward. Segments whose
//! offsets and ends cancel out, but for 0 and the end of the message, are therefore one chain from
//! one to the other: nothing is missing, and nothing came twice. They are added up as hashes under
//! a key that the peer does not know, so nothing is kept of a segment that comes out of order.
//!
//! Invariant: the bytes before `prefix` were covered by segments that came in order.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

/// What has arrived of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    prefix: u32,
    /// Of the segments that came out of order: hashes of their offsets less those of their ends.
    beyond: u64,
}

impl Coverage {
    /// Bytes at the beginning of the message that came in order.
    pub fn prefix(&self) -> u32 {
        self.prefix
    }

    /// A segment covers the bytes from `start` to before `end`.
    pub fn add(&mut self, key: u64, start: u32, end: u32) {
        if start == self.prefix {
            self.prefix = end;
        } else {
            self.beyond = self.beyond.wrapping_add(difference(key, start, end));
        }
    }

    /// Whether a message of `len` bytes is covered.
    pub fn is_whole(&self, key: u64, len: u32) -> bool {
        let rest = if self.prefix == len { 0 } else { difference(key, self.prefix, len) };
        self.beyond == rest
    }
}

fn difference(key: u64, start: u32, end: u32) -> u64 {
    hash(key, start).wrapping_sub(hash(key, end))
}

fn hash(key: u64, offset: u32) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(key, 0);
    hasher.write_u32(offset);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u64 = 0x5eed;

    fn is_whole(segments: &[(u32, u32)], len: u32) -> bool {
        let mut coverage = Coverage::default();
        segments.iter().for_each(|&(start, end)| coverage.add(KEY, start, end));
        coverage.is_whole(KEY, len)
    }

    #[test]
    fn segments_cover_a_message_in_any_order() {
        let segments = [(0, 10), (10, 20), (20, 20), (20, 35), (35, 40)];
        for first in 0..segments.len() {
            let mut order = segments;
            order.rotate_left(first);
            assert!(is_whole(&order, 40), "{order:?}");
            order.reverse();
            assert!(is_whole(&order, 40), "{order:?}");
        }
        assert!(is_whole(&[], 0) && is_whole(&[(0, 0)], 0));
    }

    /// As many bytes as the message has, but not its bytes.
    #[test]
    fn what_comes_twice_is_not_what_is_missing() {
        for segments in [
            &[(0, 10), (0, 10), (20, 30)][..],
            &[(0, 10), (20, 30), (20, 30)],
            &[(20, 30), (5, 15), (0, 10)],
            &[(10, 20), (20, 30)],
            &[(0, 10), (10, 20)],
            &[(0, 30), (0, 30)],
            &[(0, 30), (7, 8)],
        ] {
            assert!(!is_whole(segments, 30), "{segments:?}");
        }
    }
}
