//! Memory for when there is none.
//!
//! The reserve is made of equal chunks, the first of which is part of the library and costs address
//! space only until it is used. A chunk has slots of few sizes. When slots are taken, another chunk
//! is mapped as soon as that works again, so that what stays in its slots does not use it up.
//!
//! Invariant: a slot is whose bit was clear when he set it. There is no lock, which the child of a
//! fork might find held for ever.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use crate::mapping;

/// Slots of one size: of whole pages, or a power of two.
#[derive(Clone, Copy)]
struct Class {
    octets: usize,
    slots: usize,
}

/// Bytes of the largest piece: two frames of iWARP are a little more than a power of two.
pub const RESERVED_MAX: usize = 132 << 10;

const CLASSES: [Class; 6] = [
    Class { octets: RESERVED_MAX, slots: 8 },
    Class { octets: 16 << 10, slots: 32 },
    Class { octets: 4 << 10, slots: 128 },
    Class { octets: 1 << 10, slots: 512 },
    Class { octets: 256, slots: 1024 },
    Class { octets: 64, slots: 2048 },
];
/// The most words of bits that a class needs.
const WORDS: usize = 2048 / 64;
const CHUNK_OCTETS: usize = offset_of(CLASSES.len());
/// Far more than what is at work in a process at once.
const CHUNKS: usize = 32;

/// Where the slots of `class` begin in a chunk. Larger ones come first, so each is aligned to its
/// size or a page.
const fn offset_of(class: usize) -> usize {
    let (mut offset, mut before) = (0, 0);
    while before < class {
        offset += CLASSES[before].octets * CLASSES[before].slots;
        before += 1;
    }
    offset
}

/// Memory of a chunk and which of its slots are taken.
struct Chunk {
    base: AtomicPtr<u8>,
    taken: [[AtomicU64; WORDS]; CLASSES.len()],
}

impl Chunk {
    const fn at(base: *mut u8) -> Self {
        let taken = [const { [const { AtomicU64::new(0) }; WORDS] }; CLASSES.len()];
        Self { base: AtomicPtr::new(base), taken }
    }

    fn take(&self, class: usize) -> Option<*mut u8> {
        let Class { octets, slots } = CLASSES[class];
        let words = &self.taken[class][..slots.div_ceil(64)];
        let slot =
            words.iter().enumerate().find_map(|(i, word)| Some(64 * i + set(word, slots)?))?;
        let base = self.base.load(Ordering::Acquire);
        Some(base.wrapping_add(offset_of(class) + slot * octets))
    }

    /// Where `place` is in this chunk.
    fn offset_in(&self, place: *mut u8) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        let offset = place.addr().checked_sub(base.addr())?;
        (!base.is_null() && offset < CHUNK_OCTETS).then_some(offset)
    }

    fn give_back(&self, offset: usize) {
        let class = (0..CLASSES.len()).rev().find(|class| offset_of(*class) <= offset).unwrap_or(0);
        let slot = (offset - offset_of(class)) / CLASSES[class].octets;
        self.taken[class][slot / 64].fetch_and(!(1 << (slot % 64)), Ordering::Release);
    }

    fn free(&self, class: usize) -> usize {
        let taken = self.taken[class].iter().map(|word| word.load(Ordering::Relaxed).count_ones());
        CLASSES[class].slots - taken.sum::<u32>() as usize
    }
}

/// Sets a bit of `word` that is clear, of the lowest `bits`.
fn set(word: &AtomicU64, bits: usize) -> Option<usize> {
    loop {
        let bit = word.load(Ordering::Relaxed).trailing_ones();
        if bit as usize >= bits.min(64) {
            return None;
        }
        if word.fetch_or(1 << bit, Ordering::Acquire) & (1 << bit) == 0 {
            return Some(bit as usize);
        }
    }
}

#[repr(C, align(4096))]
struct Pages(UnsafeCell<[u8; CHUNK_OCTETS]>);

// SAFETY: each byte belongs to who has taken its slot.
unsafe impl Sync for Pages {}

static FIRST: Pages = Pages(UnsafeCell::new([0; CHUNK_OCTETS]));

static RESERVE: [Chunk; CHUNKS] = {
    let mut all = [const { Chunk::at(ptr::null_mut()) }; CHUNKS];
    all[0] = Chunk::at(FIRST.0.get().cast());
    all
};

/// Whether anything was ever taken: almost no process comes to that.
static USED: AtomicBool = AtomicBool::new(false);

/// The chunks there are.
fn chunks() -> impl Iterator<Item = &'static Chunk> {
    RESERVE.iter().take_while(|chunk| !chunk.base.load(Ordering::Acquire).is_null())
}

