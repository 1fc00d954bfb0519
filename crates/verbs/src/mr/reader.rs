//! Batched reads of regions under one lock.

use std::cell::Cell;
use std::sync::Weak;

use weft_sync::RwLockReadGuard;
use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, MemoryPiece, Piece, RegisteredMemory};

use super::lenders::Lends;
use super::place;
use super::region::{Accessor, RegionEntry, RegionFault};
use super::table::Regions;
use crate::access::Access;
use crate::sge::{Sge, parts};

/// Checked reads of regions, which cannot be deregistered while it lives.
pub struct RegionReader<'a> {
    regions: RwLockReadGuard<'a, Regions>,
    generation: u64,
    found_gone: Cell<bool>,
    /// The region that was found last, which the next segment most often asks for again.
    last: Cell<Option<PlainRegion>>,
}

/// A region of which its domain, its range and its rights alone decide who may access it: nothing
/// of that changes while the table is locked.
#[derive(Clone, Copy)]
struct PlainRegion {
    key: u32,
    /// Its domain.
    pd: u32,
    access: Access,
    iova: u64,
    len: u64,
    /// Its first byte in this process.
    addr: u64,
}

impl PlainRegion {
    /// `region`, which was just found to be valid, if it is one of `pd`: other domains have access
    /// to it as long as it admits them.
    fn of(region: &RegionEntry, pd: u32) -> Option<Self> {
        let RegionEntry { key, access, iova, len, addr, .. } = *region;
        let is_own = region.pd.id() == pd;
        (is_own && region.is_plain()).then_some(Self { key, pd, access, iova, len, addr })
    }

    /// The address in this process of the `len` bytes at `to`, if `pd` has `right` to them.
    #[inline]
    fn find(&self, (key, pd): (u32, u32), to: u64, len: u64, right: Access) -> Option<u64> {
        let offset = to.wrapping_sub(self.iova);
        let is_within = offset <= self.len && len <= self.len - offset;
        let is_same = self.key == key && self.pd == pd && self.access.contains(right);
        (is_same && is_within).then(|| self.addr + offset)
    }
}

/// A range of a region that was found.
enum FoundRange {
    Memory(MemoryPiece),
    /// So many bytes of a region without memory.
    Zeroes(u32),
}

impl<'a> RegionReader<'a> {
    pub(super) fn new(regions: RwLockReadGuard<'a, Regions>, generation: u64) -> Self {
        Self { regions, generation, found_gone: Cell::new(false), last: Cell::new(None) }
    }

    /// The memory at `to` in the region `key`, if `who` has `right` to it.
    #[inline]
    fn locate(
        &self,
        key: u32,
        who: Accessor,
        (to, len): (u64, u32),
        right: Access,
    ) -> Result<FoundRange, RegionFault> {
        let find = |last: PlainRegion| last.find((key, who.pd), to, len.into(), right);
        match self.last.get().and_then(find) {
            Some(addr) => Ok(FoundRange::Memory(MemoryPiece { addr, len })),
            None => self.locate_anew(key, who, (to, len), right),
        }
    }

