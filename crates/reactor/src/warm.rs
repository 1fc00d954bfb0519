//! Memory that is reused while it is warm.
//!
//! Invariant: nobody waits for it. Who finds it in use makes do without; in the child of a fork
//! that is so for ever if another thread used it just then.

use weft_sync::Mutex;

/// Pieces of memory of one size that nobody uses now.
pub struct Warm {
    bytes: usize,
    most: usize,
    kept: Mutex<Vec<Box<[u8]>>>,
}

impl Warm {
    /// For pieces of so many bytes, `most` of which are kept.
    pub const fn new(octets: usize, most: usize) -> Self {
        Self { bytes: octets, most, kept: Mutex::new(Vec::new()) }
    }

    /// A piece with anything in it; one of at least `least` bytes where memory is short.
    pub fn take(&self, least: usize) -> Box<[u8]> {
        let kept = self.kept.try_lock().and_then(|mut kept| kept.pop());
        kept.unwrap_or_else(|| {
            let mut piece = Vec::new();
            let octets = piece.try_reserve_exact(self.bytes).map_or(least, |()| self.bytes);
            piece.resize(octets, 0);
            piece.into()
        })
    }

    /// Gives one back.
    pub fn put(&self, piece: Box<[u8]>) {
        if piece.len() == self.bytes
            && let Some(mut kept) = self.kept.try_lock()
            && kept.len() < self.most
        {
            kept.push(piece);
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
        assert!(warm.kept.lock().is_empty());
    }

    #[test]
    fn who_needs_less_gets_less_where_there_is_no_memory() {
        let warm = Warm::new(1 << 60, 1);
        let piece = warm.take(16);
        assert_eq!(piece.len(), 16);
        warm.put(piece);
        assert!(warm.kept.lock().is_empty());
    }

    #[test]
    fn nobody_waits_for_a_lock_that_is_held_for_ever() {
        let warm = Warm::new(8, 1);
        let _held = warm.kept.lock();
        let piece = warm.take(8);
        assert_eq!(piece.len(), 8);
        warm.put(piece);
    }
}
