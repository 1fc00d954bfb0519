//! The table of regions, and checked access through it.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard};

use weft_wire::crc::Crc32c;
use weft_wire::llp::{Gather, MemoryPiece, RegisteredMemory};

use super::place;
use crate::access::Access;
use crate::misuse::Misuse;
use crate::pd::Pd;
use crate::usage::InUse;
use crate::wr::Sge;

/// Why an access through a key is refused, in the order of RFC 5040 section 4.8 (figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionFault {
    /// No region has this key.
    InvalidStag,
    /// The region belongs to another protection domain.
    WrongPd,
    /// The range wraps around 2^64.
    Wrap,
    /// The range is not within the region.
    Bounds,
    /// The region does not grant this right.
    Access,
}

/// What a region is made of.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// First octet in this process.
    pub addr: u64,
    /// Length in octets.
    pub len: u64,
    /// The address that peers and scatter/gather entries use for the first octet.
    pub iova: u64,
    /// Rights.
    pub access: Access,
}

impl RegionSpec {
    fn check(&self) -> Result<(), Misuse> {
        if !self.access.is_consistent() {
            return Err(Misuse::Invalid("remote write or atomic access needs local write access"));
        }
        if self.addr.checked_add(self.len).is_none() || self.iova.checked_add(self.len).is_none() {
            return Err(Misuse::Invalid("the region wraps around the address space"));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Region {
    pd: InUse<Pd>,
    addr: u64,
    len: u64,
    iova: u64,
    access: Access,
    valid: bool,
}

impl Region {
    fn new(spec: &RegionSpec) -> Self {
        Self {
            pd: InUse::of(&spec.pd),
            addr: spec.addr,
            len: spec.len,
            iova: spec.iova,
            access: spec.access,
            valid: true,
        }
    }

    fn check(&self, pd: u32, to: u64, len: u64, right: Access) -> Result<u64, RegionFault> {
        if !self.valid {
            return Err(RegionFault::InvalidStag);
        }
        if self.pd.id() != pd {
            return Err(RegionFault::WrongPd);
        }
        let end = to.checked_add(len).ok_or(RegionFault::Wrap)?;
        if to < self.iova || end > self.iova + self.len {
            return Err(RegionFault::Bounds);
        }
        if !self.access.contains(right) {
            return Err(RegionFault::Access);
        }
        Ok(self.addr + (to - self.iova))
    }
}

/// Who asks to invalidate a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// A work request of this side.
    Local,
    /// The peer: allowed only where it has rights at all, RFC 5042 section 6.2.5.
    Remote,
}

/// The regions of a device.
#[derive(Default, Debug)]
pub struct RegionTable {
    regions: RwLock<HashMap<u32, Region, BuildHasherDefault<KeyHasher>>>,
    generation: AtomicU64,
}

impl RegionTable {
    /// An empty table.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a region under a key drawn from `entropy`, which must be unpredictable.
    pub fn register(
        &self,
        spec: &RegionSpec,
        mut entropy: impl FnMut() -> u32,
    ) -> Result<u32, Misuse> {
        spec.check()?;
        let region = Region::new(spec);
        let mut regions = self.regions.write().expect("region lock");
        loop {
            let key = entropy();
            // Small keys are what a confused program sends; never let one be valid.
            if key >= 1 << 16 && !regions.contains_key(&key) {
                regions.insert(key, region);
                return Ok(key);
            }
        }
    }

    /// Ends a region. When this returns nothing reads or writes it, and nothing ever will.
    pub fn deregister(&self, key: u32) -> Result<(), Misuse> {
        let removed = self.regions.write().expect("region lock").remove(&key);
        self.generation.fetch_add(1, Ordering::Release);
        removed.map(drop).ok_or(Misuse::NotFound)
    }

    /// Changes a region in place; it keeps its key.
    pub fn reregister(
        &self,
        key: u32,
        pd: Option<&Arc<Pd>>,
        range: Option<(u64, u64, u64)>,
        access: Option<Access>,
    ) -> Result<(), Misuse> {
        let mut regions = self.regions.write().expect("region lock");
        let region = regions.get_mut(&key).ok_or(Misuse::NotFound)?;
        let (addr, len, iova) = range.unwrap_or((region.addr, region.len, region.iova));
        let spec = RegionSpec {
            pd: Arc::clone(pd.unwrap_or(region.pd.arc())),
            addr,
            len,
            iova,
            access: access.unwrap_or(region.access),
        };
        spec.check()?;
        *region = Region::new(&spec);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Makes a key invalid without ending the registration.
    pub fn invalidate(&self, key: u32, pd: u32, who: Invalidate) -> Result<(), RegionFault> {
        let mut regions = self.regions.write().expect("region lock");
        let region = regions.get_mut(&key).ok_or(RegionFault::InvalidStag)?;
        if region.pd.id() != pd {
            return Err(RegionFault::WrongPd);
        }
        if who == Invalidate::Remote && !region.access.is_remote() {
            return Err(RegionFault::Access);
        }
        region.valid = false;
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Writes what a peer sent to `to` in the region `key`.
    pub fn write(
        &self,
        key: u32,
        pd: u32,
        to: u64,
        bytes: &[u8],
        right: Access,
    ) -> Result<(), RegionFault> {
        let regions = self.regions.read().expect("region lock");
        let region = regions.get(&key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(pd, to, bytes.len() as u64, right)?;
        place::copy_in(addr, bytes);
        Ok(())
    }

    /// Writes `bytes` into the list of entries, `offset` octets into it.
    ///
    /// The entries must have room for them.
    pub fn scatter(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), RegionFault> {
        let mut rest = bytes;
        for_each_part(sges, offset, bytes.len() as u64, |part| {
            let (now, later) = rest.split_at(part.length as usize);
            rest = later;
            self.write(part.lkey, pd, part.addr, now, Access::LOCAL_WRITE)
        })
    }

    /// Checks an access without performing it.
    pub fn check(
        &self,
        key: u32,
        pd: u32,
        to: u64,
        len: u64,
        right: Access,
    ) -> Result<(), RegionFault> {
        let regions = self.regions.read().expect("region lock");
        let region = regions.get(&key).ok_or(RegionFault::InvalidStag)?;
        region.check(pd, to, len, right).map(drop)
    }

    /// Holds every region in place while a batch is gathered and handed to the kernel.
    ///
    /// Take it once for a batch: taking it again on the same thread can deadlock with a writer.
    pub fn reader(&self) -> RegionReader<'_> {
        RegionReader {
            regions: self.regions.read().expect("region lock"),
            generation: self.generation.load(Ordering::Acquire),
        }
    }
}

/// Checked reads of regions that cannot go away while it lives.
pub struct RegionReader<'a> {
    regions: RwLockReadGuard<'a, HashMap<u32, Region, BuildHasherDefault<KeyHasher>>>,
    generation: u64,
}

impl RegionReader<'_> {
    /// Grows each time a region ends or changes; pieces gathered under the same value are good.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether `key` names a valid region of the protection domain `pd`.
    pub fn belongs(&self, key: u32, pd: u32) -> bool {
        self.regions.get(&key).is_some_and(|r| r.valid && r.pd.id() == pd)
    }

    /// Whether some living region still holds all of `piece`.
    pub fn still_holds(&self, piece: MemoryPiece) -> bool {
        self.regions.values().any(|r| {
            r.valid && piece.addr >= r.addr && piece.addr + u64::from(piece.len) <= r.addr + r.len
        })
    }

    /// Appends `len` octets of the region `key` from `to`.
    pub fn gather_region(
        &self,
        key: u32,
        pd: u32,
        to: u64,
        len: u32,
        right: Access,
        out: &mut Gather,
    ) -> Result<(), RegionFault> {
        let region = self.regions.get(&key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(pd, to, u64::from(len), right)?;
        out.push_memory(MemoryPiece { addr, len });
        Ok(())
    }

    /// Appends `len` octets of a list of entries, `offset` octets into it.
    pub fn gather(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        len: u64,
        out: &mut Gather,
    ) -> Result<(), RegionFault> {
        for_each_part(sges, offset, len, |part| {
            self.gather_region(part.lkey, pd, part.addr, part.length, Access::empty(), out)
        })
    }

    /// Runs an atomic operation for a peer; gives the old value. `to` must be a multiple of 8 in
    /// this process, too, or the access is out of bounds.
    pub fn atomic(
        &self,
        key: u32,
        pd: u32,
        to: u64,
        operate: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, RegionFault> {
        let region = self.regions.get(&key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(pd, to, 8, Access::REMOTE_ATOMIC)?;
        if !addr.is_multiple_of(8) {
            return Err(RegionFault::Bounds);
        }
        Ok(place::atomic_update(addr, operate))
    }

    /// Checks the keys and ranges of a list of entries.
    pub fn check(&self, pd: u32, sges: &[Sge], right: Access) -> Result<(), RegionFault> {
        sges.iter().filter(|s| s.length > 0).try_for_each(|s| {
            let region = self.regions.get(&s.lkey).ok_or(RegionFault::InvalidStag)?;
            region.check(pd, s.addr, u64::from(s.length), right).map(drop)
        })
    }
}

impl RegisteredMemory for RegionReader<'_> {
    fn crc32c(&self, crc: Crc32c, piece: MemoryPiece) -> Crc32c {
        place::crc32c(crc, piece)
    }

    fn copy_to(&self, piece: MemoryPiece, out: &mut Vec<u8>) {
        place::copy_out(piece, out);
    }
}

/// Visits the parts of `sges` that hold octets `offset..offset + len` of the whole.
fn for_each_part(
    sges: &[Sge],
    offset: u64,
    len: u64,
    mut visit: impl FnMut(Sge) -> Result<(), RegionFault>,
) -> Result<(), RegionFault> {
    let (mut skip, mut left) = (offset, len);
    for sge in sges {
        if left == 0 {
            break;
        }
        let have = u64::from(sge.length);
        if skip >= have {
            skip -= have;
            continue;
        }
        let take = (have - skip).min(left);
        visit(Sge { addr: sge.addr.wrapping_add(skip), length: take as u32, lkey: sge.lkey })?;
        left -= take;
        skip = 0;
    }
    Ok(())
}

/// Keys are random already, so one multiplication spreads them.
#[derive(Default)]
pub struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }
    fn write_u32(&mut self, key: u32) {
        self.0 = (self.0 ^ u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Counted;

    struct Keys(u32);
    impl Keys {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.0
        }
    }

    fn table(memory: &[u8], access: Access) -> (RegionTable, Arc<Pd>, u32, u64) {
        let table = RegionTable::new();
        let pd = Arc::new(Pd::new(3));
        let base = memory.as_ptr() as u64;
        let mut keys = Keys(1);
        let spec = RegionSpec {
            pd: Arc::clone(&pd),
            addr: base,
            len: memory.len() as u64,
            iova: 0x1000,
            access,
        };
        let key = table.register(&spec, || keys.next()).unwrap();
        (table, pd, key, 0x1000)
    }

    const REMOTE: Access = Access::REMOTE_WRITE.union(Access::LOCAL_WRITE);

    #[test]
    fn each_wrong_access_has_its_fault_and_changes_nothing() {
        let memory = vec![0u8; 64];
        let (table, _pd, key, base) = table(&memory, REMOTE);
        let bytes = [1u8; 16];
        let write = |key, pd, to| table.write(key, pd, to, &bytes, Access::REMOTE_WRITE);
        assert_eq!(write(key ^ 1, 3, base), Err(RegionFault::InvalidStag));
        assert_eq!(write(key, 4, base), Err(RegionFault::WrongPd));
        assert_eq!(write(key, 3, base - 1), Err(RegionFault::Bounds));
        assert_eq!(write(key, 3, base + 49), Err(RegionFault::Bounds));
        assert_eq!(write(key, 3, u64::MAX - 7), Err(RegionFault::Wrap));
        let read = table.check(key, 3, base, 1, Access::REMOTE_READ);
        assert_eq!(read, Err(RegionFault::Access));
        assert!(memory.iter().all(|b| *b == 0));
        assert_eq!(write(key, 3, base + 48), Ok(()));
    }

    #[test]
    fn a_dead_region_is_never_written_and_frees_its_domain() {
        let memory = vec![0u8; 64];
        let (table, pd, key, base) = table(&memory, REMOTE);
        assert!(pd.users().any());
        table.deregister(key).unwrap();
        assert!(!pd.users().any());
        let late = table.write(key, 3, base, &[1; 8], Access::REMOTE_WRITE);
        assert_eq!(late, Err(RegionFault::InvalidStag));
        assert_eq!(table.deregister(key), Err(Misuse::NotFound));
    }

    #[test]
    fn a_peer_invalidates_only_what_it_may_reach() {
        let memory = vec![0u8; 64];
        let (local, _pd, key, _) = table(&memory, Access::LOCAL_WRITE);
        assert_eq!(local.invalidate(key, 3, Invalidate::Remote), Err(RegionFault::Access));
        let (open, _pd, key, base) = table(&memory, REMOTE);
        assert_eq!(open.invalidate(key, 9, Invalidate::Remote), Err(RegionFault::WrongPd));
        assert_eq!(open.invalidate(key, 3, Invalidate::Remote), Ok(()));
        let late = open.write(key, 3, base, &[1; 8], Access::REMOTE_WRITE);
        assert_eq!(late, Err(RegionFault::InvalidStag));
    }

    #[test]
    fn scatter_fills_entries_from_any_offset() {
        let memory = vec![0u8; 64];
        let (table, _pd, key, base) = table(&memory, REMOTE);
        let sges = [
            Sge { addr: base, length: 3, lkey: key },
            Sge { addr: 0, length: 0, lkey: 0 },
            Sge { addr: base + 32, length: 5, lkey: key },
        ];
        table.scatter(3, &sges, 1, &[1, 2, 3, 4]).unwrap();
        assert_eq!(&memory[..4], [0, 1, 2, 0]);
        assert_eq!(&memory[32..37], [3, 4, 0, 0, 0]);
        let mut out = Gather::new();
        table.reader().gather(3, &sges, 2, 4, &mut out).unwrap();
        assert_eq!(out.len(), 4);
        assert_eq!(out.pieces().len(), 2);
    }

    #[test]
    fn remote_write_without_local_write_is_refused() {
        let spec = RegionSpec {
            pd: Arc::new(Pd::new(1)),
            addr: 0,
            len: 8,
            iova: 0,
            access: Access::REMOTE_WRITE,
        };
        let refused = RegionTable::new().register(&spec, || 1 << 20);
        assert_eq!(refused.map_err(|e| e.errno()), Err(22));
    }
}
