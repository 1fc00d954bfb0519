//! A region: what its key stands for, and the checks before each access.

use std::sync::Arc;

use super::device::DeviceMemory;
use super::window::WindowBinding;
use crate::access::Access;
use crate::misuse::Misuse;
use crate::pd::Pd;
use crate::usage::InUse;

/// Why an access through a key is refused, in the order of RFC 5040 section 4.8 (figure 9).
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

/// Tells whether `len` bytes from an address of this process are mapped, for writing if so asked.
pub type Probe = fn(addr: u64, len: u64, write: bool) -> bool;

/// What lies behind a region.
#[derive(Clone, Debug, Default)]
pub enum Backing {
    /// Memory of this process that was found to be mapped and stays so.
    #[default]
    Mapped,
    /// Memory of this process that is looked for at each access.
    OnDemand(Probe),
    /// Memory of the device.
    Device(Arc<DeviceMemory>),
    /// None: it reads as zeroes, and what is written is lost.
    Null,
}

/// What a region is made of.
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
    /// Rights.
    pub access: Access,
    /// What lies behind it.
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

/// Who reaches for a region: a protection domain, and the queue pair if a peer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accessor {
    /// The protection domain.
    pub pd: u32,
    /// The queue pair that the peer is connected to.
    pub qp: Option<u32>,
}

impl From<u32> for Accessor {
    fn from(pd: u32) -> Self {
        Self { pd, qp: None }
    }
}

/// A region or a memory window.
#[derive(Debug)]
pub(super) struct Region {
    pub key: u32,
    pub pd: InUse<Pd>,
    pub addr: u64,
    pub len: u64,
    pub iova: u64,
    pub access: Access,
    pub backing: Backing,
    _device: Option<InUse<DeviceMemory>>,
    pub valid: bool,
    /// What makes it a window.
    pub window: Option<WindowBinding>,
    /// Windows that are bound to it.
    pub bound: u32,
}

impl Region {
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
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.backing, Backing::Null)
    }

    /// Whether memory of a living region at these addresses.
    pub fn holds(&self, addr: u64, len: u64) -> bool {
        self.valid && addr >= self.addr && addr + len <= self.addr + self.len
    }

    /// The address in this process of `to`, if `who` has `right` to `len` bytes from there.
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
