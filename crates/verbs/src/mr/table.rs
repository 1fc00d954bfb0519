//! The table of regions, and checked access through it.
//!
//! A peer may invalidate a key only if its region grants remote rights and belongs to the
//! protection domain of the queue pair.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::iter;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use weft_sync::{RwLock, RwLockWriteGuard};

use super::payload::SegmentPayload;
use super::place;
use super::reader::RegionReader;
use super::region::{Accessor, RegionEntry, RegionFault, RegionSpec};
use super::window::release;
use crate::access::Access;
use crate::misuse::Misuse;
use crate::sge::{Sge, parts};

/// No region or window has a key below this one.
pub const LEAST_KEY: u32 = 1 << 16;

/// Origin of an invalidation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidate {
    /// A work request of this side.
    Local,
    /// The peer: allowed only where it has rights at all, RFC 5042 section 6.2.5.
    Remote,
}

/// Index part of a key; the other eight bits must match too.
pub(super) fn index(key: u32) -> u32 {
    key >> 8
}

/// Regions and windows by [`index`] of their keys.
#[derive(Default, Debug)]
pub(super) struct Regions(HashMap<u32, RegionEntry, BuildHasherDefault<KeyHasher>>);

impl Regions {
    /// Region or window with exactly this key.
    pub fn find(&self, key: u32) -> Option<&RegionEntry> {
        self.0.get(&index(key)).filter(|region| region.key == key)
    }

    fn find_mut(&mut self, key: u32) -> Option<&mut RegionEntry> {
        self.0.get_mut(&index(key)).filter(|region| region.key == key)
    }

    pub fn get_mut(&mut self, index: &u32) -> Option<&mut RegionEntry> {
        self.0.get_mut(index)
    }

    pub fn remove(&mut self, index: &u32) -> Option<RegionEntry> {
        self.0.remove(index)
    }

    pub fn values(&self) -> impl Iterator<Item = &RegionEntry> {
        self.0.values()
    }

    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut RegionEntry> {
        self.0.values_mut()
    }
}

/// Chooses the bit of a piece of so many bytes of payload that is to be wrong, if one is.
pub type TamperFn = Box<dyn Fn(u64) -> Option<u64> + Send + Sync>;

/// Table of the regions and windows of a device.
#[derive(Default)]
pub struct RegionTable {
    regions: RwLock<Regions>,
    generation: AtomicU64,
    tamper: OnceLock<TamperFn>,
    /// Count of windows.
    pub(super) windows: AtomicUsize,
}

impl RegionTable {
    /// A table without regions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Has `tamper` choose bits of payload that are changed as it is placed: for tests of
    /// applications that check what arrives. The first one stays.
    pub fn set_tamper(&self, tamper: TamperFn) {
        // There is one plan of faults in the life of a device.
        let _ = self.tamper.set(tamper);
    }

    /// Changes a bit of the `len` bytes at `addr`, which were just placed, if one is to be wrong.
    fn spoil_placed(&self, addr: u64, len: u64) {
        let Some(bit) = self.tamper.get().and_then(|tamper| tamper(len)) else { return };
        let at = addr + bit / 8;
        let mut byte = [0];
        if place::read_app_into(at, &mut byte) {
            byte[0] ^= 1 << (bit % 8);
            // The page was there a moment ago; if it is gone, so is what was placed.
            let _ = place::write_app(at, &byte);
        }
    }

    /// Invalidates the region `key`, if there is one, and unbinds nothing: every access through it
    /// fails from now on.
    pub fn spoil(&self, key: u32) {
        if let Some(region) = self.lock().find_mut(key) {
            region.valid = false;
            self.renew();
        }
    }

    /// Whether no thread changes it just now, nor waits until it can.
    pub(crate) fn is_unlocked(&self) -> bool {
        self.regions.try_read().is_some()
    }

