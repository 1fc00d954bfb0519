//! Device memory and null regions: what applications register that is not memory of theirs.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use weft_os::calls::LibraryCall;
use weft_verbs::mr::DeviceMemory;

use super::context::Held;
use super::import::{self, ImportedObject};
use super::object::{Object, handle};
use super::pd_mr;
use crate::errno::{self, needs_memory};
use weft_verbs_abi::*;

/// Private tail of the C structure of device memory.
struct DmTail {
    core: Arc<DeviceMemory>,
    context: Held,
}

type DmObject = Object<ibv_dm, DmTail>;

/// Bytes that are copied at once, with no memory of the process for more.
const AT_ONCE: usize = 4096;
/// The largest alignment that can be asked for, as a power of two: a page.
const ALIGNMENT_MAX: u32 = 12;

/// # Safety
/// `dm` came from [`alloc_dm`] and is not freed while the reference lives.
unsafe fn tail<'a>(dm: *mut ibv_dm) -> &'a DmTail {
    // SAFETY: as this function's contract.
    unsafe { DmObject::tail(dm) }
}

/// Slot `alloc_dm`. Offsets count from zero, so every one is aligned as asked.
///
/// # Safety
/// `context` is open and `attr` readable.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    let _call = LibraryCall::begin();
    needs_memory!(errno::null);
    // SAFETY: readable by contract.
    let attr = unsafe { *attr };
    if attr.comp_mask != 0 || attr.log_align_req > ALIGNMENT_MAX {
        return errno::null(libc::EINVAL);
    }
    // SAFETY: open by contract.
    let held = unsafe { Held::new(context) };
    let core = match held.tail().core.alloc_dm(attr.length as u64) {
        Ok(core) => core,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    let handle = handle();
    import::offer(handle, held.tail().core.id(), ImportedObject::Dm(Arc::clone(&core)));
    // SAFETY: open by contract.
    unsafe { make(context, core, handle) }
}

/// An object for device memory.
///
/// # Safety
/// `context` is open.
pub unsafe fn make(context: *mut ibv_context, core: Arc<DeviceMemory>, handle: u32) -> *mut ibv_dm {
    let public = ibv_dm {
        context,
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: IBV_DM_MASK_HANDLE,
        handle,
    };
    // SAFETY: open by contract.
    DmObject::make(public, DmTail { core, context: unsafe { Held::new(context) } })
}

/// Ends an object, and the memory only if it was the last for it.
///
/// # Safety
/// `dm` is alive and not used afterwards.
pub unsafe fn drop_object(dm: *mut ibv_dm) {
    // SAFETY: not used afterwards by contract.
    unsafe { DmObject::free(dm) };
}

/// Slot `free_dm`: `EBUSY` while a region stands for it.
///
/// # Safety
/// `dm` is alive and not used afterwards.
pub unsafe extern "C" fn free_dm(dm: *mut ibv_dm) -> c_int {
    let _call = LibraryCall::begin();
    // SAFETY: alive by contract.
    let tail = unsafe { tail(dm) };
    let result = errno::positive(tail.context.tail().core.free_dm(&tail.core));
    if result == 0 {
        // SAFETY: alive by contract.
        import::withdraw(unsafe { (*dm).handle });
        // SAFETY: not used afterwards by contract.
        unsafe { drop_object(dm) };
    }
    result
}

unsafe extern "C" fn memcpy_to_dm(
    dm: *mut ibv_dm,
    offset: u64,
    from: *const c_void,
    length: usize,
) -> c_int {
    // SAFETY: the application passes live device memory.
    let memory = unsafe { &tail(dm).core };
    let Ok(_) = memory.range(offset, length as u64) else { return errno::code(libc::EINVAL) };
    let mut bytes = [0_u8; AT_ONCE];
    let copied = (0..length).step_by(AT_ONCE).try_for_each(|done| {
        let piece = &mut bytes[..AT_ONCE.min(length - done)];
        // SAFETY: the application passes `length` readable bytes.
        unsafe {
            ptr::copy_nonoverlapping(
                from.wrapping_byte_add(done).cast(),
                piece.as_mut_ptr(),
                piece.len(),
            )
        };
        memory.write(offset + done as u64, piece)
    });
    errno::positive(copied)
}

unsafe extern "C" fn memcpy_from_dm(
    to: *mut c_void,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
) -> c_int {
    // SAFETY: the application passes live device memory.
    let memory = unsafe { &tail(dm).core };
    let Ok(_) = memory.range(offset, length as u64) else { return errno::code(libc::EINVAL) };
    let mut bytes = Vec::with_capacity(AT_ONCE);
    let copied = (0..length).step_by(AT_ONCE).try_for_each(|done| {
        bytes.clear();
        let piece = AT_ONCE.min(length - done) as u32;
        memory.read_append(offset + done as u64, piece, &mut bytes)?;
        // SAFETY: the application passes `length` writable bytes, of which these are some.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), to.wrapping_byte_add(done).cast(), bytes.len())
        };
        Ok(())
    });
    errno::positive(copied)
}

/// Slot `reg_dm_mr`: a region that begins at zero.
///
/// # Safety
/// `pd` and `dm` are alive.
pub unsafe extern "C" fn reg_dm_mr(
    pd: *mut ibv_pd,
    dm: *mut ibv_dm,
    offset: u64,
    length: usize,
    access: u32,
) -> *mut ibv_mr {
    let _call = LibraryCall::begin();
    needs_memory!(errno::null);
    // SAFETY: alive by contract.
    let domain = unsafe { pd_mr::pd_tail(pd) };
    // SAFETY: alive by contract.
    let memory = unsafe { tail(dm) };
    let host_context = &memory.context.tail().core;
    let key = pd_mr::access(access).and_then(|access| {
        host_context.reg_dm_mr(&domain.core, &memory.core, offset, length as u64, access)
    });
    // SAFETY: alive by contract.
    unsafe { pd_mr::make_mr(pd, ptr::null_mut(), length, key) }
}

/// Slot `alloc_null_mr`.
///
/// # Safety
/// `pd` is alive.
pub unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let _call = LibraryCall::begin();
    needs_memory!(errno::null);
    // SAFETY: alive by contract.
    let domain = unsafe { pd_mr::pd_tail(pd) };
    let key = domain.host_context().alloc_null_mr(&domain.core);
    // SAFETY: alive by contract.
    let mr = unsafe { pd_mr::make_mr(pd, ptr::null_mut(), usize::MAX, key) };
    if !mr.is_null() {
        // SAFETY: just made. No peer may name it.
        unsafe { (*mr).rkey = 0 };
    }
    mr
}
