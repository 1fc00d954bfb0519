//! Opening and closing devices of other providers, and what stands in their tables of functions.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use weft_fault::Verb;
use weft_verbs_abi::*;

use super::context::{
    AllocDm, CreateCqEx, CreateQpEx, CreateSrqEx, OpenedContext, PassContext, PassNeeds, QueryPort,
    RealTable, name_of,
};
use super::events::PassEvents;
use super::{calls, context, cq, cq_ex, qp, query};
use crate::errno;

/// `ibv_open_device`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn open_device(
    real: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    device: *mut ibv_device,
) -> *mut ibv_context {
    let Some(faults) = super::faults() else {
        // SAFETY: the caller's argument.
        return unsafe { real(device) };
    };
    // SAFETY: of the list, by contract.
    let name = unsafe { name_of(device) };
    if let Some(code) = faults.errno_of(Verb::OpenDevice, &name) {
        return errno::null(code);
    }
    let (changes, told) = faults.open(&name);
    if told.state().resetting {
        return errno::null(libc::ENODEV);
    }
    // SAFETY: the caller's argument.
    let context = unsafe { real(device) };
    let needs = PassNeeds::of(faults, &name);
    if context.is_null() || needs == PassNeeds::default() {
        return context;
    }
    // SAFETY: just opened.
    let real = unsafe { real_table(context) };
    // SAFETY: as above.
    let async_fd = unsafe { (*context).async_fd };
    let events = needs.device.then(|| PassEvents::new(async_fd)).flatten();
    // Counted only for events of the table of GIDs.
    let gid_rows = if changes.is_empty() { 0 } else { query::used_gids(context) };
    let opened = OpenedContext { name, needs, real, events, changes, told, gid_rows };
    let pass = PassContext::new(faults, opened);
    // SAFETY: just opened; nobody else has it yet.
    unsafe { replace(context, &pass) };
    context::add(context, Arc::clone(&pass));
    if let Some(events) = &pass.events {
        events.schedule(pass.next_change());
    }
    context
}

/// The extended context around `context`.
fn extended(context: *mut ibv_context) -> *mut verbs_context {
    context.wrapping_byte_sub(offset_of!(verbs_context, context)).cast()
}

/// # Safety
/// `context` is open.
unsafe fn real_table(context: *mut ibv_context) -> RealTable {
    // SAFETY: open by contract.
    let ibv_context { ops, abi_compat, .. } = unsafe { &*context };
    let mut real = RealTable {
        ops: *ops,
        extended: *abi_compat as usize == usize::MAX,
        create_qp_ex: None,
        create_cq_ex: None,
        create_srq_ex: None,
        alloc_dm: None,
        query_port: None,
    };
    if real.extended {
        // SAFETY: the mark says that there is one around it.
        let verbs = unsafe { &*extended(context) };
        real.create_qp_ex = verbs.create_qp_ex;
        real.create_cq_ex = verbs.create_cq_ex;
        real.create_srq_ex = verbs.create_srq_ex;
        real.alloc_dm = verbs.alloc_dm;
        real.query_port = verbs.query_port;
    }
    real
}

/// Puts the functions that the plan needs into the tables of `context`, where there are some.
///
/// # Safety
/// `context` is open, and no other thread uses it.
unsafe fn replace(context: *mut ibv_context, pass: &PassContext) {
    let PassNeeds { work, calls, regions, device } = pass.needs;
    // SAFETY: open by contract, and nobody else's yet.
    let ops = unsafe { &mut (*context).ops };
    if work || calls || regions {
        ops.post_send = ops.post_send.map(|_| qp::post_send as PostSend);
        ops.post_recv = ops.post_recv.map(|_| qp::post_recv as PostRecv);
        ops.post_srq_recv = ops.post_srq_recv.map(|_| calls::post_srq_recv as _);
        ops.alloc_mw = ops.alloc_mw.map(|_| calls::alloc_mw as _);
    }
    if work || regions {
        ops.poll_cq = ops.poll_cq.map(|_| cq::poll_cq as PollCq);
        ops.req_notify_cq = ops.req_notify_cq.map(|_| cq::req_notify_cq as ReqNotifyCq);
    }
    if let Some(events) = &pass.events {
        // SAFETY: as above.
        unsafe { (*context).async_fd = events.raw() };
    }
    if !pass.real.extended {
        return;
    }
    // SAFETY: the mark says that there is one around it; as above.
    let verbs = unsafe { &mut *extended(context) };
    if work || calls || device {
        verbs.create_qp_ex = verbs.create_qp_ex.map(|_| qp::create_qp_ex as CreateQpEx);
        verbs.create_cq_ex = verbs.create_cq_ex.map(|_| cq_ex::create_cq_ex as CreateCqEx);
        verbs.create_srq_ex = verbs.create_srq_ex.map(|_| calls::create_srq_ex as CreateSrqEx);
        verbs.alloc_dm = verbs.alloc_dm.map(|_| calls::alloc_dm as AllocDm);
    }
    if device {
        verbs.query_port = verbs.query_port.map(|_| query::query_port_of_context as QueryPort);
    }
}

/// `ibv_close_device`.
///
/// # Safety
/// As for the C function, which `real` is.
pub unsafe fn close_device(
    real: unsafe extern "C" fn(*mut ibv_context) -> c_int,
    context: *mut ibv_context,
) -> c_int {
    let pass = super::faults().and_then(|_| context::remove(context));
    if let Some(events) = pass.as_ref().and_then(|pass| pass.events.as_ref()) {
        // SAFETY: open by contract; the provider closes what it opened.
        unsafe { (*context).async_fd = events.real() };
    }
    // SAFETY: the caller's argument.
    unsafe { real(context) }
}
