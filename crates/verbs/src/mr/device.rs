//! Device memory: accessible by verbs only.
//!
//! A device in software has none but the machine's, so this is memory of the process under a
//! budget. It is addressed from zero, in words of four bytes as on adapters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::place;
use crate::misuse::Misuse;
use crate::usage::{Counted, Users};

use weft_wire::llp::MemoryPiece;

/// Word size in bytes: offsets and lengths of copies are multiples.
const WORD: u64 = 4;

/// Amount of device memory, in bytes, and how much is allocated.
#[derive(Debug)]
pub struct Budget {
    octets: u64,
    taken: AtomicU64,
}

impl Budget {
    /// A budget of this many bytes.
    pub fn new(octets: u64) -> Arc<Self> {
        Arc::new(Self { octets, taken: AtomicU64::new(0) })
    }
}

/// An allocation of device memory.
#[derive(Debug)]
pub struct DeviceMemory {
    words: Box<[AtomicU64]>,
    octets: u64,
    budget: Arc<Budget>,
    users: Users,
}

impl Counted for DeviceMemory {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl DeviceMemory {
    /// Takes `octets` from the budget; they are zero.
    ///
    /// # Errors
    /// [`Misuse::Invalid`] for nothing or more than the device ever has, [`Misuse::Full`] for more
    /// than is left of it, [`Misuse::NoMemory`] if this machine has none.
    pub fn allocate(budget: &Arc<Budget>, octets: u64) -> Result<Arc<Self>, Misuse> {
        if octets == 0 || octets > budget.octets {
            return Err(Misuse::Invalid("the device has no such amount of memory"));
        }
        let count = octets.div_ceil(8) as usize;
        let mut words = Vec::new();
        words.try_reserve_exact(count)?;
        words.resize_with(count, || AtomicU64::new(0));
        let fits = |taken: u64| Some(taken + octets).filter(|taken| *taken <= budget.octets);
        let order = Ordering::AcqRel;
        budget.taken.fetch_update(order, Ordering::Acquire, fits).map_err(|_| Misuse::Full)?;
        let words = words.into();
        let (budget, users) = (Arc::clone(budget), Users::default());
        Ok(Arc::new(Self { words, octets, budget, users }))
    }

    /// Length in bytes.
    pub fn octets(&self) -> u64 {
        self.octets
    }

    /// The address in this process of the bytes from `offset`, for a region.
    ///
    /// # Errors
    /// If they are not all within it.
    pub fn range(&self, offset: u64, octets: u64) -> Result<u64, Misuse> {
        let end = offset.checked_add(octets).filter(|end| *end <= self.octets);
        end.ok_or(Misuse::Invalid("the range is not within the device memory"))?;
        Ok(self.words.as_ptr() as u64 + offset)
    }

    fn words(&self, offset: u64, octets: u64) -> Result<u64, Misuse> {
        if !offset.is_multiple_of(WORD) || !octets.is_multiple_of(WORD) {
            return Err(Misuse::Invalid("device memory is read and written by words"));
        }
        self.range(offset, octets)
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// If the range is not within it, or not of whole words.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Misuse> {
        let to = self.words(offset, bytes.len() as u64)?;
        place::write_app(to, bytes).then_some(()).ok_or(Misuse::Fault)
    }

    /// Appends `octets` from `offset` to `out`.
    ///
    /// # Errors
    /// If the range is not within it, or not of whole words.
    pub fn read_append(&self, offset: u64, octets: u32, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let addr = self.words(offset, u64::from(octets))?;
        let piece = MemoryPiece { addr, len: octets };
        place::read_app_append(piece, out).then_some(()).ok_or(Misuse::Fault)
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.octets, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_in_comes_out_and_only_whole_words_do() {
        let memory = DeviceMemory::allocate(&Budget::new(100), 100).unwrap();
        memory.write(4, &[1, 2, 3, 4]).unwrap();
        let mut out = Vec::new();
        memory.read_append(0, 12, &mut out).unwrap();
        assert_eq!(out, [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]);
        for (offset, octets) in [(3, 4), (4, 3), (104, 4), (0, 104), (u64::MAX - 3, 4)] {
            assert!(memory.read_append(offset, octets, &mut out).is_err());
        }
    }

    #[test]
    fn the_budget_is_kept_and_given_back() {
        let budget = Budget::new(64);
        let first = DeviceMemory::allocate(&budget, 40).unwrap();
        assert_eq!(DeviceMemory::allocate(&budget, 65).unwrap_err().errno(), 22);
        assert_eq!(DeviceMemory::allocate(&budget, 40).unwrap_err(), Misuse::Full);
        drop(first);
        assert!(DeviceMemory::allocate(&budget, 64).is_ok());
    }
}
