//! What is registered with a device: memory of the application or the device, windows, and nothing.

use std::sync::Arc;

use weft_fault::Verb;
use weft_os::sys;
use weft_verbs::mr::{Backing, DeviceMemory, RegionSpec, WindowKind};
use weft_verbs::usage::Counted;
use weft_verbs::{Access, Misuse, Pd, Sge};

use super::Context;

/// What an application is about to do with memory that is registered on demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Read it: bring it in.
    Prefetch,
    /// Write it: bring it in.
    PrefetchWrite,
    /// Use it where it is in memory already.
    PrefetchNoFault,
}

impl Context {
    /// Registers `length` bytes from `addr`, which peers and work requests address from `iova`;
    /// gives the key, local and remote.
    ///
    /// The pages must be mapped; they need not be in memory. On demand they are looked for at each
    /// access instead, so that a region may be everything there is.
    pub fn reg_mr(
        &self,
        pd: &Arc<Pd>,
        addr: u64,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<u32, Misuse> {
        self.refuse(Verb::RegMr)?;
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { iova };
        let backing = backing_of(addr, length, access)?;
        let pd = Arc::clone(pd);
        let spec = RegionSpec { pd, addr, len: length, iova, access, backing };
        let key = self.device.register(&spec)?;
        if let Some(faults) = self.host.faults() {
            faults.plan_region((self.host.reactor(), &self.device), self.id, key);
        }
        Ok(key)
    }

    /// Ends a region. When this returns nothing reads or writes it, and nothing ever will.
    pub fn dereg_mr(&self, key: u32) -> Result<(), Misuse> {
        self.device.regions().deregister(key)
    }

    /// Changes a region in place; it keeps its key. `range` is address and length.
    ///
    /// # Errors
    /// If the region has no memory of this process, or may not become what is asked for.
    pub fn rereg_mr(
        &self,
        key: u32,
        pd: Option<&Arc<Pd>>,
        range: Option<(u64, u64)>,
        access: Option<Access>,
    ) -> Result<(), Misuse> {
        self.check_device()?;
        let mut spec = self.device.regions().spec(key)?;
        if matches!(spec.backing, Backing::Device(_) | Backing::Null) {
            return Err(Misuse::Unsupported("changes of regions without memory of the process"));
        }
        let was_zero_based = spec.access.contains(Access::ZERO_BASED);
        if let Some(pd) = pd {
            spec.pd = Arc::clone(pd);
        }
        if let Some((addr, len)) = range {
            (spec.addr, spec.len) = (addr, len);
        }
        if let Some(access) = access {
            spec.access = access;
        }
        if spec.access.contains(Access::ZERO_BASED) {
            spec.iova = 0;
        } else if range.is_some() || was_zero_based {
            spec.iova = spec.addr;
        }
        if range.is_some() || access.is_some() {
            spec.backing = backing_of(spec.addr, spec.len, spec.access)?;
        }
        self.device.regions().reregister(key, &spec)
    }

    /// Takes `octets` of the device's own memory.
    ///
    /// # Errors
    /// If the device has no such amount, or it is taken.
    pub fn alloc_dm(&self, octets: u64) -> Result<Arc<DeviceMemory>, Misuse> {
        self.refuse(Verb::AllocDm)?;
        self.device.alloc_dm(octets)
    }

    /// Ends the use of device memory that no region stands for.
    pub fn free_dm(&self, memory: &DeviceMemory) -> Result<(), Misuse> {
        if memory.users().any() { Err(Misuse::Busy) } else { Ok(()) }
    }

    /// Registers `length` bytes of device memory from `offset`, which are addressed from zero;
    /// gives the key, local and remote.
    pub fn reg_dm_mr(
        &self,
        pd: &Arc<Pd>,
        memory: &Arc<DeviceMemory>,
        offset: u64,
        length: u64,
        access: Access,
    ) -> Result<u32, Misuse> {
        self.refuse(Verb::RegMr)?;
        if !access.contains(Access::ZERO_BASED) || access.contains(Access::ON_DEMAND) {
            return Err(Misuse::Invalid("regions of device memory begin at zero"));
        }
        let addr = memory.range(offset, length)?;
        let backing = Backing::Device(Arc::clone(memory));
        let pd = Arc::clone(pd);
        self.device.register(&RegionSpec { pd, addr, len: length, iova: 0, access, backing })
    }

    /// Registers nothing under a local key: it reads as zeroes, and what is written is lost.
    pub fn alloc_null_mr(&self, pd: &Arc<Pd>) -> Result<u32, Misuse> {
        self.refuse(Verb::RegMr)?;
        self.device.register(&RegionSpec {
            pd: Arc::clone(pd),
            addr: 0,
            len: u64::MAX,
            iova: 0,
            access: Access::LOCAL_WRITE,
            backing: Backing::Null,
        })
    }

    /// Makes a memory window that is bound to nothing; gives its key.
    pub fn alloc_mw(&self, pd: &Arc<Pd>, kind: WindowKind) -> u32 {
        self.device.alloc_mw(pd, kind)
    }

    /// Ends a memory window, bound or not; any key that it has had names it.
    pub fn dealloc_mw(&self, key: u32) -> Result<(), Misuse> {
        self.device.regions().free_window(key)
    }

    /// Takes advice about memory that is registered on demand, and returns when it is followed.
    ///
    /// # Errors
    /// [`Misuse::Fault`] if a key or a range is not good for what is to be done there.
    pub fn advise(&self, pd: &Pd, advice: Advice, sges: &[Sge]) -> Result<(), Misuse> {
        let write = advice == Advice::PrefetchWrite;
        let right = if write { Access::LOCAL_WRITE } else { Access::empty() };
        let check = self.device.regions().reader().check(pd.id(), sges, right);
        check.map_err(|_| Misuse::Fault)?;
        if advice != Advice::PrefetchNoFault {
            sges.iter().for_each(|s| sys::prefetch(s.addr, u64::from(s.length), write));
        }
        Ok(())
    }
}

/// What a region of the process's memory rests on, which must be mapped now unless it is looked for
/// at each access.
fn backing_of(addr: u64, length: u64, access: Access) -> Result<Backing, Misuse> {
    if access.contains(Access::ON_DEMAND) {
        return Ok(Backing::OnDemand(is_mapped));
    }
    match is_mapped(addr, length, access.contains(Access::LOCAL_WRITE)) {
        true => Ok(Backing::Mapped),
        false => Err(Misuse::Fault),
    }
}

fn is_mapped(addr: u64, length: u64, write: bool) -> bool {
    length == 0 || sys::check_mapped(addr, length, write).is_ok()
}