    fn locate_anew(
        &self,
        key: u32,
        who: Accessor,
        (to, len): (u64, u32),
        right: Access,
    ) -> Result<FoundRange, RegionFault> {
        let region = self.regions.find(key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(who, to, len.into(), right)?;
        self.last.set(PlainRegion::of(region, who.pd));
        Ok(match region.is_null() {
            true => FoundRange::Zeroes(len),
            false => FoundRange::Memory(MemoryPiece { addr, len }),
        })
    }

    /// Notes that `lender` lends the memory of these entries.
    pub fn note_lender(&self, sges: &[Sge], lender: &Weak<dyn Lends>) {
        let regions = sges.iter().filter_map(|sge| self.regions.find(sge.lkey));
        regions.for_each(|region| region.lenders.note(lender));
    }

    /// Generation of the table: grows with each deregistration or change; pieces gathered under the
    /// same value are valid.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether some registered region contains all of `piece`.
    pub fn still_holds(&self, piece: MemoryPiece) -> bool {
        let len = u64::from(piece.len);
        place::is_zeroes(piece) || self.regions.values().any(|r| r.holds(piece.addr, len))
    }

    /// Whether memory read since the last call was unmapped although registered. It was read as
    /// zeroes, which must not be sent.
    pub fn found_gone(&self) -> bool {
        self.found_gone.take()
    }

    /// Whether any memory of a list of entries is not readable or not mapped.
    pub fn is_gone(&self, pd: u32, sges: &[Sge]) -> bool {
        let mut pieces = Gather::new();
        let len = sges.iter().map(|sge| u64::from(sge.length)).sum();
        self.gather(pd, sges, 0, len, &mut pieces).is_err() || !are_there(&pieces)
    }

    /// The same for a range that a peer reads.
    pub fn is_region_gone(&self, key: u32, who: impl Into<Accessor>, to: u64, len: u32) -> bool {
        let mut pieces = Gather::new();
        let named = self.gather_region(key, who, to, len, Access::REMOTE_READ, &mut pieces);
        named.is_err() || !are_there(&pieces)
    }

    /// Appends `len` bytes of the region `key` from `to`.
    pub fn gather_region(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        len: u32,
        right: Access,
        out: &mut Gather,
    ) -> Result<(), RegionFault> {
        match self.locate(key, who.into(), (to, len), right)? {
            FoundRange::Memory(piece) => out.push_memory(piece),
            FoundRange::Zeroes(len) => place::zeroes(len, |piece| out.push_memory(piece)),
        }
        Ok(())
    }

    /// Checks that `who` has `right` to `len` bytes of the region `key` from `to`.
    pub fn check_region(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        len: u32,
        right: Access,
    ) -> Result<(), RegionFault> {
        self.locate(key, who.into(), (to, len), right).map(drop)
    }

    /// Appends `len` bytes of a list of entries, `offset` bytes into it.
    pub fn gather(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        len: u64,
        out: &mut Gather,
    ) -> Result<(), RegionFault> {
        if let [Sge { addr, length, lkey }] = sges
            && len > 0
            && offset.saturating_add(len) <= u64::from(*length)
        {
            let (addr, len) = (addr.wrapping_add(offset), len as u32);
            return self.gather_region(*lkey, pd, addr, len, Access::empty(), out);
        }
        parts(sges, offset, len).try_for_each(|part| {
            self.gather_region(part.lkey, pd, part.addr, part.length, Access::empty(), out)
        })
    }

    /// Runs an atomic operation for a peer; returns the old value. `to` must map to a multiple of 8
    /// in this process, or the access is out of bounds.
    pub fn atomic(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        operate: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, RegionFault> {
        let region = self.regions.find(key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(who.into(), to, 8, Access::REMOTE_ATOMIC)?;
        if !addr.is_multiple_of(8) {
            return Err(RegionFault::Bounds);
        }
        place::atomic_update(addr, operate).ok_or(RegionFault::Bounds)
    }

    /// Checks the keys and ranges of a list of entries.
    pub fn check(&self, pd: u32, sges: &[Sge], right: Access) -> Result<(), RegionFault> {
        sges.iter()
            .filter(|s| s.length > 0)
            .try_for_each(|s| self.check_region(s.lkey, pd, s.addr, s.length, right))
    }
}

impl RegisteredMemory for RegionReader<'_> {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        place::crc32c(crc, piece).unwrap_or_else(|| {
            self.found_gone.set(true);
            crc
        })
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        if !place::read_app_append(piece, out) {
            self.found_gone.set(true);
        }
    }
}

fn are_there(pieces: &Gather) -> bool {
    pieces.pieces().iter().all(|piece| match piece {
        Piece::Memory(memory) => place::is_there(*memory),
        Piece::Slab { .. } => true,
    })
}
