//! The payload of a segment on its way into registered memory: bytes of this process, or memory
//! that the peer's process has lent.
//!
//! Invariant: a payload is copied once, to where it belongs, after every check of that place.
#![allow(unsafe_code)]

use std::fmt::Debug;
use std::ops::Range;

use super::place;

/// Memory that another process lends until what it posted is complete.
pub trait LentMemory: Debug {
    /// Copies the bytes at `range` to the address `to`, the last one after all others; whether they
    /// are there. If not, and [`LentMemory::is_lost`] is not set, then the memory at `to` is not
    /// mapped.
    ///
    /// # Safety
    /// The application has registered the memory at `to`, of as many bytes.
    unsafe fn copy_to(&self, range: Range<usize>, to: u64) -> bool;

    /// Whether some of it could not be read, or was no longer lent: nothing that was copied of it
    /// is to be delivered.
    fn is_lost(&self) -> bool;
}

/// The payload of a segment, or a part of it.
#[derive(Clone, Copy, Debug)]
pub enum SegmentPayload<'a> {
    /// Bytes of this process, in which another one may still write.
    Here(&'a [u8]),
    /// Bytes of another process.
    Lent {
        /// The payload of the whole segment.
        memory: &'a dyn LentMemory,
        /// Index of the first byte in it.
        start: usize,
        /// Length in bytes.
        len: usize,
    },
}

impl<'a> SegmentPayload<'a> {
    /// All `len` bytes of `memory`.
    pub fn lent(memory: &'a dyn LentMemory, len: usize) -> Self {
        Self::Lent { memory, start: 0, len }
    }

    /// Length in bytes.
    pub fn len(self) -> usize {
        match self {
            Self::Here(bytes) => bytes.len(),
            Self::Lent { len, .. } => len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The bytes; none of what is lent.
    pub fn bytes(self) -> &'a [u8] {
        match self {
            Self::Here(bytes) => bytes,
            Self::Lent { .. } => &[],
        }
    }

    /// The first `at` bytes, and the others.
    ///
    /// # Panics
    /// If it is shorter.
    pub fn split_at(self, at: usize) -> (Self, Self) {
        match self {
            Self::Here(bytes) => {
                let (first, others) = bytes.split_at(at);
                (Self::Here(first), Self::Here(others))
            }
            Self::Lent { memory, start, len } => {
                assert!(at <= len, "a payload of {len} bytes has no {at}");
                let others = Self::Lent { memory, start: start + at, len: len - at };
                (Self::Lent { memory, start, len: at }, others)
            }
        }
    }

    /// The bytes at `range`.
    ///
    /// # Panics
    /// If it does not have them.
    pub fn slice(self, range: Range<usize>) -> Self {
        self.split_at(range.end).0.split_at(range.start).1
    }

    /// Whether it is, or was, lent.
    pub fn is_lent(self) -> bool {
        matches!(self, Self::Lent { .. })
    }

    /// Whether it was lent and is so no more.
    pub fn is_lost(self) -> bool {
        matches!(self, Self::Lent { memory, .. } if memory.is_lost())
    }

    /// Writes it to `addr`, the last byte after all others; returns whether that memory is mapped
    /// and all of the payload was there.
    ///
    /// The caller checked as many bytes from `addr` against a region under the table's lock.
    #[must_use]
    pub(super) fn write_to(self, addr: u64) -> bool {
        match self {
            Self::Here(bytes) => place::write_app(addr, bytes),
            // SAFETY: checked by the caller; the application vouched for that memory when it
            // registered it.
            Self::Lent { memory, start, len } => unsafe {
                memory.copy_to(start..start + len, addr)
            },
        }
    }
}

impl<'a> From<&'a [u8]> for SegmentPayload<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Here(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for SegmentPayload<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Here(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Nowhere;

    impl LentMemory for Nowhere {
        unsafe fn copy_to(&self, _: Range<usize>, _: u64) -> bool {
            false
        }

        fn is_lost(&self) -> bool {
            true
        }
    }

    #[test]
    fn parts_of_lent_memory_know_where_they_begin() {
        let whole = SegmentPayload::lent(&Nowhere, 100);
        let (first, others) = whole.split_at(30);
        assert_eq!((first.len(), others.len()), (30, 70));
        let SegmentPayload::Lent { start, len, .. } = others.slice(10..25) else {
            panic!("it is lent")
        };
        assert_eq!((start, len), (40, 15));
        assert!(whole.is_lost() && whole.bytes().is_empty() && !whole.is_empty());
        let here = SegmentPayload::from(b"abcdef").slice(1..4);
        assert!(here.bytes() == b"bcd" && !here.is_lost());
    }
}
