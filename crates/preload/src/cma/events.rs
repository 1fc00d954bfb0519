//! Events: what a channel delivers becomes what the application reads, and the id shows what it
//! says.

use std::ffi::c_int;
use std::ptr;
use std::sync::Arc;

use weft_rdmacm::{CmEvent, CmId, EventChannel, EventKind, IdEvent, PortSpace};

use super::object::{ChannelObject, IdObject};
use crate::errno;
use crate::real::pass_when_off;
use weft_verbs_abi::cma::{
    RDMA_UDP_QKEY, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel,
    rdma_event_param, rdma_ud_param,
};

/// The queue pair that a datagram to a group is for.
const GROUP_QPN: u32 = 0x00ff_ffff;

/// An event and what is behind it.
#[repr(C)]
struct EventObject {
    head: rdma_cm_event,
    owner: Arc<CmId>,
    /// The memory that `head.param.conn.private_data` points into.
    private_data: Vec<u8>,
}

impl EventObject {
    fn create(id: *mut rdma_cm_id, listen: *mut rdma_cm_id, delivery: IdEvent) -> *mut Self {
        let owner = delivery.owner().clone();
        let CmEvent {
            kind,
            status,
            responder_resources,
            initiator_depth,
            private_data,
            terms,
            arg,
        } = delivery.event;
        // The structure has one byte for the length; RFC 5044 allows the peer 512.
        let private_data_len = private_data.len().min(usize::from(u8::MAX)) as u8;
        let bytes =
            if private_data.is_empty() { ptr::null() } else { private_data.as_ptr().cast() };
        let conn = rdma_conn_param {
            private_data: bytes,
            private_data_len,
            responder_resources,
            initiator_depth,
            flow_control: u8::from(terms.flow_control),
            retry_count: terms.retry_count,
            rnr_retry_count: terms.rnr_retry_count,
            srq: u8::from(terms.srq),
            qp_num: terms.qp_num,
        };
        // SAFETY: zeroes are valid parameters of either kind.
        let mut param: rdma_event_param = unsafe { std::mem::zeroed() };
        if kind == EventKind::User {
            param.arg = arg;
        } else if let Some(join) = delivery.join {
            param.ud = rdma_ud_param {
                // The application's own, as it gave it.
                private_data: ptr::with_exposed_provenance(join.context),
                private_data_len: 0,
                ah_attr: super::route::group_ah_attr(&delivery.id, join.group),
                qp_num: GROUP_QPN,
                qkey: RDMA_UDP_QKEY,
            };
        } else if delivery.id.space() == PortSpace::Udp {
            param.ud = rdma_ud_param {
                private_data: bytes,
                private_data_len,
                ah_attr: super::route::ah_attr(&delivery.id),
                qp_num: terms.qp_num,
                qkey: terms.qkey,
            };
        } else {
            param.conn = conn;
        }
        let head = rdma_cm_event { id, listen_id: listen, event: kind as u32, status, param };
        Box::into_raw(Box::new(EventObject { head, owner, private_data }))
    }
}

/// `rdma_get_cm_event`: the next event of a channel; sleeps unless its descriptor is non-blocking.
///
/// # Safety
/// `channel` is live, `event` writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    pass_when_off!(rdma_get_cm_event(channel, event));
    // Our own reference outlives the channel: an application may destroy it while a thread sleeps
    // here.
    let channel = match ChannelObject::find(channel) {
        ChannelObject::Live(channel) if !event.is_null() => channel,
        ChannelObject::Destroyed => return errno::minus_one(EventChannel::sleep_on_closed()),
        _ => return errno::minus_one(libc::EINVAL),
    };
    loop {
        let delivery = match channel.wait() {
            Ok(delivery) => delivery,
            Err(e) => return errno::minus_one(e.raw_os_error().unwrap_or(libc::EIO)),
        };
        let Some(object) = translate(delivery) else { continue };
        // SAFETY: the caller passes a writable pointer.
        unsafe { event.write(object) };
        return 0;
    }
}

