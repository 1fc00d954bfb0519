//! Shared receive queues.

use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;

use weft_host::{HostCq, HostSrq, HostXrcd, SrqInit};
use weft_os::calls::LibraryCall;

use super::context::{self, Held, family_of};
use super::object::{AckCounts, Object, handle};
use super::{cq, pd_mr, registry, xrcd};
use crate::errno::{self, needs_memory};
use crate::pass;
use crate::real::pass_when_off;
use weft_verbs_abi::*;

/// Private tail of the C structure of a shared receive queue.
pub struct SrqTail {
    /// The queue in `weft-host`.
    pub core: Arc<HostSrq>,
    cookie: u64,
    context: Held,
}

type SrqObject = Object<ibv_srq, SrqTail>;

/// The private tail of `srq`.
///
/// # Safety
/// `srq` came from [`ibv_create_srq`] or its extended form and is not destroyed while the reference
/// lives.
pub unsafe fn tail<'a>(srq: *mut ibv_srq) -> &'a SrqTail {
    // SAFETY: as this function's contract.
    unsafe { SrqObject::tail(srq) }
}

/// The acknowledged events of `srq`.
pub fn acks(srq: *mut ibv_srq) -> AckCounts {
    let completed = offset_of!(ibv_srq, events_completed);
    AckCounts::at(srq, [offset_of!(ibv_srq, mutex), offset_of!(ibv_srq, cond), completed])
}

/// `ibv_create_srq`: writes what was granted back to the attributes.
///
/// # Safety
/// `pd` is alive and `init` readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_create_srq(
    pd: *mut ibv_pd,
    init: *mut ibv_srq_init_attr,
) -> *mut ibv_srq {
    pass_when_off!(ibv_create_srq(pd, init), pass::calls::create_srq);
    // SAFETY: readable by contract.
    let mut asked = unsafe { *init };
    // SAFETY: alive by contract.
    let srq = unsafe { create(pd, &mut asked, None) };
    // SAFETY: writable by contract.
    unsafe { (*init).attr = asked.attr };
    srq
}

/// Makes a shared receive queue, of a domain if it has a `home`, and writes what was granted to
/// `init`; NULL with `errno` set when it cannot be made.
///
/// # Safety
/// `pd` is alive.
unsafe fn create(
    pd: *mut ibv_pd,
    init: &mut ibv_srq_init_attr,
    home: Option<(Arc<HostXrcd>, Arc<HostCq>)>,
) -> *mut ibv_srq {
    needs_memory!(errno::null);
    // SAFETY: alive by contract.
    let domain = unsafe { pd_mr::pd_tail(pd) };
    // SAFETY: alive by contract.
    let context = unsafe { (*pd).context };
    // SAFETY: the context of a live domain is open.
    let held = unsafe { Held::new(context) };
    let cookie = registry::cookie();
    // The limit is none until `ibv_modify_srq` sets one (`ibv_create_srq(3)`).
    let ibv_srq_attr { max_wr, max_sge, .. } = init.attr;
    let wanted = SrqInit { pd: domain.core.clone(), max_wr, max_sge, limit: 0, cookie, home };
    let core = match held.tail().core.create_srq(wanted) {
        Ok(core) => core,
        Err(misuse) => return errno::null(misuse.errno()),
    };
    init.attr = attributes(core.query());
    let public = ibv_srq {
        context,
        srq_context: init.srq_context,
        pd,
        handle: handle(),
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    let srq = SrqObject::make(public, SrqTail { core, cookie, context: held });
    registry::add(cookie, srq);
    srq
}

/// Slot `create_srq_ex`: plain queues, and those of domains of extended reliable connections.
///
/// # Safety
/// `context` is open, `attr` readable and writable; the objects it names are alive.
pub unsafe extern "C" fn create_srq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_srq_init_attr_ex,
) -> *mut ibv_srq {
    const PLAIN: u32 = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    const OF_DOMAIN: u32 = PLAIN | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
    let _call = LibraryCall::begin();
    // SAFETY: as this function's contract.
    let attr = unsafe { &mut *attr };
    let has = |bits| attr.comp_mask & bits == bits;
    let kind = if has(IBV_SRQ_INIT_ATTR_TYPE) { attr.srq_type } else { IBV_SRQT_BASIC };
    if attr.comp_mask & !OF_DOMAIN != 0 || !matches!(kind, IBV_SRQT_BASIC | IBV_SRQT_XRC) {
        return errno::null(libc::EOPNOTSUPP);
    }
    let of_domain = kind == IBV_SRQT_XRC;
    let needed = if of_domain { OF_DOMAIN } else { IBV_SRQ_INIT_ATTR_PD };
    if !has(needed) || attr.pd.is_null() {
        return errno::null(libc::EINVAL);
    }
    let home = if !of_domain {
        None
    } else if attr.xrcd.is_null() || attr.cq.is_null() {
        return errno::null(libc::EINVAL);
    } else {
        // SAFETY: open by contract.
        let family = unsafe { context::tail(context) }.family;
        // SAFETY: alive by contract.
        let of_family = |object: *mut ibv_cq| unsafe { family_of(object) } == family;
        if ![attr.pd.cast(), attr.xrcd.cast(), attr.cq].into_iter().all(of_family) {
            return errno::null(libc::EINVAL);
        }
        // SAFETY: alive by contract.
        let domain = unsafe { xrcd::tail(attr.xrcd) }.core.clone();
        // SAFETY: alive by contract.
        Some((domain, unsafe { cq::tail(attr.cq) }.core.clone()))
    };
    let mut init = ibv_srq_init_attr { srq_context: attr.srq_context, attr: attr.attr };
    // SAFETY: alive by contract.
    let srq = unsafe { create(attr.pd, &mut init, home) };
    attr.attr = init.attr;
    srq
}

