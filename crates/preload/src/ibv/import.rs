//! Objects under a second context of this process.
//!
//! Applications hand a duplicate of `cmd_fd` and the handles of objects to others that import them.
//! Devices live in the process here, so only the process itself can: a descriptor that is not one
//! of its own contexts' answers `EOPNOTSUPP`.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use weft_host::{DeviceId, Pd};
use weft_sync::{Mutex, MutexGuard};
use weft_verbs::mr::DeviceMemory;

use crate::errno::{self, needs_memory};
use crate::ibv::{context, dm, pd_mr};
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// The object that a handle stands for.
#[derive(Clone)]
pub enum ImportedObject {
    /// A protection domain.
    Pd(Arc<Pd>),
    /// A region, by its keys.
    Mr([u32; 2]),
    /// Device memory.
    Dm(Arc<DeviceMemory>),
}

type Handles = BTreeMap<u32, (DeviceId, ImportedObject)>;

fn handles() -> MutexGuard<'static, Handles> {
    static HANDLES: Mutex<Handles> = Mutex::new(Handles::new());
    HANDLES.lock()
}

/// Lets `handle` stand for an object of a device.
pub fn offer(handle: u32, device: DeviceId, object: ImportedObject) {
    handles().insert(handle, (device, object));
}

/// The object of `handle` is gone.
pub fn withdraw(handle: u32) {
    handles().remove(&handle);
}

/// # Safety
/// `context` is open.
unsafe fn find(context: *mut ibv_context, handle: u32) -> Option<ImportedObject> {
    // SAFETY: open by contract.
    let device = unsafe { context::tail(context) }.core.id();
    handles().get(&handle).filter(|(owner, _)| *owner == device).map(|(_, object)| object.clone())
}

/// `ibv_import_device`: one more context of the device that `fd` is a duplicate of the `cmd_fd` of.
///
/// # Safety
/// `fd` is the caller's to give away.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_device(fd: c_int) -> *mut ibv_context {
    pass_when_off!(ibv_import_device(fd));
    let owner = context::owner(fd);
    let Some((device, family)) = owner else { return errno::null(libc::EOPNOTSUPP) };
    match context::open_in(device, family) {
        Ok(context) => {
            // SAFETY: given away by contract, and not needed: the new context has its own.
            unsafe { libc::close(fd) };
            context
        }
        Err(code) => errno::null(code),
    }
}

/// `ibv_import_pd`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    pass_when_off!(ibv_import_pd(context, handle));
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    match unsafe { find(context, handle) } {
        // SAFETY: open by contract.
        Some(ImportedObject::Pd(core)) => unsafe { pd_mr::import_pd(context, core, handle) },
        _ => errno::null(libc::ENOENT),
    }
}

/// `ibv_unimport_pd`: the domain itself stays.
///
/// # Safety
/// `pd` was imported and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    pass_when_off!(ibv_unimport_pd(pd));
    // SAFETY: as this function's contract.
    unsafe { pd_mr::unimport_pd(pd) };
}

/// `ibv_import_mr`. The region's address and length are not known to it.
///
/// # Safety
/// `pd` is alive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    pass_when_off!(ibv_import_mr(pd, handle));
    needs_memory!(errno::null);
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    match unsafe { find(context, handle) } {
        // SAFETY: alive by contract.
        Some(ImportedObject::Mr(keys)) => unsafe { pd_mr::import_mr(pd, keys, handle) },
        _ => errno::null(libc::ENOENT),
    }
}

/// `ibv_unimport_mr`: the region itself stays.
///
/// # Safety
/// `mr` was imported and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    pass_when_off!(ibv_unimport_mr(mr));
    // SAFETY: as this function's contract.
    unsafe { pd_mr::unimport_mr(mr) };
}

/// `ibv_import_dm`.
///
/// # Safety
/// `context` is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    pass_when_off!(ibv_import_dm(context, handle));
    needs_memory!(errno::null);
    // SAFETY: open by contract.
    match unsafe { find(context, handle) } {
        // SAFETY: open by contract.
        Some(ImportedObject::Dm(core)) => unsafe { dm::make(context, core, handle) },
        _ => errno::null(libc::ENOENT),
    }
}

/// `ibv_unimport_dm`: the memory itself stays.
///
/// # Safety
/// `dm` was imported and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    pass_when_off!(ibv_unimport_dm(dm));
    // SAFETY: as this function's contract.
    unsafe { dm::drop_object(dm) };
}
