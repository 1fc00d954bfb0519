//! Groups that ids for datagrams join: the id's queue pair is attached, and an event says how to
//! send to the group.

use std::ffi::{c_int, c_void};

use weft_rdmacm::Join;

use super::id::{completed, object};
use super::object::IdObject;
use super::sockaddr;
use crate::errno::{self, needs_memory};
use crate::ibv::{group, qp};
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{rdma_cm_id, rdma_cm_join_mc_attr_ex};

const RDMA_CM_JOIN_MC_ATTR_ADDRESS: u32 = 1;
const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: u32 = 1 << 1;
const RDMA_MC_JOIN_FLAG_FULLMEMBER: u32 = 0;
const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u32 = 1;

/// `rdma_join_multicast`.
///
/// # Safety
/// `id` is live, `addr` a whole address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_join_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
    context: *mut c_void,
) -> c_int {
    pass_when_off!(rdma_join_multicast(id, addr, context));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: a whole address by contract.
    unsafe { join(object, addr, true, context) }
}

/// `rdma_join_multicast_ex`: who only sends is attached to nothing.
///
/// # Safety
/// `id` is live, `attr` readable with a whole address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_join_multicast_ex(
    id: *mut rdma_cm_id,
    attr: *mut rdma_cm_join_mc_attr_ex,
    context: *mut c_void,
) -> c_int {
    pass_when_off!(rdma_join_multicast_ex(id, attr, context));
    needs_memory!(errno::minus_one);
    const KNOWN: u32 = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
    let object = object!(id);
    // SAFETY: the caller passes NULL or readable attributes.
    let Some(attr) = (unsafe { attr.as_ref() }) else { return errno::minus_one(libc::EINVAL) };
    let receives = match attr.join_flags {
        RDMA_MC_JOIN_FLAG_FULLMEMBER => true,
        RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => false,
        _ => return errno::minus_one(libc::EINVAL),
    };
    if attr.comp_mask != KNOWN {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: a whole address by contract.
    unsafe { join(object, attr.addr, receives, context) }
}

/// # Safety
/// `addr` is NULL or a whole address.
unsafe fn join(
    object: &IdObject,
    addr: *const libc::sockaddr,
    receives: bool,
    context: *mut c_void,
) -> c_int {
    // SAFETY: NULL or whole by contract.
    let Some(to) = (unsafe { sockaddr::read(addr) }) else {
        return errno::minus_one(libc::EINVAL);
    };
    let own = object.head.id.qp.get();
    let own = (receives && !own.is_null()).then(|| {
        // SAFETY: the queue pair of a live id is alive.
        unsafe { qp::tail(own) }.core.clone()
    });
    let local = object.cm.local_addr().map(|local| local.ip());
    let interfaces = group::interfaces_of(local);
    let join = Join { group: to.ip().to_canonical(), context: context.expose_provenance() };
    completed(object, object.cm.join_group(join, own.as_ref(), &interfaces))
}

/// `rdma_leave_multicast`.
///
/// # Safety
/// `id` is live, `addr` a whole address.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_leave_multicast(
    id: *mut rdma_cm_id,
    addr: *mut libc::sockaddr,
) -> c_int {
    pass_when_off!(rdma_leave_multicast(id, addr));
    let object = object!(id);
    // SAFETY: a whole address by contract.
    let group = unsafe { sockaddr::read(addr) }.map(|to| to.ip().to_canonical());
    if group.is_some_and(|group| object.cm.leave_group(group)) {
        return 0;
    }
    errno::minus_one(libc::EADDRNOTAVAIL)
}
