//! Connections: listen, connect, answer, end.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use weft_host::{DeviceKind, HostQp};
use weft_rdmacm::{
    CmCommand, CmState, ConnParam, PortSpace, QpTerms, RETRIES_MAX, private_data_max,
};

use super::events::complete;
use super::id::{completed, object, result};
use super::object::{IdObject, copy_bytes};
use super::qp as id_qp;
use crate::errno::{self, needs_memory};
use crate::ibv::qp;
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{RDMA_UDP_QKEY, rdma_cm_id, rdma_conn_param};
use weft_verbs_abi::ibv_ece;

/// `rdma_listen`: `backlog` requests at most wait to be read; 0 or less means the system's choice.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int {
    pass_when_off!(rdma_listen(id, backlog));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    let listening = result(object.cm.listen(usize::try_from(backlog).unwrap_or(0)));
    if listening == 0 {
        object.show_addresses();
    }
    listening
}

/// `rdma_connect`.
///
/// # Safety
/// `id` is live, `param` NULL or readable with its private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    pass_when_off!(rdma_connect(id, param));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: the caller passes NULL or readable parameters.
    let mut wanted = unsafe { read_param(param) };
    let first = object.connect_data.borrow();
    if !first.is_empty() {
        wanted.private_data.splice(0..0, first.iter().copied());
    }
    drop(first);
    if !has_room(object, CmCommand::Connect, &wanted.private_data) {
        return errno::minus_one(libc::EINVAL);
    }
    let called = match queue_pair(object, &mut wanted) {
        Some(ConnectEnd::Here(qp)) => object.cm.connect(&wanted, &qp),
        Some(ConnectEnd::Elsewhere) => object.cm.connect_elsewhere(&wanted),
        None => return errno::minus_one(libc::EINVAL),
    };
    completed(object, called)
}

/// `rdma_accept`.
///
/// # Safety
/// `id` is live, `param` NULL or readable with its private data.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int {
    pass_when_off!(rdma_accept(id, param));
    needs_memory!(errno::minus_one);
    let object = object!(id);
    // SAFETY: the caller passes NULL or readable parameters.
    let mut wanted = unsafe { read_param(param) };
    if !has_room(object, CmCommand::Accept, &wanted.private_data) {
        return errno::minus_one(libc::EINVAL);
    }
    let accepted = match queue_pair(object, &mut wanted) {
        Some(ConnectEnd::Here(qp)) => object.cm.accept(&wanted, &qp),
        Some(ConnectEnd::Elsewhere) => object.cm.accept_elsewhere(&wanted),
        None => return errno::minus_one(libc::EINVAL),
    };
    if accepted.is_ok() {
        object.show_queue_pair();
    }
    if object.cm.space() == PortSpace::Udp {
        // A service of datagrams needs no connection: there is no event to wait for.
        return result(accepted);
    }
    completed(object, accepted)
}

/// # Safety
/// `param` is NULL or readable with its private data.
unsafe fn read_param(param: *const rdma_conn_param) -> ConnParam {
    // SAFETY: the caller passes NULL or readable parameters.
    let Some(param) = (unsafe { param.as_ref() }) else { return ConnParam::device_max() };
    ConnParam {
        responder_resources: param.responder_resources,
        initiator_depth: param.initiator_depth,
        // SAFETY: the caller passes as much private data as it says.
        private_data: unsafe {
            copy_bytes(param.private_data, usize::from(param.private_data_len))
        },
        terms: QpTerms {
            qp_num: param.qp_num,
            qkey: 0,
            flow_control: param.flow_control != 0,
            srq: param.srq != 0,
            // Fields of three bits, as the kernel fills them.
            retry_count: param.retry_count.min(RETRIES_MAX),
            rnr_retry_count: param.rnr_retry_count.min(RETRIES_MAX),
        },
    }
}

/// Whether the message that `command` sends has room for the private data.
fn has_room(object: &IdObject, command: CmCommand, private_data: &[u8]) -> bool {
    private_data.len() <= private_data_max(object.personality(), object.cm.space(), command)
}

/// This end of a connection.
enum ConnectEnd {
    /// A queue pair that is connected here.
    Here(Arc<HostQp>),
    /// One that the application connects by itself, or that takes datagrams.
    Elsewhere,
}

