//! Memory that is reused while it is warm.
//!
//! Invariant: nobody waits for it. Who finds it in use makes do without; in the child of a fork
//! that is so for ever if another thread used it just then.

use weft_sync::Mutex;

/// The most pieces that can be kept.
const MOST: usize = 8;

/// Pieces of memory of one size that nobody uses now.
pub struct Warm {
    bytes: usize,
    most: usize,
    /// Each with a lock of its own: who finds one held takes the next.
    kept: [Mutex<Option<Box<[u8]>>>; MOST],
}

impl Warm {
    /// For pieces of so many bytes, `most` of which are kept, eight at most.
    pub const fn new(octets: usize, most: usize) -> Self {
        Self { bytes: octets, most, kept: [const { Mutex::new(None) }; MOST] }
    }

    fn kept(&self) -> impl Iterator<Item = &Mutex<Option<Box<[u8]>>>> {
        self.kept.iter().take(self.most)
    }

    /// A piece with anything in it; one of at least `least` bytes where memory is short.
    pub fn take(&self, least: usize) -> Box<[u8]> {
        let kept = self.kept().find_map(|place| place.try_lock()?.take());
        let new = || weft_memory::zeroed(self.bytes);
        kept.or_else(new).unwrap_or_else(|| vec![0; least].into())
    }

    /// Gives one back.
    pub fn put(&self, piece: Box<[u8]>) {
        if piece.len() != self.bytes {
            return;
        }
        let mut places = self.kept().filter_map(Mutex::try_lock);
        if let Some(mut place) = places.find(|place| place.is_none()) {
            *place = Some(piece);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_kept_as_was_said() {
        let warm = Warm::new(8, 1);
        let (one, other) = (warm.take(8), warm.take(8));
        let place = one.as_ptr().addr();
        warm.put(one);
        warm.put(other);
        let again = warm.take(8);
        assert_eq!(again.as_ptr().addr(), place);
        assert!(warm.kept[0].lock().is_none());
    }

    #[test]
    fn who_needs_less_gets_less_where_there_is_no_memory() {
        let warm = Warm::new(1 << 60, 1);
        let piece = warm.take(16);
        assert_eq!(piece.len(), 16);
        warm.put(piece);
        assert!(warm.kept[0].lock().is_none());
    }

    #[test]
    fn nobody_waits_for_a_lock_that_is_held_for_ever() {
        let warm = Warm::new(8, 2);
        let _held = warm.kept[0].lock();
        let piece = warm.take(8);
        let place = piece.as_ptr().addr();
        warm.put(piece);
        let again = warm.take(8);
        assert_eq!(again.as_ptr().addr(), place, "the next place has it");
    }
}
