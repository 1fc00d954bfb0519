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
    /// Generations up to this one, exclusive, have begun to make their value.
    begun_before: AtomicUsize,
}

impl<T> PerProcess<T> {
    /// No process has a value yet.
    pub const fn new() -> Self {
        let slots = [const { OnceLock::new() }; GENERATIONS_MAX];
        Self { slots, generation: AtomicUsize::new(0), begun_before: AtomicUsize::new(0) }
    }

    fn generation(&self) -> usize {
        self.generation.load(Ordering::Acquire).min(GENERATIONS_MAX - 1)
    }

    /// The value of this process, if it has one.
    pub fn current(&self) -> Option<&T> {
        self.slots[self.generation()].get()
    }

    /// The value of this process, and `true`, or of its last ancestor that had one.
    pub fn nearest(&self) -> Option<(&T, bool)> {
        let parent = || self.slots[self.generation().checked_sub(1)?].get();
        self.current().map(|own| (own, true)).or_else(|| Some((parent()?, false)))
    }

    /// The value of this process. The first call makes it, from that of the parent if that had
    /// one; locks in the parent's value may be held for ever.
    pub fn get_or_init(&'static self, make: impl FnOnce(Option<&'static T>) -> T) -> &'static T {
        if let Some(value) = self.current() {
            return value;
        }
        let generation = self.generation();
        self.begun_before.fetch_max(generation + 1, Ordering::AcqRel);
        let parent = generation.checked_sub(1).and_then(|parent| self.slots[parent].get());
        self.slots[generation].get_or_init(|| make(parent))
    }

    /// Called in the child of a fork, whose value is no longer that of its parent, nor what a
    /// thread of that has begun to make, for which the child would wait for ever.
    pub fn enter_child(&self) {
        let generation = self.generation.load(Ordering::Acquire);
        let begun = self.begun_before.load(Ordering::Acquire) > generation;
        if begun || self.current().is_some() {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    #[test]
    fn a_child_makes_its_own_value_from_that_of_its_parent() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        VALUES.enter_child();
        assert_eq!(VALUES.current(), None);
        assert_eq!(VALUES.get_or_init(|parent| parent.map_or(1, |value| value + 1)), &1);
        assert_eq!(VALUES.get_or_init(|_| 9), &1);
        VALUES.enter_child();
        assert_eq!((VALUES.current(), VALUES.nearest()), (None, Some((&1, false))));
        assert_eq!(VALUES.get_or_init(|parent| parent.map_or(1, |value| value + 1)), &2);
        assert_eq!(VALUES.nearest(), Some((&2, true)));
    }

    #[test]
    fn a_child_does_not_wait_for_what_a_thread_of_its_parent_has_begun() {
        static VALUES: PerProcess<u32> = PerProcess::new();
        let [begun, forked] = [(); 2].map(|()| Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(|| {
                VALUES.get_or_init(|_| {
                    begun.wait();
                    forked.wait();
                    1
                });
            });
            begun.wait();
            // What the child does, which has no such thread.
            VALUES.enter_child();
            assert_eq!(VALUES.get_or_init(|parent| parent.map_or(2, |value| value + 10)), &2);
            forked.wait();
        });
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