/// Maps one more chunk; whether there is one more.
fn extend() -> bool {
    let Some(vacant) = RESERVE.get(chunks().count()) else { return false };
    let new = mapping::map(CHUNK_OCTETS);
    if new.is_null() {
        return false;
    }
    let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
    if vacant.base.compare_exchange(ptr::null_mut(), new, success, failure).is_err() {
        // Another thread was faster, and its chunk will do.
        // SAFETY: just mapped, and nobody knows of it.
        unsafe { mapping::unmap(new, CHUNK_OCTETS) };
    }
    true
}

/// A slot for `layout`; NULL if there is none of its size or above.
pub fn take(layout: Layout) -> *mut u8 {
    let wanted = layout.size().max(layout.align());
    let fits = |class: &usize| CLASSES[*class].octets >= wanted;
    let Some(best) = (0..CLASSES.len()).rev().find(fits) else { return ptr::null_mut() };
    if layout.align() > mapping::ALIGN {
        return ptr::null_mut();
    }
    USED.store(true, Ordering::Relaxed);
    loop {
        if let Some(slot) = chunks().find_map(|chunk| chunk.take(best)) {
            return slot;
        }
        if !extend() {
            let larger = (0..best).rev().find_map(|class| chunks().find_map(|c| c.take(class)));
            return larger.unwrap_or(ptr::null_mut());
        }
    }
}

/// Whether `piece` is a slot.
pub fn holds(piece: *mut u8) -> bool {
    USED.load(Ordering::Relaxed) && chunks().any(|chunk| chunk.offset_in(piece).is_some())
}

/// Takes `piece` back if it is a slot; whether it is.
pub fn give_back(piece: *mut u8) -> bool {
    if !USED.load(Ordering::Relaxed) {
        return false;
    }
    let found = chunks().find_map(|chunk| Some((chunk, chunk.offset_in(piece)?)));
    if let Some((chunk, offset)) = found {
        chunk.give_back(offset);
    }
    found.is_some()
}

/// Whether the reserve is in use, has less than three quarters of a chunk left of some size, and
/// cannot be extended: nothing is to be begun.
pub fn is_short() -> bool {
    let enough = |class| {
        let free: usize = chunks().map(|chunk| chunk.free(class)).sum();
        4 * free >= 3 * CLASSES[class].slots
    };
    USED.load(Ordering::Relaxed) && !(0..CLASSES.len()).all(enough) && !extend()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a layout")
    }

    #[test]
    fn slots_are_apart_aligned_and_large_enough() {
        let wanted = [(1, 1), (64, 64), (65, 8), (300, 4096), (4096, 4096), (100_000, 16)];
        let slots: Vec<(usize, usize)> = wanted
            .iter()
            .cycle()
            .take(600)
            .map(|(size, align)| {
                let slot = take(layout(*size, *align));
                assert!(holds(slot) && slot.addr().is_multiple_of(*align), "{size} {align}");
                // SAFETY: the slot is this test's and has that much room.
                unsafe { slot.write_bytes(1, *size) };
                (slot.addr(), *size)
            })
            .collect();
        let mut sorted = slots.clone();
        sorted.sort_unstable();
        assert!(sorted.is_sorted_by(|a, b| a.0 + a.1 <= b.0), "slots overlap");
        // A hundred pieces of the largest size are more than a chunk has: the reserve was extended.
        assert!(chunks().count() > 1 && !is_short());
        for (slot, _) in slots {
            assert!(give_back(ptr::with_exposed_provenance_mut(slot)));
        }
    }

    #[test]
    fn the_largest_pieces_are_whole_pages_and_have_slots() {
        let slots = [RESERVED_MAX, RESERVED_MAX - 1].map(|size| take(layout(size, 4096)));
        for slot in slots {
            assert!(holds(slot) && slot.addr().is_multiple_of(4096));
            assert!(give_back(slot));
        }
        assert!(take(layout(RESERVED_MAX + 1, 8)).is_null());
    }

    #[test]
    fn what_is_not_of_the_reserve_is_not_taken_back() {
        let mut other = 0_u8;
        assert!(!give_back(&raw mut other) && !holds(&raw mut other));
        assert!(take(layout(1 << 20, 8)).is_null());
        assert!(take(layout(64, 1 << 16)).is_null());
    }

    #[test]
    fn no_slot_is_given_to_two_threads() {
        std::thread::scope(|scope| {
            for mark in 0..8_u8 {
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        let slot = take(layout(200, 8));
                        // SAFETY: the slot is this thread's and has 200 bytes.
                        unsafe { slot.write_bytes(mark, 200) };
                        // SAFETY: as above.
                        let content = unsafe { slot.cast::<[u8; 200]>().read() };
                        assert_eq!(content, [mark; 200]);
                        assert!(give_back(slot));
                    }
                });
            }
        });
    }
}
