//! The objects of a device and the names they have.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use weft_sync::{Mutex, MutexGuard};
use weft_verbs::mr::{Budget, DeviceMemory, RegionSpec, WindowKind};
use weft_verbs::usage::Counted;
use weft_verbs::{AsyncQueue, Limits, Misuse, Pd, Qp, QpInit, RegionTable};

/// Unpredictable bits from outside.
pub type Entropy = Box<dyn Fn() -> u32 + Send + Sync>;

/// A device: one table of regions, and names that are unique within it.
pub struct RdmaDevice {
    limits: &'static Limits,
    regions: Arc<RegionTable>,
    memory: Arc<Budget>,
    qp_numbers: NumberPool,
    srq_numbers: NumberPool,
    next_pd: AtomicU32,
    entropy: Entropy,
}

impl RdmaDevice {
    /// A device that draws its keys and numbers from `entropy`.
    pub fn new(limits: &'static Limits, entropy: Entropy) -> Self {
        Self {
            limits,
            regions: Arc::new(RegionTable::new()),
            memory: Budget::new(limits.max_dm_octets),
            qp_numbers: NumberPool::up_to(limits.max_qp),
            srq_numbers: NumberPool::up_to(limits.max_srq),
            next_pd: AtomicU32::new(1),
            entropy,
        }
    }

    /// What it can hold.
    pub fn limits(&self) -> &'static Limits {
        self.limits
    }

    /// Its regions.
    pub fn regions(&self) -> &Arc<RegionTable> {
        &self.regions
    }

    /// Makes a protection domain.
    pub fn alloc_pd(&self) -> Arc<Pd> {
        Arc::new(Pd::new(self.next_pd.fetch_add(1, Ordering::Relaxed)))
    }

    /// Ends a protection domain that nothing uses.
    pub fn dealloc_pd(&self, pd: &Pd) -> Result<(), Misuse> {
        if pd.users().any() { Err(Misuse::Busy) } else { Ok(()) }
    }

    /// Registers a region; gives its key.
    pub fn register(&self, spec: &RegionSpec) -> Result<u32, Misuse> {
        self.regions.register(spec, || (self.entropy)())
    }

    /// Makes a memory window that is bound to nothing; gives its key.
    pub fn alloc_mw(&self, pd: &Arc<Pd>, kind: WindowKind) -> u32 {
        self.regions.allocate_window(pd, kind, || (self.entropy)())
    }

    /// Takes `octets` of the device's memory.
    ///
    /// # Errors
    /// As [`DeviceMemory::allocate`].
    pub fn alloc_dm(&self, octets: u64) -> Result<Arc<DeviceMemory>, Misuse> {
        DeviceMemory::allocate(&self.memory, octets)
    }

    /// Makes a queue pair with a number of its own.
    pub fn create_qp(&self, init: QpInit, events: &Arc<AsyncQueue>) -> Result<Qp, Misuse> {
        let number = self.qp_numbers.draw(&self.entropy)?;
        let (regions, events) = (Arc::clone(&self.regions), Arc::clone(events));
        Qp::new(number, init, self.limits, regions, events).inspect_err(|_| self.release(number))
    }

    /// Makes a queue pair whose number, 24 bits, says where it is reached.
    pub fn create_qp_numbered(
        &self,
        number: u32,
        init: QpInit,
        events: &Arc<AsyncQueue>,
    ) -> Result<Qp, Misuse> {
        self.qp_numbers.claim(number)?;
        let (regions, events) = (Arc::clone(&self.regions), Arc::clone(events));
        Qp::new(number, init, self.limits, regions, events).inspect_err(|_| self.release(number))
    }

    /// Gives the number of a destroyed queue pair back.
    pub fn release(&self, number: u32) {
        self.qp_numbers.release(number);
    }

    /// Draws a number for a shared receive queue that peers name, 24 bits.
    pub fn take_srq_number(&self) -> Result<u32, Misuse> {
        self.srq_numbers.draw(&self.entropy)
    }

    /// Gives the number of a destroyed queue back.
    pub fn release_srq_number(&self, number: u32) {
        self.srq_numbers.release(number);
    }
}

/// Numbers of 24 bits that are unique within a device.
struct NumberPool {
    taken: Mutex<HashSet<u32>>,
    max: u32,
}

impl NumberPool {
    fn up_to(max: u32) -> Self {
        Self { taken: Mutex::default(), max }
    }

    fn claim(&self, number: u32) -> Result<(), Misuse> {
        if self.free()?.insert(number) { Ok(()) } else { Err(Misuse::Busy) }
    }

    fn draw(&self, entropy: &Entropy) -> Result<u32, Misuse> {
        let mut taken = self.free()?;
        loop {
            let number = entropy() & 0x00ff_ffff;
            // 0 and 1 are special to InfiniBand applications.
            if number > 1 && taken.insert(number) {
                return Ok(number);
            }
        }
    }

    fn release(&self, number: u32) {
        self.taken.lock().remove(&number);
    }

    /// The numbers that are taken, if there is room for another.
    fn free(&self) -> Result<MutexGuard<'_, HashSet<u32>>, Misuse> {
        let taken = self.taken.lock();
        if taken.len() >= self.max as usize { Err(Misuse::Full) } else { Ok(taken) }
    }
}
