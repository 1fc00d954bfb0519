//! Open devices.
//!
//! A context is a [`verbs_context`] whose last field the application sees; what is ours lies
//! *before* it, where an application compiled against a newer header would look for slots that `sz`
//! tells it are not there. Objects hold a [`Held`]; a context that is closed while some remain
//! stays in memory, because applications reach their functions through it.
//!
//! [`weft_context`] gives the contexts of the process that rdma-cm identifiers use.

use std::ffi::{c_int, c_void};
use std::mem::{offset_of, size_of};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use weft_host::{Context, DeviceId};
use weft_sync::{Mutex, MutexGuard};

use super::object::handle;
use super::{cq, cq_ex, device, dm, gid, mw, pd_mr, post, qp_ex, query, srq, xrcd};
use crate::errno::{self, needs_memory};
use crate::fd::{self, EventFd, Waker};
use crate::log::log;
use crate::pass;
use crate::rdma;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// One: there are no interrupts to spread.
const COMP_VECTORS: c_int = 1;

/// Private tail of the C structure of a context.
pub struct ContextTail {
    /// The context in `weft-host`.
    pub core: Arc<Context>,
    /// The descriptor that the C structure shows as `async_fd`.
    pub events: Arc<EventFd>,
    /// Equal for contexts whose objects go together: one that was opened, and those that were
    /// imported from it.
    pub family: u32,
    objects: AtomicUsize,
}

#[repr(C)]
struct ContextObject {
    tail: ContextTail,
    verbs: verbs_context,
}

/// The private tail of `context`.
///
/// # Safety
/// `context` came from [`ibv_open_device`] or [`weft_context`] and is not closed while the
/// reference lives.
pub unsafe fn tail<'a>(context: *mut ibv_context) -> &'a ContextTail {
    let object = object(context);
    // SAFETY: the object is alive by contract; the tail is only shared.
    unsafe { &(*object).tail }
}

fn object(context: *mut ibv_context) -> *mut ContextObject {
    context.wrapping_byte_sub(offset_of!(ContextObject, verbs.context)).cast()
}

/// A use of a context by one of its objects.
pub struct Held {
    context: *mut ibv_context,
    /// The process that made the object ([`Host::generation`]).
    ///
    /// [`Host::generation`]: weft_host::Host::generation
    generation: usize,
}

// SAFETY: what it points to is the tail of a context, which may be used from any thread.
unsafe impl Send for Held {}
// SAFETY: as above.
unsafe impl Sync for Held {}

impl Held {
    /// Notes one more object of `context`.
    ///
    /// # Safety
    /// `context` is open.
    pub unsafe fn new(context: *mut ibv_context) -> Self {
        // SAFETY: open by contract.
        let tail = unsafe { tail(context) };
        tail.objects.fetch_add(1, Ordering::AcqRel);
        Self { context, generation: rdma::host().generation() }
    }

    /// The private tail of the context.
    pub fn tail(&self) -> &ContextTail {
        // SAFETY: a context with objects is not freed.
        unsafe { tail(self.context) }
    }

    /// Whether a process made the object that this one was forked from. To destroy it here does
    /// nothing: what it is made of may be locked for ever, by a thread that is not here, and its
    /// events are the parent's.
    pub fn is_inherited(&self) -> bool {
        self.generation != rdma::host().generation()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tail().objects.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The context that this process has of a device that no application opened: `id->verbs` of
/// rdma-cm. NULL with `errno` set if it cannot be made. Never closed; after a reset of the device
/// there is another one.
pub fn weft_context(id: DeviceId) -> *mut ibv_context {
    let mut all = shared();
    let known = all.iter().rev().find(|shared| shared.id == id);
    // SAFETY: never closed.
    if let Some(known) = known.filter(|known| unsafe { query::check_device(known.context) }.is_ok())
    {
        return known.context;
    }
    match open(id) {
        Ok(context) => {
            all.push(SharedContext { id, context });
            context
        }
        Err(code) => errno::null(code),
    }
}

struct SharedContext {
    id: DeviceId,
    context: *mut ibv_context,
}
// SAFETY: a context may be used from any thread.
unsafe impl Send for SharedContext {}

fn shared() -> MutexGuard<'static, Vec<SharedContext>> {
    static SHARED: Mutex<Vec<SharedContext>> = Mutex::new(Vec::new());
    SHARED.lock()
}

fn is_shared(context: *mut ibv_context) -> bool {
    shared().iter().any(|shared| shared.context == context)
}

/// Opens a device; fails with the errno of the system.
pub fn open(id: DeviceId) -> Result<*mut ibv_context, c_int> {
    open_in(id, handle())
}

/// As [`open`], for one more context of a family.
pub fn open_in(id: DeviceId, family: u32) -> Result<*mut ibv_context, c_int> {
    needs_memory!(Err);
    let events = Arc::new(EventFd::new()?);
    rdma::host().count_gids_by(gid::used_rows);
    let core = Context::open(rdma::host(), id, Box::new(Waker(Arc::clone(&events))));
    let core = core.map_err(|misuse| misuse.errno())?;
    let async_fd = events.raw();
    let tail = ContextTail { core, events, family, objects: AtomicUsize::new(0) };
    let object = Box::into_raw(Box::new(ContextObject { tail, verbs: verbs(id, async_fd) }));
    crate::asked::note_opened();
    log!(Debug, "opened {:?}", device::name(id));
    opened().push((async_fd, id, family));
    // SAFETY: just made.
    Ok(unsafe { &raw mut (*object).verbs.context })
}

/// The descriptors of the contexts that are open, their devices and families.
fn opened() -> MutexGuard<'static, Vec<(c_int, DeviceId, u32)>> {
    static OPENED: Mutex<Vec<(c_int, DeviceId, u32)>> = Mutex::new(Vec::new());
    OPENED.lock()
}

