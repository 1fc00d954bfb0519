//! Memory windows: keys for a part of a region, bound and invalidated by work requests.
//!
//! A window keeps the upper 24 bits of its key for life; the lower eight change with each binding,
//! so that an old key is of no use (InfiniBand architecture, volume 1, section 10.6.7). Windows of
//! type 1 are bound and unbound by a verb; those of type 2 by work requests that name the key,
//! serve one queue pair, and are invalidated like a region.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::region::{Accessor, Backing, RegionEntry, RegionFault, RegionSpec};
use super::table::{RegionTable, Regions, index};
use crate::access::Access;
use crate::misuse::Misuse;
use crate::pd::Pd;

/// The kinds of windows; the values of `enum ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum WindowKind {
    /// Type 1: bound by a verb, valid for all queue pairs of the protection domain.
    Type1 = 1,
    /// Type 2: bound by a work request, valid for its queue pair only.
    Type2 = 2,
}

impl WindowKind {
    /// The kind with this value in `enum ibv_mw_type`.
    pub fn from_raw(raw: u32) -> Option<Self> {
        [Self::Type1, Self::Type2].into_iter().find(|kind| *kind as u32 == raw)
    }
}

/// Parameters of a binding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bind {
    /// Current key of the window.
    pub window: u32,
    /// New key.
    pub key: u32,
    /// Key of the region.
    pub region: u32,
    /// First byte, in addresses of the region.
    pub addr: u64,
    /// Length in bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// Rights of the peer.
    pub access: Access,
}

impl Bind {
    /// The key that follows `key` for the same window, `ibv_inc_rkey`.
    pub fn next_key(key: u32) -> u32 {
        key & !0xff | key.wrapping_add(1) & 0xff
    }
}

/// Window state of a region.
#[derive(Debug)]
pub(super) struct WindowBinding {
    kind: WindowKind,
    /// Index of the region that it is bound to.
    region: Option<u32>,
    /// Queue pair of a type 2 window.
    qp: Option<u32>,
}

impl WindowBinding {
    /// Whether `who` may use it for `right`: peers only; local access names the region.
    pub fn admit(&self, who: Accessor, right: Access) -> Result<(), RegionFault> {
        if !right.is_remote() {
            return Err(RegionFault::InvalidStag);
        }
        if self.qp.is_some() && self.qp != who.qp {
            return Err(RegionFault::WrongPd);
        }
        Ok(())
    }
}

impl RegionTable {
    /// Allocates an unbound window under a key drawn from `entropy`.
    pub fn allocate_window(
        &self,
        pd: &Arc<Pd>,
        kind: WindowKind,
        entropy: impl FnMut() -> u32,
    ) -> u32 {
        let access = Access::empty();
        let backing = Backing::default();
        let spec = RegionSpec { pd: Arc::clone(pd), addr: 0, len: 0, iova: 0, access, backing };
        self.windows.fetch_add(1, Ordering::AcqRel);
        self.insert(entropy, |key| {
            let mut window = RegionEntry::new(key, &spec);
            window.valid = false;
            window.window = Some(WindowBinding { kind, region: None, qp: None });
            window
        })
    }

    /// Deallocates a window, bound or not, by any key that it has had.
    pub fn free_window(&self, key: u32) -> Result<(), Misuse> {
        let mut regions = self.lock();
        let window = regions.get_mut(&index(key)).filter(|r| r.window.is_some());
        let Some(window) = window else { return Err(Misuse::NotFound) };
        let region = window.unbind();
        release(&mut regions, region);
        regions.remove(&index(key));
        self.windows.fetch_sub(1, Ordering::AcqRel);
        self.renew();
        Ok(())
    }