/// Turns a delivery into an event of the application's; nothing when its id cannot be made.
fn translate(mut delivery: IdEvent) -> Option<*mut rdma_cm_event> {
    let owner = delivery.owner().clone();
    // SAFETY: the delivery is on the owner's account until the event is acknowledged.
    let known = unsafe { IdObject::of(&owner) };
    let object = known.and_then(|owner| match delivery.event.kind {
        EventKind::ConnectRequest => accept_into(owner, &delivery),
        _ => {
            follow(owner, &mut delivery.event);
            Some(owner)
        }
    });
    let (Some(known), Some(object)) = (known, object) else {
        owner.acknowledge();
        return None;
    };
    let listen = if delivery.listen.is_some() { known.as_ptr() } else { ptr::null_mut() };
    Some(EventObject::create(object.as_ptr(), listen, delivery).cast())
}

/// Makes the application's id for a request.
fn accept_into(listen: &IdObject, delivery: &IdEvent) -> Option<&'static IdObject> {
    let (id, cm) = (&listen.head.id, delivery.id.clone());
    let channel = match listen.is_sync() {
        true => ChannelObject::create().ok(),
        false => Some(id.channel.get()),
    };
    let Some(channel) = channel else {
        cm.destroy();
        return None;
    };
    let object = IdObject::create(cm.clone(), channel, id.context.get(), id.ps.get());
    // SAFETY: the object was just made, and the application cannot end it before it knows it.
    let object = unsafe { &*object };
    if listen.is_sync() {
        object.head.sync.set(1);
    }
    // The listener may have moved to another channel since the request came.
    if let Some(own) = ChannelObject::live(channel).filter(|own| !Arc::ptr_eq(own, &cm.channel())) {
        cm.migrate(&own);
    }
    object.show_addresses();
    object.show_device();
    if object.cm.space() == PortSpace::Tcp {
        object.show_path();
    }
    Some(object)
}

/// Lets the id show what the event says. An address whose device cannot be opened is not resolved:
/// applications use the device of a resolved id without a look at it.
fn follow(object: &IdObject, event: &mut CmEvent) {
    match event.kind {
        EventKind::AddrResolved => {
            object.show_addresses();
            object.show_device();
            if object.head.id.verbs.get().is_null() {
                (event.kind, event.status) = (EventKind::AddrError, -libc::ENODEV);
            }
        }
        EventKind::RouteResolved => object.show_path(),
        EventKind::Established => {
            object.show_addresses();
            object.show_queue_pair();
        }
        _ => {}
    }
}

/// `rdma_ack_cm_event`: gives an event back.
///
/// # Safety
/// `event` came from [`rdma_get_cm_event`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    pass_when_off!(rdma_ack_cm_event(event));
    if event.is_null() {
        return errno::minus_one(libc::EINVAL);
    }
    // SAFETY: the pointer came from Box::into_raw and is given up by the caller.
    let object = unsafe { Box::from_raw(event.cast::<EventObject>()) };
    let owner = object.owner.clone();
    drop(object);
    owner.acknowledge();
    0
}

/// Gives back the event that an id keeps from its last call.
pub fn release(object: &IdObject) {
    let event = object.head.id.event.replace(ptr::null_mut());
    if !event.is_null() {
        // SAFETY: the id owned the event.
        unsafe { rdma_ack_cm_event(event) };
    }
}

/// Waits for the event of a synchronous call, and keeps the event in the id. Gives 0, or -1 with
/// the errno that the event's status stands for.
pub fn complete(object: &IdObject) -> c_int {
    if !object.is_sync() {
        return 0;
    }
    release(object);
    let mut event = ptr::null_mut();
    // SAFETY: the channel of a synchronous id lives as long as the id.
    if unsafe { rdma_get_cm_event(object.head.id.channel.get(), &raw mut event) } != 0 {
        return -1;
    }
    object.head.id.event.set(event);
    // SAFETY: the event was just read and is not acknowledged.
    let head = unsafe { &*event };
    match head.status {
        0 => 0,
        _ if head.event == EventKind::Rejected as u32 => errno::minus_one(libc::ECONNREFUSED),
        status => errno::minus_one(status.abs()),
    }
}