    pub(super) fn lock(&self) -> RwLockWriteGuard<'_, Regions> {
        self.regions.write()
    }

    /// Starts a new generation: a region ended or changed. The table must be locked for writing.
    pub(super) fn renew(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Registers a region under a key drawn from `entropy`, which must be unpredictable.
    pub fn register(&self, spec: &RegionSpec, entropy: impl FnMut() -> u32) -> Result<u32, Misuse> {
        spec.check()?;
        Ok(self.insert(entropy, |key| RegionEntry::new(key, spec)))
    }

    pub(super) fn insert(
        &self,
        mut entropy: impl FnMut() -> u32,
        make: impl FnOnce(u32) -> RegionEntry,
    ) -> u32 {
        let mut regions = self.lock();
        loop {
            let key = entropy();
            // Small keys are common in faulty applications; none is ever valid.
            if key >= LEAST_KEY && !regions.0.contains_key(&index(key)) {
                regions.0.insert(index(key), make(key));
                return key;
            }
        }
    }

    /// Deregisters a region. After this returns nothing reads or writes it, as far as
    /// [`crate::qp::send_queue::QueueLoan::end`] holds for memory that was lent. The caller holds
    /// the lock of no connection.
    ///
    /// # Errors
    /// [`Misuse::Busy`] while a window is bound to it.
    pub fn deregister(&self, key: u32) -> Result<(), Misuse> {
        let mut regions = self.lock();
        let region = regions.find(key).filter(|r| r.window.is_none()).ok_or(Misuse::NotFound)?;
        if region.bound > 0 {
            return Err(Misuse::Busy);
        }
        let gone = regions.remove(&index(key));
        self.renew();
        drop(regions);
        if let Some(region) = gone {
            region.lenders.end_loans_of(key);
        }
        Ok(())
    }

    /// What a region is, from which what it is to become is made.
    ///
    /// # Errors
    /// [`Misuse::NotFound`] where no region has this key.
    pub fn spec(&self, key: u32) -> Result<RegionSpec, Misuse> {
        let regions = self.lock();
        let region = regions.find(key).filter(|r| r.window.is_none()).ok_or(Misuse::NotFound)?;
        Ok(RegionSpec {
            pd: Arc::clone(region.pd.arc()),
            addr: region.addr,
            len: region.len,
            iova: region.iova,
            access: region.access,
            backing: region.backing.clone(),
        })
    }

    /// Makes a region another one in place, under the same key. The caller holds the lock of no
    /// connection.
    ///
    /// # Errors
    /// [`Misuse::Busy`] while a window is bound to it.
    pub fn reregister(&self, key: u32, spec: &RegionSpec) -> Result<(), Misuse> {
        let mut regions = self.lock();
        let region = regions.find_mut(key).ok_or(Misuse::NotFound)?;
        if region.bound > 0 {
            return Err(Misuse::Busy);
        }
        spec.check()?;
        let before = std::mem::replace(region, RegionEntry::new(key, spec));
        self.renew();
        drop(regions);
        before.lenders.end_loans_of(key);
        Ok(())
    }

    /// Invalidates a key without deregistration. A window is unbound.
    pub fn invalidate(
        &self,
        key: u32,
        accessor: impl Into<Accessor>,
        who: Invalidate,
    ) -> Result<(), RegionFault> {
        let accessor = accessor.into();
        let mut regions = self.lock();
        let region = regions.find_mut(key).ok_or(RegionFault::InvalidStag)?;
        if !region.pd.admits(accessor.pd) {
            return Err(RegionFault::WrongPd);
        }
        let reached = who == Invalidate::Local || region.access.is_remote();
        if !reached || region.valid && !region.may_be_invalidated(accessor) {
            return Err(RegionFault::Access);
        }
        let left = region.unbind();
        region.valid = false;
        release(&mut regions, left);
        self.renew();
        Ok(())
    }

    /// Writes data of a peer to `to` in region `key`; gives its address in this process.
    pub fn write<'a>(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        payload: impl Into<SegmentPayload<'a>>,
        right: Access,
    ) -> Result<u64, RegionFault> {
        let payload = payload.into();
        self.write_parts(key, who, to, (payload, iter::once(0..payload.len())), right)
    }

    /// The same for those `parts` of `payload` alone that are named by their place in it; the whole
    /// of it must be permitted.
    pub fn write_parts(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        (payload, parts): (SegmentPayload<'_>, impl IntoIterator<Item = Range<usize>>),
        right: Access,
    ) -> Result<u64, RegionFault> {
        let regions = self.regions.read();
        let region = regions.find(key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(who.into(), to, payload.len() as u64, right)?;
        for part in parts.into_iter().filter(|_| !region.is_null()) {
            let (at, octets) = (addr + part.start as u64, part.len() as u64);
            if !payload.slice(part).write_to(at) {
                return Err(RegionFault::Bounds);
            }
            self.spoil_placed(at, octets);
        }
        Ok(addr)
    }

    /// Reads bytes of the region `key` from `from` on into `out`.
    pub fn read(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), RegionFault> {
        let regions = self.regions.read();
        let region = regions.find(key).ok_or(RegionFault::InvalidStag)?;
        let addr = region.check(who.into(), from, out.len() as u64, Access::empty())?;
        if region.is_null() {
            out.fill(0);
            return Ok(());
        }
        place::read_app_into(addr, out).then_some(()).ok_or(RegionFault::Bounds)
    }

    /// Writes `payload` into the list of entries, `offset` bytes into it.
    ///
    /// The entries must have room for it.
    pub fn scatter<'a>(
        &self,
        pd: u32,
        sges: &[Sge],
        offset: u64,
        payload: impl Into<SegmentPayload<'a>>,
    ) -> Result<(), RegionFault> {
        let payload = payload.into();
        let mut rest = payload;
        parts(sges, offset, payload.len() as u64).try_for_each(|part| {
            let (now, later) = rest.split_at(part.length as usize);
            rest = later;
            self.write(part.lkey, pd, part.addr, now, Access::LOCAL_WRITE).map(drop)
        })
    }

    /// Checks an access without performing it; gives the address in this process.
    pub fn check(
        &self,
        key: u32,
        who: impl Into<Accessor>,
        to: u64,
        len: u64,
        right: Access,
    ) -> Result<u64, RegionFault> {
        let regions = self.regions.read();
        let region = regions.find(key).ok_or(RegionFault::InvalidStag)?;
        region.check(who.into(), to, len, right)
    }

    /// Locks all regions while a batch is gathered and handed to the kernel.
    ///
    /// Take it once for a batch: taking it again on the same thread can deadlock with a writer.
    pub fn reader(&self) -> RegionReader<'_> {
        let regions = self.regions.read();
        RegionReader::new(regions, self.generation.load(Ordering::Acquire))
    }
}