/// Device and family of the context that `fd` is a duplicate of the descriptor of, if there is one.
pub fn owner(fd: c_int) -> Option<(DeviceId, u32)> {
    let opened = opened();
    let found = opened.iter().find(|(other, ..)| fd::same_counter(fd, *other));
    found.map(|(_, id, family)| (*id, *family))
}

/// The family of an object of verbs, each of which begins with its context.
///
/// # Safety
/// `object` is alive.
pub unsafe fn family_of<T>(object: *mut T) -> u32 {
    // SAFETY: alive by contract, and begins with a context.
    let context = unsafe { *object.cast::<*mut ibv_context>() };
    // SAFETY: the context of a live object is open.
    unsafe { tail(context) }.family
}

fn verbs(id: DeviceId, async_fd: c_int) -> verbs_context {
    verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(pd_mr::advise_mr),
        alloc_null_mr: Some(dm::alloc_null_mr),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        alloc_parent_domain: Some(pd_mr::alloc_parent_domain),
        dealloc_td: Some(pd_mr::dealloc_td),
        alloc_td: Some(pd_mr::alloc_td),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        query_device_ex: Some(query::query_device_ex),
        create_qp_ex: Some(qp_ex::create_qp_ex),
        get_srq_num: Some(srq::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrcd::open_xrcd),
        close_xrcd: Some(xrcd::close_xrcd),
        sz: size_of::<verbs_context>(),
        context: ibv_context {
            device: device::device(id),
            ops: ops(),
            // No kernel device is behind it, but applications duplicate it to import the device:
            // here, or in other processes, where that shall fail.
            cmd_fd: async_fd,
            async_fd,
            num_comp_vectors: COMP_VECTORS,
            mutex: libc::PTHREAD_MUTEX_INITIALIZER,
            abi_compat: ptr::without_provenance_mut::<c_void>(usize::MAX),
        },
        ..verbs_context::EMPTY
    }
}

fn ops() -> ibv_context_ops {
    ibv_context_ops {
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        post_srq_recv: Some(post::post_srq_recv),
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        ..ibv_context_ops::EMPTY
    }
}

/// `ibv_open_device`.
///
/// # Safety
/// `device` came from `ibv_get_device_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pass_when_off!(ibv_open_device(device), pass::open::open_device);
    let Some(id) = device::id(device) else { return errno::null(libc::ENODEV) };
    open(id).unwrap_or_else(errno::null)
}

/// `ibv_close_device`. A context of rdma-cm, which applications close by mistake, stays open.
///
/// # Safety
/// `context` came from [`ibv_open_device`] and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_close_device(context: *mut ibv_context) -> c_int {
    pass_when_off!(ibv_close_device(context), pass::open::close_device);
    if is_shared(context) {
        return 0;
    }
    // SAFETY: open by contract.
    let objects = unsafe { tail(context) }.objects.load(Ordering::Acquire);
    if objects > 0 {
        log!(Debug, "a context was closed with {objects} objects left; its memory is kept");
        return 0;
    }
    // SAFETY: open by contract.
    let fd = unsafe { (*context).async_fd };
    opened().retain(|(other, ..)| *other != fd);
    // SAFETY: made by `Box::into_raw`; nothing uses it any more.
    drop(unsafe { Box::from_raw(object(context)) });
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_host::DeviceKind;

    #[test]
    fn a_context_looks_extended_and_leads_back_to_its_tail() {
        // SAFETY: the device of the list.
        let context = unsafe { ibv_open_device(device::device(DeviceKind::Roce.into())) };
        // SAFETY: just opened.
        let ibv_context { abi_compat, async_fd, .. } = unsafe { &*context };
        assert_eq!(*abi_compat as usize, usize::MAX);
        // SAFETY: just opened.
        assert_eq!(unsafe { tail(context) }.events.raw(), *async_fd);
        let verbs = context.wrapping_byte_sub(offset_of!(verbs_context, context));
        // SAFETY: the context is embedded in a verbs_context.
        assert_eq!(unsafe { (*verbs.cast::<verbs_context>()).sz }, 648);
        // SAFETY: opened above and not used afterwards.
        assert_eq!(unsafe { ibv_close_device(context) }, 0);
    }

    #[test]
    fn there_is_one_context_of_each_device_for_rdma_cm() {
        let both = [DeviceKind::Roce, DeviceKind::Iwarp].map(DeviceId::from);
        let [first, second] = both.map(weft_context);
        assert!(first != second && !first.is_null() && !second.is_null());
        assert_eq!(both.map(weft_context), [first, second]);
        for context in [first, second] {
            // SAFETY: the context is open and stays so.
            assert_eq!(unsafe { ibv_close_device(context) }, 0);
            // SAFETY: as above.
            assert!(unsafe { tail(context) }.core.limits().max_qp > 0);
        }
    }
}
