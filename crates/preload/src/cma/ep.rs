//! Endpoints: ids made in one step from an address, and the requests of a listener on which each
//! call waits.

use std::ffi::c_int;
use std::ptr;

use weft_rdmacm::EventKind;

use super::events::{rdma_ack_cm_event, rdma_get_cm_event, release};
use super::id::{
    create, object, rdma_bind_addr, rdma_destroy_id, rdma_resolve_addr, rdma_resolve_route,
};
use super::object::{IdObject, copy_bytes};
use super::qp::{rdma_create_qp, rdma_destroy_qp, rdma_destroy_srq};
use crate::errno;
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{RAI_PASSIVE, rdma_addrinfo, rdma_cm_id};
use weft_verbs_abi::{ibv_pd, ibv_qp_init_attr};

/// Time limit of resolution in librdmacm's own endpoints; here nothing is waited for.
const RESOLVE_MS: c_int = 2000;

/// `rdma_create_ep`.
///
/// # Safety
/// `id` is writable, `res` came from `rdma_getaddrinfo`, `pd` is NULL or live, `attr` NULL or
/// readable and writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_create_ep(
    id: *mut *mut rdma_cm_id,
    res: *mut rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    pass_when_off!(rdma_create_ep(id, res, pd, attr));
    // SAFETY: the caller passes NULL or a readable result.
    let Some(res) = (unsafe { res.as_ref() }).filter(|_| !id.is_null()) else {
        return errno::minus_one(libc::EINVAL);
    };
    let new = match create(ptr::null_mut(), ptr::null_mut(), res.ai_port_space) {
        Ok(new) => new,
        Err(code) => return errno::minus_one(code),
    };
    // SAFETY: the id was just made; the rest is the caller's.
    let made = unsafe { prepare(new, res, pd, attr) };
    if made != 0 {
        let code = errno::get();
        // SAFETY: as above.
        unsafe { rdma_destroy_ep(new) };
        return errno::minus_one(code);
    }
    // SAFETY: the caller passes a writable pointer.
    unsafe { id.write(new) };
    0
}

/// # Safety
/// `new` is live; the rest as for [`rdma_create_ep`].
unsafe fn prepare(
    new: *mut rdma_cm_id,
    res: &rdma_addrinfo,
    pd: *mut ibv_pd,
    attr: *mut ibv_qp_init_attr,
) -> c_int {
    let object = object!(new);
    object.head.id.qp_type.set(res.ai_qp_type);
    if res.ai_flags & RAI_PASSIVE != 0 {
        // SAFETY: the caller passes NULL or readable attributes.
        let wanted = unsafe { attr.as_ref() };
        object
            .request_qp
            .set(wanted.map(|wanted| ibv_qp_init_attr { qp_type: res.ai_qp_type, ..*wanted }));
        // SAFETY: the result has a whole source address.
        let bound = unsafe { rdma_bind_addr(new, res.ai_src_addr) };
        if bound == 0 && !pd.is_null() {
            object.head.id.pd.set(pd);
        }
        return bound;
    }
    // SAFETY: the result has whole addresses.
    let found = unsafe { rdma_resolve_addr(new, res.ai_src_addr, res.ai_dst_addr, RESOLVE_MS) };
    if found != 0 {
        return found;
    }
    // SAFETY: the id is live.
    let routed = unsafe { rdma_resolve_route(new, RESOLVE_MS) };
    if routed != 0 {
        return routed;
    }
    // No connect takes more.
    if res.ai_connect_len > usize::from(u8::MAX) {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the result has as much data for the connection as it says.
    object.connect_data.replace(unsafe { copy_bytes(res.ai_connect, res.ai_connect_len) });
    // SAFETY: the caller passes NULL or attributes of its own.
    let Some(wanted) = (unsafe { attr.as_mut() }) else { return 0 };
    wanted.qp_type = res.ai_qp_type;
    // SAFETY: the id is live, the domain and the attributes are the caller's.
    unsafe { rdma_create_qp(new, pd, wanted) }
}

/// `rdma_destroy_ep`: the id with its queue pair and its shared receive queue.
///
/// # Safety
/// `id` is live and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_destroy_ep(id: *mut rdma_cm_id) {
    pass_when_off!(rdma_destroy_ep(id));
    // SAFETY: the caller passes a live id.
    unsafe { rdma_destroy_qp(id) };
    // SAFETY: as above.
    unsafe { rdma_destroy_srq(id) };
    // SAFETY: as above; it is not used again.
    unsafe { rdma_destroy_id(id) };
}

/// `rdma_get_request`: the next request of a listener on which each call waits.
///
/// # Safety
/// `listen` is live, `id` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_request(
    listen: *mut rdma_cm_id,
    id: *mut *mut rdma_cm_id,
) -> c_int {
    pass_when_off!(rdma_get_request(listen, id));
    let object = object!(listen);
    if !object.is_sync() || id.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    release(object);
    let mut event = ptr::null_mut();
    // SAFETY: the channel of a synchronous id lives as long as the id.
    if unsafe { rdma_get_cm_event(object.head.id.channel.get(), &raw mut event) } != 0 {
        return -1;
    }
    // SAFETY: the event was just read and is not acknowledged.
    let head = unsafe { &*event };
    let code = match (head.status, head.event == EventKind::ConnectRequest as u32) {
        (0, true) => give_queue_pair(object, head.id),
        (0, false) => libc::EINVAL,
        (status, _) => status.abs(),
    };
    if code != 0 {
        discard(event);
        return errno::minus_one(code);
    }
    // SAFETY: the id of a request is live until the application destroys it.
    unsafe { (*head.id).event.set(event) };
    // SAFETY: the caller passes a writable pointer.
    unsafe { id.write(head.id) };
    0
}

/// Makes the queue pair that the listener was told to make for each request. Gives an errno.
fn give_queue_pair(listen: &IdObject, id: *mut rdma_cm_id) -> c_int {
    let Some(mut attr) = listen.request_qp.get() else { return 0 };
    // SAFETY: the id is live, and so is the listener's domain.
    match unsafe { rdma_create_qp(id, listen.head.id.pd.get(), &raw mut attr) } {
        0 => 0,
        _ => errno::get(),
    }
}

/// Drops a request that cannot be given to the application: nobody else knows its id.
fn discard(event: *mut weft_verbs_abi::cma::rdma_cm_event) {
    // SAFETY: the event was read and is not acknowledged.
    let head = unsafe { &*event };
    let (id, is_request) = (head.id, !head.listen_id.is_null());
    // SAFETY: the event is given back once.
    unsafe { rdma_ack_cm_event(event) };
    if is_request {
        // SAFETY: the id came with this event, and is not used again.
        unsafe { rdma_destroy_ep(id) };
    }
}
