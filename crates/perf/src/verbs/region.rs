//! Registered memory. Peers may write it at any time, so no Rust reference to it is made.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;
use std::rc::Rc;

use anyhow::{Result, bail};
use weft_verbs_abi::*;

use super::domain::{VerbsDomain, made};

/// Regions begin at the beginning of a page.
const ALIGNMENT: usize = 4096;

/// A region and its memory.
pub struct PerfRegion {
    mr: *mut ibv_mr,
    memory: *mut u8,
    layout: Layout,
    domain: Rc<VerbsDomain>,
}

impl PerfRegion {
    /// Bytes of zero, which peers may read and write, and use atomics on if `atomics` says so.
    ///
    /// # Errors
    /// There is not as much memory, or the device refuses.
    pub fn new(domain: &Rc<VerbsDomain>, bytes: usize, atomics: bool) -> Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), ALIGNMENT)?;
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        if memory.is_null() {
            bail!("there is no memory for a region of {bytes} bytes");
        }
        let mut region = Self { mr: ptr::null_mut(), memory, layout, domain: domain.clone() };
        let mut access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
        if atomics {
            access |= IBV_ACCESS_REMOTE_ATOMIC;
        }
        let register = domain.library.ibv_reg_mr;
        // SAFETY: the domain is live, and the memory stays until the region is gone.
        let mr = unsafe { register(domain.pd, memory.cast(), layout.size(), access) };
        region.mr = made(mr, "ibv_reg_mr")?;
        Ok(region)
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.memory as u64
    }

    /// Local key (`lkey`).
    pub fn local_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).lkey }
    }

    /// Remote key (`rkey`).
    pub fn remote_key(&self) -> u32 {
        // SAFETY: the region is registered.
        unsafe { (*self.mr).rkey }
    }

    /// The byte at `at`, as it is now.
    ///
    /// # Panics
    /// It is outside.
    pub fn byte(&self, at: usize) -> u8 {
        let place = self.place(at, 1);
        // SAFETY: the byte is inside the memory.
        unsafe { place.read_volatile() }
    }

    /// Changes a byte.
    ///
    /// # Panics
    /// It is outside.
    pub fn set_byte(&self, at: usize, value: u8) {
        let place = self.place(at, 1);
        // SAFETY: the byte is inside the memory.
        unsafe { place.write_volatile(value) };
    }

    /// Writes bytes from `at` on.
    ///
    /// # Panics
    /// They do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: so many bytes are inside the memory, to which there are no references.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    }

    /// Reads bytes from `at` on.
    ///
    /// # Panics
    /// There are not as many.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let place = self.place(at, bytes.len());
        // SAFETY: so many bytes are inside the memory, to which there are no references.
        unsafe { ptr::copy_nonoverlapping(place, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Where bytes from `at` on are, all of which are inside.
    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        let end = at.checked_add(bytes);
        assert!(end.is_some_and(|end| end <= self.layout.size()));
        self.memory.wrapping_add(at)
    }
}

impl Drop for PerfRegion {
    fn drop(&mut self) {
        if !self.mr.is_null() {
            // SAFETY: the region is registered, and its domain is live.
            unsafe { (self.domain.library.ibv_dereg_mr)(self.mr) };
        }
        // SAFETY: the memory was allocated with this layout, and no device knows it any more.
        unsafe { dealloc(self.memory, self.layout) };
    }
}
