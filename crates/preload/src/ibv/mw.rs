//! Memory windows, which are bound in the order of the send queue, whether an application
//! posts the request itself or calls the verb for windows of type 1.

use std::ffi::{c_int, c_uint, c_void};

use weft_fault::Verb;
use weft_os::calls::LibraryCall;
use weft_verbs::mr::{Bind, WindowKind};
use weft_verbs::{Access, Misuse, SendFlags, SendOp, SendWr};

use super::context::Held;
use super::object::{Object, handle};
use super::{pd_mr, qp};
use crate::errno::{self, needs_memory};
use weft_verbs_abi::*;

type MwObject = Object<ibv_mw, Held>;

/// Slot `alloc_mw`.
///
/// # Safety
/// `pd` is alive.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    let _call = LibraryCall::begin();
    needs_memory!(errno::null);
    let Some(wanted) = u32::try_from(kind).ok().and_then(WindowKind::from_raw) else {
        return errno::null(libc::EINVAL);
    };
    // SAFETY: alive by contract.
    let domain = unsafe { pd_mr::pd_tail(pd) };
    if let Err(misuse) = domain.host_context().refuse(Verb::AllocMw) {
        return errno::null(misuse.errno());
    }
    let rkey = domain.host_context().alloc_mw(&domain.core, wanted);
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    let held = unsafe { Held::new(context) };
    MwObject::make(ibv_mw { context, pd, rkey, handle: handle(), mw_type: kind }, held)
}

/// Slot `dealloc_mw`: what it was bound to is not reached through it any more.
///
/// # Safety
/// `mw` is alive and not used afterwards.
pub unsafe extern "C" fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
    let _call = LibraryCall::begin();
    // SAFETY: alive by contract.
    let held = unsafe { MwObject::tail(mw) };
    if held.is_inherited() {
        return 0;
    }
    // SAFETY: alive by contract.
    let rkey = unsafe { (*mw).rkey };
    let result = errno::positive(held.tail().core.dealloc_mw(rkey));
    if result == 0 {
        // SAFETY: not used afterwards by contract.
        unsafe { MwObject::free(mw) };
    }
    result
}

/// Slot `bind_mw`, which the header calls for windows of type 1 only: posts the request, and the
/// window has its new key at once.
///
/// # Safety
/// `qp` and `mw` are alive; `bind` is readable and names a live region or none.
pub unsafe extern "C" fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut c_void) -> c_int {
    needs_memory!(errno::code);
    // SAFETY: readable by contract.
    let asked = unsafe { *bind.cast::<ibv_mw_bind>() };
    // SAFETY: alive by contract.
    let rkey = Bind::next_key(unsafe { (*mw).rkey });
    // SAFETY: as this function's contract.
    let op = match unsafe { operation(mw, rkey, &asked.bind_info) } {
        Ok(op) => op,
        Err(misuse) => return errno::code(misuse.errno()),
    };
    let flags = SendFlags::from_bits_truncate(asked.send_flags) - SendFlags::INLINE;
    // SAFETY: alive by contract.
    let core = unsafe { &qp::tail(qp).core };
    let result =
        errno::positive(core.post_send(&SendWr { wr_id: asked.wr_id, op, flags, sges: &[] }));
    if result == 0 {
        // SAFETY: alive by contract.
        unsafe { (*mw).rkey = rkey };
        core.ring();
    }
    result
}

/// The request that binds `mw` under the key `rkey`.
///
/// # Safety
/// `mw` is NULL or alive; the region is NULL or alive.
pub unsafe fn operation(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
) -> Result<SendOp, Misuse> {
    let empty = info.addr == 0 && info.length == 0;
    if mw.is_null() || info.mr.is_null() && !empty {
        return Err(Misuse::Invalid("a binding names a window and a region"));
    }
    let access = pd_mr::access(info.mw_access_flags as c_uint)?;
    if !(Access::REMOTE | Access::LOCAL_WRITE | Access::ZERO_BASED).contains(access) {
        return Err(Misuse::Invalid("a window grants rights to peers only"));
    }
    // SAFETY: NULL or alive by contract.
    let region = if info.mr.is_null() { 0 } else { unsafe { (*info.mr).lkey } };
    Ok(SendOp::BindMw(Bind {
        // SAFETY: alive by contract.
        window: unsafe { (*mw).rkey },
        key: rkey,
        region,
        addr: info.addr,
        len: info.length,
        access: access - Access::LOCAL_WRITE,
    }))
}
