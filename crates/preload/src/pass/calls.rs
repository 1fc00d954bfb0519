//! Verbs of other providers that the plan has fail.

use std::ffi::{c_int, c_uint, c_void};

use weft_fault::Verb;
use weft_verbs_abi::*;

use super::context::{PassContext, with_real_events};
use super::{context, mr, query};
use crate::errno;

/// The errno that a call on `context` fails with, if it does.
pub fn refused(context: *mut ibv_context, verb: Verb) -> Option<c_int> {
    super::faults()?;
    context::find(context)?.errno_of(verb)
}

/// Whether the device of `context` was reset since it was opened.
pub fn is_gone(context: *mut ibv_context) -> bool {
    let pass = super::faults().and_then(|_| context::find(context));
    pass.is_some_and(|pass| {
        pass.tick();
        pass.is_gone()
    })
}

/// `ibv_alloc_pd`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn alloc_pd(
    real: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    context: *mut ibv_context,
) -> *mut ibv_pd {
    match refused(context, Verb::AllocPd) {
        Some(code) => errno::null(code),
        // SAFETY: the caller's argument.
        None => unsafe { real(context) },
    }
}

/// `ibv_reg_mr`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn reg_mr(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    match refused(context, Verb::RegMr) {
        Some(code) => errno::null(code),
        // SAFETY: the caller's arguments.
        None => mr::adopt(context, unsafe { real(pd, addr, length, access) }),
    }
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn reg_mr_iova(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_int) -> *mut ibv_mr,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    match refused(context, Verb::RegMr) {
        Some(code) => errno::null(code),
        // SAFETY: the caller's arguments.
        None => mr::adopt(context, unsafe { real(pd, addr, length, iova, access) }),
    }
}

/// `ibv_reg_mr_iova2`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn reg_mr_iova2(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr,
    pd: *mut ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    match refused(context, Verb::RegMr) {
        Some(code) => errno::null(code),
        // SAFETY: the caller's arguments.
        None => mr::adopt(context, unsafe { real(pd, addr, length, iova, access) }),
    }
}

/// `ibv_create_srq`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn create_srq(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq,
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    if let Some(code) = refused(context, Verb::CreateSrq) {
        return errno::null(code);
    }
    // SAFETY: the caller's arguments.
    let make = || unsafe { real(pd, init) };
    // SAFETY: open by contract.
    unsafe { with_real_events(context, make) }
}

/// `ibv_create_ah`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn create_ah(
    real: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
    pd: *mut ibv_pd,
    attr: *mut ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    if let Some(code) = refused(context, Verb::CreateAh) {
        return errno::null(code);
    }
    // SAFETY: readable by contract.
    match query::real_address(context, unsafe { *attr }) {
        // SAFETY: the caller's arguments, but for the row of the GID.
        Ok(mut address) => unsafe { real(pd, &raw mut address) },
        Err(code) => errno::null(code),
    }
}

/// `ibv_create_srq_ex` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    init: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    let real = context::find(context).and_then(|pass| pass.real.create_srq_ex);
    match (refused(context, Verb::CreateSrq), real) {
        (Some(code), _) => errno::null(code),
        (None, Some(real)) => {
            // SAFETY: the caller's arguments.
            let make = || unsafe { real(context, init) };
            // SAFETY: open by contract.
            unsafe { with_real_events(context, make) }
        }
        (None, None) => errno::null(libc::EOPNOTSUPP),
    }
}

/// `ibv_alloc_dm` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn alloc_dm(
    context: *mut ibv_context,
    attr: *mut ibv_alloc_dm_attr,
) -> *mut ibv_dm {
    let real = context::find(context).and_then(|pass| pass.real.alloc_dm);
    match (refused(context, Verb::AllocDm), real) {
        (Some(code), _) => errno::null(code),
        // SAFETY: the caller's arguments.
        (None, Some(real)) => unsafe { real(context, attr) },
        (None, None) => errno::null(libc::EOPNOTSUPP),
    }
}

/// `ibv_alloc_mw` in a context.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn alloc_mw(pd: *mut ibv_pd, kind: c_int) -> *mut ibv_mw {
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    let real = context::find(context).and_then(|pass| pass.real.ops.alloc_mw);
    match (refused(context, Verb::AllocMw), real) {
        (Some(code), _) => errno::null(code),
        // SAFETY: the caller's arguments.
        (None, Some(real)) => unsafe { real(pd, kind) },
        (None, None) => errno::null(libc::EOPNOTSUPP),
    }
}

/// `ibv_post_srq_recv`.
///
/// # Safety
/// As for the C function.
pub unsafe extern "C" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    // SAFETY: alive by contract.
    let context = context::find(unsafe { (*srq).context });
    let real = context.as_ref().and_then(|one| Some((one, one.real.ops.post_srq_recv?)));
    let Some((context, real)) = real else { return errno::code(libc::ENODEV) };
    // SAFETY: the caller's list and place for a request.
    if let Some(code) = unsafe { refuse_receives(context, wr, bad) } {
        return code;
    }
    // SAFETY: the caller's arguments.
    unsafe { real(srq, wr, bad) }
}

/// What a posting of receives fails with, if it is to fail; otherwise they are counted.
///
/// # Safety
/// A list as for `ibv_post_recv`, or NULL; `bad` is writable.
pub unsafe fn refuse_receives(
    context: &PassContext,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> Option<c_int> {
    if context.needs.calls
        && let Some(code) = context.faults.errno_of(Verb::PostRecv, &context.name)
    {
        // SAFETY: writable by contract.
        unsafe { bad.write(wr) };
        return Some(errno::code(code));
    }
    // SAFETY: the caller's list.
    mr::note_posts(unsafe { receives(wr) });
    None
}

/// Requests from `wr` on.
///
/// # Safety
/// A list as for `ibv_post_recv`, or NULL.
unsafe fn receives(mut wr: *mut ibv_recv_wr) -> usize {
    let mut count = 0;
    while !wr.is_null() {
        count += 1;
        // SAFETY: a request of the list.
        wr = unsafe { (*wr).next };
    }
    count
}