/// Hasher for keys, which are random already: one multiplication.
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
    use weft_wire::llp::Gather;

    use super::super::region::Backing;
    use super::super::window::WindowKind;
    use super::*;
    use crate::pd::Pd;
    use crate::usage::Counted;

    struct KeySource(u32);
    impl KeySource {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.0
        }
    }

    fn table(memory: &[u8], access: Access) -> (RegionTable, Arc<Pd>, u32, u64) {
        let table = RegionTable::new();
        let pd = Arc::new(Pd::new(3));
        let base = memory.as_ptr() as u64;
        let mut keys = KeySource(1);
        let spec = RegionSpec {
            pd: Arc::clone(&pd),
            addr: base,
            len: memory.len() as u64,
            iova: 0x1000,
            access,
            backing: Backing::Mapped,
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
        assert_eq!(write(key, 3, base + 48), Ok(memory.as_ptr() as u64 + 48));
        let read = |key, from, len| table.read(key, 3, from, &mut vec![0; len]);
        assert_eq!(read(key ^ 1, base, 1), Err(RegionFault::InvalidStag));
        assert_eq!(read(key, base + 60, 5), Err(RegionFault::Bounds));
        let mut back = [0; 5];
        table.read(key, 3, base + 47, &mut back).unwrap();
        assert_eq!(back, [0, 1, 1, 1, 1]);
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
    fn the_bit_that_is_chosen_is_wrong_and_no_other() {
        let memory = vec![0u8; 64];
        let (table, _pd, key, base) = table(&memory, REMOTE);
        table.set_tamper(Box::new(|len| (len == 16).then_some(9)));
        let write = |to, bytes: &[u8]| table.write(key, 3, to, bytes, Access::REMOTE_WRITE);
        assert!(write(base, &[0; 16]).is_ok() && write(base + 16, &[0; 8]).is_ok());
        let mut placed = [0; 64];
        assert!(place::read_app_into(memory.as_ptr() as u64, &mut placed));
        assert_eq!((placed[1], placed.iter().filter(|byte| **byte != 0).count()), (2, 1));
    }

    #[test]
    fn a_spoiled_region_is_refused_until_it_is_deregistered() {
        let memory = vec![0u8; 64];
        let (table, _pd, key, base) = table(&memory, REMOTE);
        table.spoil(key);
        table.spoil(key ^ 1);
        assert_eq!(table.check(key, 3, base, 1, Access::empty()), Err(RegionFault::InvalidStag));
        assert_eq!(table.deregister(key), Ok(()));
    }

    #[test]
    fn small_keys_stand_for_nothing() {
        let memory = [0u8; 64];
        let spec = RegionSpec {
            pd: Arc::new(Pd::new(3)),
            addr: memory.as_ptr() as u64,
            len: 64,
            iova: 0,
            access: REMOTE,
            backing: Backing::Mapped,
        };
        let mut drawn = [0, 7, LEAST_KEY - 1, LEAST_KEY, LEAST_KEY + 256].into_iter();
        let table = RegionTable::new();
        let mut register = || table.register(&spec, || drawn.next().unwrap()).unwrap();
        assert_eq!([register(), register()], [LEAST_KEY, LEAST_KEY + 256]);
    }

    #[test]
    fn a_window_is_no_region_to_deregister() {
        let table = RegionTable::new();
        let key = table.allocate_window(&Arc::new(Pd::new(3)), WindowKind::Type2, || 1 << 20);
        assert_eq!(table.deregister(key), Err(Misuse::NotFound));
        assert_eq!(table.free_window(key), Ok(()));
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
            backing: Backing::Mapped,
        };
        let refused = RegionTable::new().register(&spec, || 1 << 20);
        assert_eq!(refused.map_err(|e| e.errno()), Err(22));
    }
}
