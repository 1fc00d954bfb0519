//! One value for each process of a line of forks.
//!
//! A child sees the memory of its parent, but not its threads: locks that a thread of the parent
//! held are never released. So a child uses the next slot and makes a value of its own there.
//!
//! Invariant: a slot is written once, by the process that uses it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots. Descendants beyond the last one share it.
const GENERATIONS_MAX: usize = 64;

/// The values of a process and of its ancestors.
pub struct PerProcess<T> {
    slots: [OnceLock<T>; GENERATIONS_MAX],
    generation: AtomicUsize,
}

impl<T> PerProcess<T> {
    /// No process has a value yet.
    pub const fn new() -> Self {
        let slots = [const { OnceLock::new() }; GENERATIONS_MAX];
        Self { slots, generation: AtomicUsize::new(0) }
    }

    fn generation(&self) -> usize {
        self.generation.load(Ordering::Acquire).min(GENERATIONS_MAX - 1)
    }

    /// The value of this process, if it has one.
    pub fn current(&self) -> Option<&T> {
        self.slots[self.generation()].get()
    }

    /// The value of this process. The first call makes it, from that of the parent if that had
    /// one; locks in the parent's value may be held for ever.
    pub fn get_or_init(&'static self, make: impl FnOnce(Option<&'static T>) -> T) -> &'static T {
        let generation = self.generation();
        let parent = generation.checked_sub(1).and_then(|parent| self.slots[parent].get());
        self.slots[generation].get_or_init(|| make(parent))
    }

    /// Called in the child of a fork, whose value is no longer that of its parent.
    pub fn enter_child(&self) {
        if self.current().is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_makes_its_own_value_from_that_of_its_parent() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        VALUES.enter_child();
        assert_eq!(VALUES.current(), None);
        assert_eq!(VALUES.get_or_init(|parent| parent.map_or(1, |value| value + 1)), &1);
        assert_eq!(VALUES.get_or_init(|_| 9), &1);
        VALUES.enter_child();
        assert_eq!(VALUES.current(), None);
        assert_eq!(VALUES.get_or_init(|parent| parent.map_or(1, |value| value + 1)), &2);
    }

    #[test]
    fn descendants_beyond_the_last_slot_share_it() {
        static VALUES: PerProcess<usize> = PerProcess::new();
        for _ in 0..2 * GENERATIONS_MAX {
            VALUES.get_or_init(|parent| parent.map_or(0, |value| value + 1));
            VALUES.enter_child();
        }
        assert_eq!(VALUES.current(), Some(&(GENERATIONS_MAX - 1)));
    }
}
