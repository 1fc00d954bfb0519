//! The devices that ids are bound to: of each one context and one protection domain for the whole
//! process.

use std::ffi::c_int;

use weft_host::DeviceId;
use weft_sync::Mutex;

use crate::errno;
use crate::ibv::{context, device, pd_mr, query};
use crate::real::pass_when_off;
use weft_verbs_abi::{ibv_context, ibv_pd};

/// The context and the protection domain that ids share.
pub struct CmaDevice {
    pub context: *mut ibv_context,
    pub pd: *mut ibv_pd,
}

// SAFETY: both objects may be used by any thread.
unsafe impl Send for CmaDevice {}
// SAFETY: as above.
unsafe impl Sync for CmaDevice {}

impl CmaDevice {
    /// What ids of a device have; made ready at the first call, for good.
    ///
    /// # Errors
    /// The errno of what it cannot be opened for; `ENODEV` if it is hidden.
    pub fn get(id: DeviceId) -> Result<&'static CmaDevice, c_int> {
        if !device::visible().contains(&id) {
            return Err(libc::ENODEV);
        }
        static DEVICES: [Mutex<Option<&'static CmaDevice>>; DeviceId::SLOTS] =
            [const { Mutex::new(None) }; DeviceId::SLOTS];
        let mut device = DEVICES[id.slot()].lock();
        // SAFETY: the context is never closed.
        let lives = |device: &CmaDevice| unsafe { query::check_device(device.context) }.is_ok();
        if let Some(known) = device.filter(|device| lives(device)) {
            return Ok(known);
        }
        *device = None;
        let opened: &'static CmaDevice = Box::leak(Box::new(CmaDevice::open(id)?));
        *device = Some(opened);
        Ok(opened)
    }

    fn open(id: DeviceId) -> Result<CmaDevice, c_int> {
        let context = context::weft_context(id);
        if context.is_null() {
            return Err(errno::get());
        }
        // SAFETY: the context is never closed.
        let pd = unsafe { pd_mr::ibv_alloc_pd(context) };
        if pd.is_null() { Err(errno::get()) } else { Ok(CmaDevice { context, pd }) }
    }
}

/// `rdma_get_devices`: the contexts that ids may be bound to, ended by NULL.
///
/// # Safety
/// `count` is NULL or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    pass_when_off!(rdma_get_devices(count));
    let devices: Result<Vec<_>, c_int> =
        device::visible().iter().map(|id| CmaDevice::get(*id).map(|d| d.context)).collect();
    let contexts = match devices {
        Ok(contexts) if !contexts.is_empty() => contexts,
        Ok(_) => return errno::null(libc::ENODEV),
        Err(code) => return errno::null(code),
    };
    let list = device::list_of(&contexts);
    if list.is_null() {
        return errno::null(libc::ENOMEM);
    }
    if !count.is_null() {
        // SAFETY: the caller passes NULL or a writable integer.
        unsafe { count.write(contexts.len() as c_int) };
    }
    list
}

/// `rdma_free_devices`. The contexts stay.
///
/// # Safety
/// `list` came from [`rdma_get_devices`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    pass_when_off!(rdma_free_devices(list));
    // SAFETY: the list was allocated by calloc, or is NULL.
    unsafe { libc::free(list.cast()) };
}