/// Slot `get_srq_num`: how peers name the queue; `EINVAL` if they cannot.
///
/// # Safety
/// `srq` is alive and `number` writable.
pub unsafe extern "C" fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
    // SAFETY: alive by contract.
    let Some(found) = unsafe { tail(srq) }.core.number() else {
        return errno::code(libc::EINVAL);
    };
    // SAFETY: writable by contract.
    unsafe { number.write(found) };
    0
}

fn attributes((max_wr, max_sge, srq_limit): (u32, u32, u32)) -> ibv_srq_attr {
    ibv_srq_attr { max_wr, max_sge, srq_limit }
}

/// `ibv_modify_srq`.
///
/// # Safety
/// `srq` is alive and `attr` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_modify_srq(
    srq: *mut ibv_srq,
    attr: *mut ibv_srq_attr,
    mask: c_int,
) -> c_int {
    pass_when_off!(ibv_modify_srq(srq, attr, mask));
    if mask & !(IBV_SRQ_MAX_WR | IBV_SRQ_LIMIT) != 0 {
        return errno::code(libc::EINVAL);
    }
    // SAFETY: readable by contract.
    let attr = unsafe { *attr };
    let max_wr = (mask & IBV_SRQ_MAX_WR != 0).then_some(attr.max_wr);
    let limit = (mask & IBV_SRQ_LIMIT != 0).then_some(attr.srq_limit);
    // SAFETY: alive by contract.
    errno::positive(unsafe { tail(srq) }.core.modify(max_wr, limit))
}

/// `ibv_query_srq`.
///
/// # Safety
/// `srq` is alive and `attr` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int {
    pass_when_off!(ibv_query_srq(srq, attr));
    // SAFETY: alive by contract.
    let now = unsafe { tail(srq) }.core.query();
    // SAFETY: writable by contract.
    unsafe { attr.write(attributes(now)) };
    0
}

/// `ibv_destroy_srq`: `EBUSY` while a queue pair uses it. Waits until the application has
/// acknowledged every event that it was given.
///
/// # Safety
/// `srq` is alive and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int {
    pass_when_off!(ibv_destroy_srq(srq));
    // SAFETY: alive by contract.
    let tail = unsafe { tail(srq) };
    if tail.context.is_inherited() {
        return 0;
    }
    let context = tail.context.tail();
    match context.core.destroy_srq(&tail.core, tail.cookie) {
        Ok(dropped) => context.events.retract(dropped),
        Err(misuse) => return errno::code(misuse.errno()),
    }
    let reported = registry::remove(tail.cookie);
    // SAFETY: alive by contract.
    unsafe { acks(srq).wait(reported.asynchronous) };
    // SAFETY: not used afterwards by contract.
    unsafe { SrqObject::free(srq) };
    0
}