    /// Binds a window on behalf of queue pair `who`.
    ///
    /// # Errors
    /// If the window or the region is not one of its protection domain, the window has other bits
    /// in its key or is of type 2 and bound, or the region does not grant what is asked for.
    pub fn bind(&self, who: Accessor, bind: &Bind) -> Result<(), RegionFault> {
        let mut regions = self.lock();
        let target = regions.target(who, bind)?;
        let window = regions.get_mut(&index(bind.window)).ok_or(RegionFault::InvalidStag)?;
        let Some(kind) = window.window.as_ref().map(|w| w.kind) else {
            return Err(RegionFault::InvalidStag);
        };
        if window.pd.id() != who.pd {
            return Err(RegionFault::WrongPd);
        }
        let taken = kind == WindowKind::Type2 && (window.valid || target.is_none());
        if taken || index(bind.key) != index(bind.window) {
            return Err(RegionFault::InvalidStag);
        }
        let before = window.unbind();
        window.key = bind.key;
        if let Some(target) = target {
            let qp = who.qp.filter(|_| kind == WindowKind::Type2);
            window.bind(kind, target, bind, qp);
        }
        release(&mut regions, before);
        if let Some(region) = regions.get_mut(&index(bind.region)).filter(|_| bind.len > 0) {
            region.bound += 1;
        }
        self.renew();
        Ok(())
    }

    /// Invalidates the windows of a queue pair that is destroyed.
    pub fn forget_qp(&self, qp: u32) {
        if self.windows.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut regions = self.lock();
        let serves = |r: &RegionEntry| r.window.as_ref().is_some_and(|w| w.qp == Some(qp));
        let bound = regions.values_mut().filter(|r| serves(r)).map(RegionEntry::unbind);
        for region in bound.collect::<Vec<_>>() {
            release(&mut regions, region);
        }
        self.renew();
    }
}

/// Memory range for a binding.
struct BindTarget {
    addr: u64,
    backing: Backing,
}

/// Notes that a window was unbound from a region.
pub(super) fn release(regions: &mut Regions, region: Option<u32>) {
    if let Some(region) = region.and_then(|region| regions.get_mut(&region)) {
        region.bound = region.bound.saturating_sub(1);
    }
}

impl Regions {
    /// Checks the range of a binding; `None` if it unbinds.
    fn target(&self, who: Accessor, bind: &Bind) -> Result<Option<BindTarget>, RegionFault> {
        if bind.len == 0 {
            return Ok(None);
        }
        let region = self.find(bind.region).filter(|r| r.window.is_none());
        let region = region.ok_or(RegionFault::InvalidStag)?;
        let granted = Access::REMOTE | Access::ZERO_BASED;
        let mut needed = Access::MW_BIND;
        if bind.access.changes_memory() {
            needed |= Access::LOCAL_WRITE;
        }
        if !granted.contains(bind.access) {
            return Err(RegionFault::Access);
        }
        let addr = region.check(who, bind.addr, bind.len, needed)?;
        Ok(Some(BindTarget { addr, backing: region.backing.clone() }))
    }
}

impl RegionEntry {
    fn bind(&mut self, kind: WindowKind, target: BindTarget, bind: &Bind, qp: Option<u32>) {
        let zero_based = bind.access.contains(Access::ZERO_BASED);
        self.addr = target.addr;
        self.len = bind.len;
        self.iova = if zero_based { 0 } else { bind.addr };
        self.access = bind.access;
        self.backing = target.backing;
        self.valid = true;
        self.window = Some(WindowBinding { kind, region: Some(index(bind.region)), qp });
    }

    /// Unbinds a window; returns the region that it was bound to.
    pub(super) fn unbind(&mut self) -> Option<u32> {
        let window = self.window.as_mut()?;
        self.valid = false;
        window.qp = None;
        window.region.take()
    }

    /// Whether a work request may invalidate it: a region without windows, or a window of type 2.
    pub(super) fn may_be_invalidated(&self, who: Accessor) -> bool {
        match &self.window {
            None => self.bound == 0,
            Some(window) => window.kind == WindowKind::Type2 && window.qp == who.qp,
        }
    }
}
