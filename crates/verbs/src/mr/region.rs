//! Memory region, and the checks before each access.

use std::sync::Arc;

use super::device::DeviceMemory;
use super::lenders::Lenders;
use super::window::WindowBinding;
use crate::access::Access;
use crate::misuse::Misuse;
use crate::pd::Pd;
use crate::usage::InUse;

/// Fault of an access through a key, in the order of checks of RFC 5040, section 4.8 (figure 9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionFault {
    /// No region has this key.
    InvalidStag,
    /// The region belongs to another protection domain, or the window to another queue pair.
    WrongPd,
    /// The range wraps around 2^64.
    Wrap,
    /// The range is not within the region, or not mapped (any more).
    Bounds,
    /// The region does not grant this right.
    Access,
}

/// Check whether `len` bytes at an address of this process are mapped, for writing if `write`.
pub type MappedCheck = fn(addr: u64, len: u64, write: bool) -> bool;

/// Backing of a region.
#[derive(Clone, Debug, Default)]
pub enum Backing {
    /// Memory of this process, checked at registration.
    #[default]
    Mapped,
    /// Memory of this process, checked at each access.
    OnDemand(MappedCheck),
    /// Memory of the device.
    Device(Arc<DeviceMemory>),
    /// None: reads give zeroes, writes are discarded.
    Null,
}

/// Parameters of a region.
#[derive(Clone, Debug)]
pub struct RegionSpec {
    /// Its protection domain.
    pub pd: Arc<Pd>,
    /// First byte in this process.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// The address that peers and scatter/gather entries use for the first byte.
    pub iova: u64,
    /// Access rights.
    pub access: Access,
    /// Backing memory.
    pub backing: Backing,
}

impl RegionSpec {
    pub(super) fn check(&self) -> Result<(), Misuse> {
        if !self.access.is_consistent() {
            return Err(Misuse::Invalid("remote write or atomic access needs local write access"));
        }
        if self.addr.checked_add(self.len).is_none() || self.iova.checked_add(self.len).is_none() {
            return Err(Misuse::Invalid("the region wraps around the address space"));
        }
        Ok(())
    }
}

/// Accessor of a region: a protection domain, and the queue pair if a peer accesses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The protection domain.
    pub pd: u32,
    /// Queue pair of the peer's connection; `None` for local access.
    pub qp: Option<u32>,
}

impl From<u32> for Accessor {
    fn from(pd: u32) -> Self {
        Self { pd, qp: None }
    }
}

/// A region or a memory window.
#[derive(Debug)]
pub(super) struct RegionEntry {
    pub key: u32,
    pub pd: InUse<Pd>,
    pub addr: u64,
    pub len: u64,
    pub iova: u64,
    pub access: Access,
    pub backing: Backing,
    _device: Option<InUse<DeviceMemory>>,
    pub valid: bool,
    /// Binding, if it is a window.
    pub window: Option<WindowBinding>,
    /// Count of windows bound to it.
    pub bound: u32,
    pub lenders: Lenders,
}

impl RegionEntry {
    pub fn new(key: u32, spec: &RegionSpec) -> Self {
        let device = match &spec.backing {
            Backing::Device(memory) => Some(InUse::of(memory)),
            _ => None,
        };
        Self {
            key,
            pd: InUse::of(&spec.pd),
            addr: spec.addr,
            len: spec.len,
            iova: spec.iova,
            access: spec.access,
            backing: spec.backing.clone(),
            _device: device,
            valid: true,
            window: None,
            bound: 0,
            lenders: Lenders::default(),
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.backing, Backing::Null)
    }

    /// Whether nothing but its domain and its range decides who may read it on its own side.
    pub fn is_plain(&self) -> bool {
        self.window.is_none() && matches!(self.backing, Backing::Mapped | Backing::Device(_))
    }

    /// Whether it is valid and contains these addresses of the process.
    pub fn holds(&self, addr: u64, len: u64) -> bool {
        self.valid && addr >= self.addr && addr + len <= self.addr + self.len
    }

    /// Checks that `who` has `right` to `len` bytes from `to`; returns their address in this
    /// process.
    pub fn check(
        &self,
        who: Accessor,
        to: u64,
        len: u64,
        right: Access,
    ) -> Result<u64, RegionFault> {
        if !self.valid {
            return Err(RegionFault::InvalidStag);
        }
        if !self.pd.admits(who.pd) {
            return Err(RegionFault::WrongPd);
        }
        if let Some(window) = &self.window {
            window.admit(who, right)?;
        }
        let end = to.checked_add(len).ok_or(RegionFault::Wrap)?;
        if to < self.iova || end > self.iova + self.len {
            return Err(RegionFault::Bounds);
        }
        if !self.access.contains(right) {
            return Err(RegionFault::Access);
        }
        let addr = self.addr + (to - self.iova);
        match self.backing {
            Backing::OnDemand(mapped) if !mapped(addr, len, right.changes_memory()) => {
                Err(RegionFault::Bounds)
            }
            _ => Ok(addr),
        }
    }
}