/// The queue pair of the id, or the one that the parameters number; those are to say which it is.
fn queue_pair(object: &IdObject, wanted: &mut ConnParam) -> Option<ConnectEnd> {
    let own = object.head.id.qp.get();
    let terms = &mut wanted.terms;
    if !own.is_null() {
        // SAFETY: the application keeps the queue pair of an id that it connects.
        let core = &unsafe { qp::tail(own) }.core;
        terms.qp_num = core.num();
        terms.srq |= !object.head.id.srq.get().is_null();
        if object.cm.space() == PortSpace::Udp {
            terms.qkey = core.query().qkey;
            return Some(ConnectEnd::Elsewhere);
        }
        return Some(ConnectEnd::Here(core.clone()));
    }
    match object.personality() {
        DeviceKind::Iwarp => qp::by_number(DeviceKind::Iwarp, terms.qp_num).map(ConnectEnd::Here),
        DeviceKind::Roce => {
            terms.qkey = RDMA_UDP_QKEY;
            Some(ConnectEnd::Elsewhere)
        }
    }
}

/// `rdma_reject`.
///
/// # Safety
/// `id` is live, `private_data` NULL or as long as it is said to be.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    pass_when_off!(rdma_reject(id, private_data, private_data_len));
    let object = object!(id);
    // SAFETY: the caller passes as much private data as it says.
    let private_data = unsafe { copy_bytes(private_data, usize::from(private_data_len)) };
    if !has_room(object, CmCommand::Reject, &private_data) {
        return errno::minus_one(libc::EINVAL);
    }
    result(object.cm.reject(&private_data))
}

/// `rdma_reject_ece`: the reason that it stands for is not told.
///
/// # Safety
/// As [`rdma_reject`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_reject_ece(
    id: *mut rdma_cm_id,
    private_data: *const c_void,
    private_data_len: u8,
) -> c_int {
    pass_when_off!(rdma_reject_ece(id, private_data, private_data_len));
    // SAFETY: the arguments are the caller's own.
    unsafe { rdma_reject(id, private_data, private_data_len) }
}

/// `rdma_disconnect`. On an id whose connection is over it does nothing. The queue pair of an id
/// for datagrams fails, and there is no event to wait for.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int {
    pass_when_off!(rdma_disconnect(id));
    let object = object!(id);
    if let Err(error) = object.cm.disconnect() {
        return errno::minus_one(error.errno());
    }
    if object.cm.space() == PortSpace::Udp {
        return id_qp::fail(object);
    }
    if object.cm.state() == CmState::Closed && object.cm.channel().is_empty() {
        // The end was reported by an earlier call: there is no event to wait for.
        return 0;
    }
    complete(object)
}

/// `rdma_establish`: after [`weft_rdmacm::EventKind::ConnectResponse`], which iWARP does not raise.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
    pass_when_off!(rdma_establish(id));
    result(object!(id).cm.establish())
}

/// `rdma_notify`.
///
/// # Safety
/// `id` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_notify(id: *mut rdma_cm_id, event: c_int) -> c_int {
    pass_when_off!(rdma_notify(id, event));
    result(object!(id).cm.notify())
}

/// `rdma_set_local_ece`: kept, and not sent: there is no hardware to have options.
///
/// # Safety
/// `id` is live, `ece` readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    pass_when_off!(rdma_set_local_ece(id, ece));
    let object = object!(id);
    // SAFETY: the caller passes NULL or readable options.
    let Some(ece) = (unsafe { ece.as_ref() }) else { return errno::minus_one(libc::EINVAL) };
    if !object.head.id.qp.get().is_null() || ece.vendor_id == 0 || ece.comp_mask != 0 {
        return errno::minus_one(libc::EINVAL);
    }
    object.local_ece.set(*ece);
    0
}

/// `rdma_get_remote_ece`: a peer has no options.
///
/// # Safety
/// `id` is live, `ece` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
    pass_when_off!(rdma_get_remote_ece(id, ece));
    let object = object!(id);
    if !object.head.id.qp.get().is_null() || ece.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the caller passes a writable structure.
    unsafe { ece.write(ibv_ece { vendor_id: 0, options: 0, comp_mask: 0 }) };
    0
}
